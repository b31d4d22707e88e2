// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
	"github.com/mpcc/mpcc/test/hosts"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/terminal"
	"github.com/mpcc/mpcc/test/twopaths"
)

// mpccCommand is mpcc as a process of its own: the test program, which TestMain makes mpcc under that name.
func mpccCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe, args...)
	c.Args[0] = "mpcc"
	return c
}

// send connects the sender with the receiver over the first link, and sends for as long as the test takes.
func send(t *testing.T, n twopaths.Net, cc string) *net.TCPConn {
	t.Helper()
	conn := hosts.Connect(t, n.Sender, n.Receiver, n.Links[0].Addr(n.Receiver), cc)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = checked.Send(conn, checked.Transfer{Bytes: 1 << 40, Fast: true})
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return conn
}

// sample is what the kernel says of a subflow at one time.
type sample struct {
	at         time.Time
	cwnd, srtt float64 // packets, ms
	acked      float64 // Mbit
}

// measure looks at the subflows, by number, until the screen has been refreshed so many times, an interval apart. It
// may be seen half drawn, which is no refresh.
func measure(
	t *testing.T, conn *net.TCPConn, s *terminal.Terminal, refreshes int, interval time.Duration,
) map[uint32][]sample {
	t.Helper()
	all := map[uint32][]sample{}
	last, refreshed := s.Lines(), time.Now()
	for ; refreshes > 0; time.Sleep(time.Millisecond) {
		if now := s.Lines(); !slices.Equal(now, last) && time.Since(refreshed) > interval/2 {
			last, refreshed = now, time.Now()
			refreshes--
		}
		info, err := mptcp.ReadInfo(conn)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range info.Subflows {
			all[f.ID] = append(all[f.ID], sample{
				time.Now(), float64(f.TCP.Snd_cwnd), float64(f.TCP.Rtt) / 1000, float64(f.TCP.Bytes_acked) * 8 / 1e6,
			})
		}
	}
	return all
}

// between is what a figure may be.
type between struct{ least, most float64 }

func of(samples []sample, figure func(sample) float64) between {
	b := between{math.Inf(1), math.Inf(-1)}
	for _, s := range samples {
		b = between{min(b.least, figure(s)), max(b.most, figure(s))}
	}
	return b
}

// rates are those of all times that are about so long, in Mbit/s. On a busy machine mpcc watch reads late, and so does
// this test, so that about is half as long to twice.
func rates(samples []sample, length time.Duration) between {
	b := between{math.Inf(1), math.Inf(-1)}
	for i, start := range samples {
		for _, end := range samples[i:] {
			if time := end.at.Sub(start.at); time >= length/2 && time <= 2*length {
				rate := (end.acked - start.acked) / time.Seconds()
				b = between{min(b.least, rate), max(b.most, rate)}
			}
		}
	}
	return b
}

// has fails the test unless the figure is between these, but for a part of it: of three digits the last is rounded, and
// more may happen between two samples, to an SRTT within a burst of ACKs.
func (b between) has(t *testing.T, what string, figure, part float64) {
	t.Helper()
	if !(figure >= (1-part)*b.least && figure <= (1+part)*b.most) {
		t.Errorf("%s: %g, the kernel's: %g to %g", what, figure, b.least, b.most)
	}
}

func (b between) apart(c between) bool { return b.most < c.least || c.most < b.least }

// row is how the screen shows a subflow: interface, window, RTT, rate, power and energy.
var row = regexp.MustCompile(`^   \d (\w+) +(\d+) +([\d.]+) ms +([\d.]+) Mbit/s +[\d.]+` +
	` +(?:([\d.]+) W|-) +(?:([\d.]+) J|-) +[▁▂▃▄▅▆▇█]{3,}$`)

// A real connection under dts, on the screen and as NDJSON, beside what the kernel says of its sockets.
func TestWatchLive(t *testing.T) {
	dts := loaded.DTS(t, nil)
	n := twopaths.New(t, [2]lab.Shape{{Rate: 40e6}, {Rate: 8e6}})
	at := loader.Interface{Netns: n.Sender.Namespace(), Name: n.Links[0].Interface(n.Sender)}
	const joules = 0.1 // for a Mbit
	if err := loader.SetProfile(t.Context(), at, loader.Profile{Uplink: joules * 1000}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loader.DeleteProfile(context.Background(), at); err != nil {
			t.Error(err)
		}
	})

	const interval = 500 * time.Millisecond
	s := terminal.Start(t, mpccCommand(t, "watch", "--interval", interval.String(), "-n", n.Sender.Namespace()), 80, 24)
	s.Shows("no live subflow runs a congestion control of mpcc")
	conn := send(t, n, dts.Name)
	info, err := mptcp.ReadInfo(conn)
	if err != nil {
		t.Fatal(err)
	}
	s.Shows("1 connection, 2 subflows")
	s.Press("\r")
	s.Until("the connection with its subflows", func(lines []string) bool {
		return strings.HasPrefix(lines[2], fmt.Sprintf("▾ %08x dts ", info.Token)) &&
			row.MatchString(lines[3]) && row.MatchString(lines[4])
	})

	// The first refresh may be of what was read before, and a rate is of the time between two. The energy changes at each.
	kernel := measure(t, conn, s, 3, interval)
	lines := s.Lines()
	t.Logf("\n%s", strings.Join(lines[:5], "\n"))
	var cwnd, srtt [2]between
	for i, link := range n.Links {
		samples := kernel[uint32(i+1)]
		cwnd[i] = of(samples, func(s sample) float64 { return s.cwnd })
		srtt[i] = of(samples, func(s sample) float64 { return s.srtt })
		got := row.FindStringSubmatch(lines[3+i])
		if got == nil || got[1] != link.Interface(n.Sender) {
			t.Fatalf("subflow %d, over %s: %q", i+1, link.Interface(n.Sender), lines[3+i])
		}
		number := func(field int) float64 {
			v, err := strconv.ParseFloat(got[field], 64)
			if err != nil {
				t.Fatalf("%q: %v", lines[3+i], err)
			}
			return v
		}
		cwnd[i].has(t, fmt.Sprintf("subflow %d, cwnd", i+1), number(2), 0)
		srtt[i].has(t, fmt.Sprintf("subflow %d, SRTT in ms", i+1), number(3), 0.3)
		rates := rates(samples, interval)
		rates.has(t, fmt.Sprintf("subflow %d, rate in Mbit/s", i+1), number(4), 0.1)
		t.Logf("subflow %d in the kernel: cwnd %v, SRTT %v ms, %v Mbit/s", i+1, cwnd[i], srtt[i], rates)
		if i > 0 {
			if got[5] != "" || got[6] != "" {
				t.Errorf("an interface without profile has power %q and energy %q", got[5], got[6])
			}
			continue
		}
		between{joules * rates.least, joules * rates.most}.has(t, "power in W", number(5), 0.1)
		acked := of(samples, func(s sample) float64 { return s.acked })
		between{joules * acked.least, joules * acked.most}.has(t, "energy in J", number(6), 0.005)
	}
	if !cwnd[0].apart(cwnd[1]) && !srtt[0].apart(srtt[1]) {
		t.Error("the subflows are alike: this could not tell if they were mistaken for each other")
	}
	s.Signal(unix.SIGTERM)
	if code := s.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	t.Run("JSON", func(t *testing.T) { watchJSON(t, n, info.Token) })
	t.Run("table", func(t *testing.T) { watchTable(t, n, info.Token) })
}

// watchJSON compares the lines of JSON with each other, and their keys with those of mpcc status.
func watchJSON(t *testing.T, n twopaths.Net, token uint32) {
	out, err := mpccCommand(t, "watch", "--json", "--count", "2", "-n", n.Sender.Namespace()).Output()
	if err != nil {
		t.Fatal(err)
	}
	type refresh struct {
		Time     time.Time
		Loaded   []string
		Subflows []map[string]any
	}
	var refreshes []refresh
	for line := range bytes.Lines(out) {
		var r refresh
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if len(r.Subflows) != 2 || r.Subflows[0]["token"] != fmt.Sprintf("%08x", token) {
			t.Fatalf("not the subflows of %08x: %s", token, line)
		}
		if diff := cmp.Diff([]string{"cc/dts"}, r.Loaded); diff != "" {
			t.Error(diff)
		}
		refreshes = append(refreshes, r)
	}
	if len(refreshes) != 2 {
		t.Fatalf("%d lines:\n%s", len(refreshes), out)
	}
	if rate := refreshes[0].Subflows[0]["rate_bytes_per_second"]; rate != nil {
		t.Errorf("a rate before there was a difference: %v", rate)
	}
	for i := range 2 {
		before, after := refreshes[0].Subflows[i], refreshes[1].Subflows[i]
		bytes := after["bytes_acked"].(float64) - before["bytes_acked"].(float64)
		// The states are up to an RTT or 100 ms old, each another time.
		length := refreshes[1].Time.Sub(refreshes[0].Time).Seconds()
		rate := after["rate_bytes_per_second"].(float64)
		if bytes == 0 || rate < bytes/(length+0.15) || rate > bytes/(length-0.15) {
			t.Errorf("subflow %d: %g bytes/s, but %g bytes in %g s", i+1, rate, bytes, length)
		}
	}

	out, err = mpccCommand(t, "status", "-j").Output()
	if err != nil {
		t.Fatal(err)
	}
	var status refresh
	if err := json.Unmarshal(out, &status); err != nil {
		t.Fatal(err)
	}
	want := slices.Collect(maps.Keys(status.Subflows[0]))
	want = append(want, "rate_bytes_per_second", "receive_rate_bytes_per_second", "power_watts")
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(refreshes[1].Subflows[0]))); diff != "" {
		t.Errorf("the keys of a subflow in mpcc status -j, and more: %s", diff)
	}
}

// watchTable reads tables from a pipe until it has had enough.
func watchTable(t *testing.T, n twopaths.Net, token uint32) {
	c := mpccCommand(t, "watch", "--interval", "100ms", "-n", n.Sender.Namespace())
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for in := bufio.NewScanner(out); rows < 6 && in.Scan(); {
		if strings.Contains(in.Text(), "\x1b") {
			t.Errorf("an escape in %q", in.Text())
		}
		if strings.HasPrefix(in.Text(), fmt.Sprintf("%08x  ", token)) {
			rows++
		}
	}
	if rows < 6 {
		t.Errorf("%d rows of subflows, want two in each of three tables", rows)
	}
	if err := c.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	if err := c.Wait(); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
}
