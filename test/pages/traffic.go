// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/pkg/mptcp"
)

// port is where the server takes what the phone sends.
var port = netip.MustParseAddrPort("10.0.3.1:9")

// serve takes what comes, in the namespace of the server.
func serve([]string) error {
	listener, err := mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), port.Port()), "")
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(io.Discard, conn)
		}()
	}
}

// With "traffic SUBFLOWS [CC]" the phone sends to the server without end. It returns when all of these subflows carry.
// What an earlier one sends ends; "traffic 0" does no more than that.
func traffic(args []string) error {
	const child, note = "MPCC_TRAFFIC_CHILD", "/run/traffic"
	if os.Getenv(child) != "" {
		return send(args)
	}
	if pid, err := os.ReadFile(note); err == nil {
		n, err := strconv.Atoi(string(pid))
		if err == nil {
			err = errors.Join(unix.Kill(n, unix.SIGKILL), os.Remove(note))
		}
		if err != nil {
			return err
		}
	}
	if args[0] == "0" {
		return nil
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	tell.Close()
	if err := os.WriteFile(note, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	said, err := io.ReadAll(ready)
	if err == nil && string(said) != "ready" {
		err = errors.New(string(said))
	}
	return err
}

// send is traffic in the background. It tells the file 3 when it is ready, or why it cannot be.
func send(args []string) error {
	tell := os.NewFile(3, "ready")
	conn, err := sending(args)
	if err != nil {
		fmt.Fprint(tell, err)
		return err
	}
	fmt.Fprint(tell, "ready")
	tell.Close()
	_, err = io.Copy(conn, zeros{})
	return err
}

func sending(args []string) (conn io.Writer, err error) {
	subflows, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	o := mptcp.Options{}
	if len(args) > 1 {
		o.CC = args[1]
	}
	c, err := mptcp.Dial(context.Background(), port, o)
	if err != nil {
		return nil, err
	}
	// When it is killed, its connection is not to be seen any more.
	if err := c.SetLinger(0); err != nil {
		return nil, err
	}
	// Others join once something has been acknowledged.
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Write(make([]byte, 1<<20)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		info, err := mptcp.ReadInfo(c)
		if err != nil {
			return nil, err
		}
		carry := 0
		for _, s := range info.Subflows {
			if s.TCP.Bytes_acked > 100_000 {
				carry++
			}
		}
		if carry >= subflows {
			return c, c.SetWriteDeadline(time.Time{})
		}
	}
	return nil, fmt.Errorf("fewer than %d subflows carry", subflows)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
