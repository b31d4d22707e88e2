// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// HTTP fetches files one after the other, each by a curl of its own, from nginx.
type HTTP struct {
	Bytes uint64 // of one file
	Count int    // 0: without end
}

// web is a host's nginx, started when it is first wanted.
type web struct {
	once   sync.Once
	err    error // why it did not start
	folder string
	port   string
	cmd    *lab.Cmd // nil when it does not run
}

// serve puts a file of so many bytes, named by its size, into the host's nginx.
func (w *web) serve(ctx context.Context, h *lab.Host, bytes uint64) error {
	w.once.Do(func() { w.err = w.start(ctx, h) })
	if w.err != nil {
		return w.err
	}
	file, err := os.OpenFile(filepath.Join(w.folder, fmt.Sprint(bytes)), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(int64(bytes)), file.Close())
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

func (w *web) start(ctx context.Context, h *lab.Host) (err error) {
	if w.port, err = freePort(h, netip.IPv4Unspecified()); err != nil {
		return err
	}
	if w.folder, err = h.Folder(); err != nil {
		return err
	}
	config := filepath.Join(w.folder, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, w.folder, w.port), 0o644); err != nil {
		return err
	}
	// It must not end with this user: it serves the others of the host too.
	cmd := tool(context.WithoutCancel(ctx), h, true, "nginx", "-c", config, "-p", w.folder, "-e", "stderr")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return failure(cmd, err, "")
	}
	if err := listening(ctx, h, w.port); err != nil {
		kill(cmd)
		return failure(cmd, err, said.String())
	}
	w.cmd = cmd
	return nil
}

func (w *web) close() {
	if w.cmd != nil {
		kill(w.cmd)
	}
}

func (p HTTP) run(ctx context.Context, f *Flow, _ *rand.Rand, ready func()) error {
	if f.config.Upload {
		return errors.New("http traffic goes down to the user only")
	}
	if err := f.server.web.serve(ctx, f.server.host, p.Bytes); err != nil {
		return err
	}
	ready()
	for i := 0; p.Count == 0 || i < p.Count; i++ {
		err := f.transfer(p.Bytes, func() error { return f.curl(ctx, p.Bytes) })
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// curl fetches a file of so many bytes.
func (f *Flow) curl(ctx context.Context, size uint64) error {
	c := f.config
	url := fmt.Sprintf("http://%s/%d", net.JoinHostPort(c.Addr.String(), f.server.web.port), size)
	args := []string{"-sS", "-f", "-o", "-", url}
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
