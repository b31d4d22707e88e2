// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// What the patterns Iperf3 and HTTP have in common: they run other people's
// programs. These open their sockets themselves, so that a Flow knows none of
// them, and take buffer sizes and, with HTTP, the congestion control from their
// namespaces.

// tool prepares a program to run in a host; with multipath by mptcpize, which
// turns its TCP sockets into MPTCP ones.
func tool(ctx context.Context, h *lab.Host, multipath bool, name string, args ...string) *lab.Cmd {
	if multipath {
		name, args = "mptcpize", append([]string{"run", name}, args...)
	}
	return h.Command(ctx, name, args...)
}

// failure says in one line why a program failed: by what it said, if anything.
func failure(cmd *lab.Cmd, err error, said string) error {
	if err == nil {
		return nil
	}
	if said = strings.Join(strings.Fields(said), " "); said == "" {
		said = err.Error()
	}
	return fmt.Errorf("%s: %s (the program, or mptcpize, may have to be installed)", filepath.Base(cmd.Path), said)
}

// freePort returns a port that nobody listens on at the moment.
func freePort(h *lab.Host, addr netip.Addr) (port string, err error) {
	err = h.Do(func() error {
		ln, err := net.Listen("tcp4", netip.AddrPortFrom(addr, 0).String())
		if err != nil {
			return err
		}
		_, port, err = net.SplitHostPort(ln.Addr().String())
		return errors.Join(err, ln.Close())
	})
	return port, err
}

// listening returns when somebody listens on the port.
func listening(ctx context.Context, h *lab.Host, port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	for range 500 {
		var table []byte
		err := h.Do(func() (err error) {
			four, err := os.ReadFile("/proc/thread-self/net/tcp")
			if err != nil {
				return err
			}
			six, err := os.ReadFile("/proc/thread-self/net/tcp6")
			table = append(four, six...)
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		if listens(table, uint16(n)) {
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("nobody listens on port %s of %s after 10 s", port, h.Name())
}

// listens says whether a table like /proc/net/tcp has a listening socket (state
// 0A) on the port.
func listens(table []byte, port uint16) bool {
	on := fmt.Appendf(nil, ":%04X", port)
	for line := range bytes.Lines(table) {
		fields := bytes.Fields(line)
		if len(fields) > 3 && bytes.HasSuffix(fields[1], on) && string(fields[3]) == "0A" {
			return true
		}
	}
	return false
}

// kill ends a program that has been started.
func kill(cmd *lab.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
