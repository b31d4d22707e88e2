// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// Iperf3 sends without end, by iperf3.
type Iperf3 struct{}

func (Iperf3) run(ctx context.Context, f *Flow, _ *rand.Rand, ready func()) error {
	port, err := freePort(f.server.host, f.config.Addr)
	if err != nil {
		return err
	}
	server, client := f.iperf3(ctx, port)
	receiver := server
	if !f.config.Upload {
		receiver = client
	}
	out, err := receiver.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return failure(server, err, "")
	}
	defer kill(server)
	if err := listening(ctx, f.server.host, port); err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return failure(client, err, "")
	}
	defer kill(client)
	stop := context.AfterFunc(ctx, func() { out.Close() })
	defer stop()
	err = f.countIntervals(out, ready)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// iperf3 prepares the programs of both ends.
func (f *Flow) iperf3(ctx context.Context, port string) (server, client *lab.Cmd) {
	c := f.config
	tell := []string{"-p", port, "-i", "0.1", "--json-stream", "--forceflush"}
	server = tool(ctx, f.server.host, c.Multipath, "iperf3", append([]string{"-s", "-1"}, tell...)...)
	args := append([]string{"-c", c.Addr.String(), "-t", "0"}, tell...)
	if c.Local.IsValid() {
		args = append(args, "-B", c.Local.String())
	}
	if c.CC != "" {
		args = append(args, "-C", c.CC)
	}
	if !c.Upload {
		args = append(args, "-R")
	}
	return server, tool(ctx, c.Client, c.Multipath, "iperf3", args...)
}

// countIntervals counts what the receiving program says it has received, until its
// output ends. It calls ready at the first word of it.
func (f *Flow) countIntervals(out io.Reader, ready func()) error {
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
	return errors.Join(errors.New("iperf3 ended by itself"), lines.Err())
}
