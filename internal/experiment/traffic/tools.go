// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// Other people's programs as users: what runs here runs everywhere. They open
// their sockets themselves, so Conns has none, and take buffers and, with HTTP,
// the congestion control from their namespaces.

// Iperf3 sends without end, by iperf3.
type Iperf3 struct{}

// HTTP fetches files one after the other, each by a curl of its own, from nginx.
type HTTP struct {
	Bytes uint64 // of one file
	Count int    // 0: without end
}

// tool prepares a program in a host; over MPTCP by mptcpize, which makes its TCP
// sockets MPTCP ones.
func tool(ctx context.Context, h *lab.Host, multipath bool, name string, args ...string) *lab.Cmd {
	if multipath {
		name, args = "mptcpize", append([]string{"run", name}, args...)
	}
	return h.Command(ctx, name, args...)
}

// failure says in one line why a program ended; missing names the package that
// has it.
func failure(cmd *lab.Cmd, err error, said string) error {
	if err == nil {
		return nil
	}
	if said = strings.Join(strings.Fields(said), " "); said == "" {
		said = err.Error()
	}
	return fmt.Errorf("%s: %s (the program, or mptcpize, may have to be installed)", filepath.Base(cmd.Path), said)
}

func (Iperf3) run(ctx context.Context, f *Flow, _ *rand.Rand, ready func()) error {
	c := f.config
	port, err := freePort(f.server.host, c.Addr)
	if err != nil {
		return err
	}
	const interval = "0.1"
	server := tool(ctx, f.server.host, c.Multipath, "iperf3", "-s", "-1", "-i", interval, "-p", port, "--json-stream", "--forceflush")
	args := []string{"-c", c.Addr.String(), "-p", port, "-t", "0", "-i", interval, "--json-stream", "--forceflush"}
	if c.Local.IsValid() {
		args = append(args, "-B", c.Local.String())
	}
	if c.CC != "" {
		args = append(args, "-C", c.CC)
	}
	if !c.Upload {
		args = append(args, "-R")
	}
	client := tool(ctx, c.Client, c.Multipath, "iperf3", args...)
	receiver := server
	if !c.Upload {
		receiver = client
	}
	out, err := receiver.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return failure(server, err, "")
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	if err := listening(ctx, f.server.host, port); err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return failure(client, err, "")
	}
	defer func() {
		_ = client.Process.Kill()
		_ = client.Wait()
	}()
	stop := context.AfterFunc(ctx, func() { out.Close() })
	defer stop()
	begun := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var line struct {
			Event string
			Data  json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("iperf3 printed %.80q: iperf3 3.17 or newer is needed", lines.Text())
		}
		switch line.Event {
		case "error":
			return fmt.Errorf("iperf3: %s", line.Data)
		case "interval":
			var interval struct{ Sum struct{ Bytes uint64 } }
			if err := json.Unmarshal(line.Data, &interval); err != nil {
				return fmt.Errorf("iperf3 printed an interval %.80q: %w", line.Data, err)
			}
			if !begun {
				begun = true
				f.setActive(true)
				ready()
			}
			f.received.Add(interval.Sum.Bytes)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errors.New("iperf3 ended by itself"), lines.Err())
}

// freePort is one that nobody listens on at the moment.
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

// listening waits until somebody listens on the port.
func listening(ctx context.Context, h *lab.Host, port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	want := fmt.Sprintf(":%04X ", n)
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
		for line := range bytes.Lines(table) {
			if fields := bytes.Fields(line); len(fields) > 3 && bytes.HasSuffix(fields[1], []byte(strings.TrimSpace(want))) && string(fields[3]) == "0A" {
				return nil
			}
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("nobody listens on port %s of %s after 10 s", port, h.Name())
}

// web is an nginx.
type web struct {
	folder string
	port   string
	cmd    *lab.Cmd
	said   *bytes.Buffer
}

// web starts the server's nginx, once, and has a file of so many bytes in it.
func (s *Server) web(bytes uint64) (*web, error) {
	s.webOnce.Do(func() { s.nginx, s.webErr = startNginx(s.host) })
	if s.webErr != nil {
		return nil, s.webErr
	}
	path := filepath.Join(s.nginx.folder, fmt.Sprint(bytes))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return s.nginx, errors.Join(file.Truncate(int64(bytes)), file.Close())
}

const nginxConfig = `daemon off;
master_process off;
user root;
pid %[1]s/pid;
error_log stderr;
events { worker_connections 4096; }
http {
	access_log off;
	server { listen %[2]s; root %[1]s; }
}
`

func startNginx(h *lab.Host) (_ *web, err error) {
	w := &web{said: &bytes.Buffer{}}
	if w.port, err = freePort(h, netip.IPv4Unspecified()); err != nil {
		return nil, err
	}
	if w.folder, err = h.Folder(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	config := filepath.Join(w.folder, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, w.folder, w.port), 0o644); err != nil {
		return nil, err
	}
	w.cmd = tool(context.Background(), h, true, "nginx", "-c", config, "-p", w.folder, "-e", "stderr")
	w.cmd.Stderr = w.said
	if err := w.cmd.Start(); err != nil {
		w.cmd = nil
		return nil, failure(tool(context.Background(), h, true, "nginx"), err, "")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return w, listening(ctx, h, w.port)
}

func (w *web) close() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

func (p HTTP) run(ctx context.Context, f *Flow, _ *rand.Rand, ready func()) error {
	if f.config.Upload {
		return errors.New("HTTP goes down to the user alone")
	}
	w, err := f.server.web(p.Bytes)
	if err != nil {
		return err
	}
	ready()
	for i := 0; p.Count == 0 || i < p.Count; i++ {
		err := f.transfer(p.Bytes, func() error { return f.curl(ctx, w, p.Bytes) })
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// curl fetches a file.
func (f *Flow) curl(ctx context.Context, w *web, size uint64) error {
	c := f.config
	args := []string{"-sS", "-f", "-o", "-", fmt.Sprintf("http://%s/%d", netip.AddrPortFrom(c.Addr, 0).Addr().String()+":"+w.port, size)}
	if c.Local.IsValid() {
		args = append(args, "--interface", c.Local.String())
	}
	cmd := tool(ctx, c.Client, c.Multipath, "curl", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return failure(cmd, err, "")
	}
	n, copied := io.Copy(counter{f}, out)
	if err := failure(cmd, cmd.Wait(), said.String()); err != nil {
		return err
	}
	if copied == nil && uint64(n) != size {
		copied = fmt.Errorf("curl printed %d bytes of %d", n, size)
	}
	return copied
}

// counter counts what a flow receives.
type counter struct{ f *Flow }

func (c counter) Write(p []byte) (int, error) {
	c.f.received.Add(uint64(len(p)))
	return len(p), nil
}

// webServer is the server's nginx, started when it is first wanted.
type webServer struct {
	webOnce sync.Once
	nginx   *web
	webErr  error
}
