// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// A network namespace that gets the inode number of one that has ended is another one: its totals, those of
// its scheduler and its energy profiles are its own.
func TestOneKernelInodeNumberComesAgain(t *testing.T) {
	load(t, "lia", "minrtt")
	const bytes = 1 << 20
	first, end := loneHost(t)
	inode := inodeOf(t, first)
	mpcc(t, "load", "minrtt", "--default", "--netns", first.Namespace())
	mpcc(t, "energy", "set", "lo", "--netns", first.Namespace(), "--uplink", "1000", "--downlink", "1000", "--base", "0")
	talkToItself(t, first, bytes)
	before := sumsOf(t, inode)
	// What was handed out before the last decision is in a scheduler's totals.
	if len(before.Totals) != 1 || before.Totals[0].Acked < bytes || before.Totals[0].Joules == 0 ||
		len(before.Scheds) != 1 || before.Scheds[0].Bytes < bytes*9/10 || before.Totals[0].Name != first.Namespace() {
		t.Fatalf("the first has %+v", before)
	}
	end()

	var second *lab.Host
	for range 100 {
		time.Sleep(50 * time.Millisecond) // the kernel takes namespaces down in its own time
		if second, end = loneHost(t); inodeOf(t, second) == inode {
			break
		}
		end()
		second = nil
	}
	if second == nil {
		t.Fatalf("the inode number %d did not come again in 100 namespaces", inode)
	}
	mpcc(t, "load", "minrtt", "--default", "--netns", second.Namespace())
	talkToItself(t, second, 3*bytes)
	after := sumsOf(t, inode)
	if len(after.Totals) != 2 || len(after.Scheds) != 2 {
		t.Fatalf("of the two there is %+v", after)
	}
	for _, sum := range after.Totals {
		if sum.Cookie == before.Totals[0].Cookie {
			before.Totals[0].Name = "" // it has ended
			if sum != before.Totals[0] {
				t.Errorf("the first has %+v, had %+v", sum, before.Totals[0])
			}
		} else if sum.Acked < 3*bytes || sum.Acked > 3*bytes+10000 || sum.Joules != 0 || sum.Name != second.Namespace() {
			t.Errorf("the second has %+v", sum)
		}
	}
	for _, sum := range after.Scheds {
		if sum.Cookie == before.Scheds[0].Cookie {
			before.Scheds[0].Name = ""
			if sum != before.Scheds[0] {
				t.Errorf("the first's scheduler has %+v, had %+v", sum, before.Scheds[0])
			}
		} else if sum.Bytes < 3*bytes*9/10 || sum.Bytes > 3*bytes*11/10 || sum.Name != second.Namespace() {
			t.Errorf("the second's scheduler has %+v", sum)
		}
	}
	if shown := string(mpcc(t, "energy", "show")); strings.Contains(shown, second.Namespace()) {
		t.Errorf("the second has a profile: %s", shown)
	}
}

// loneHost is a host of a lab of its own, until end.
func loneHost(t *testing.T) (h *lab.Host, end func()) {
	t.Helper()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	end = func() {
		if closed {
			return
		}
		closed = true
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return addHost(t, l, "lone"), end
}

func inodeOf(t *testing.T, h *lab.Host) uint64 {
	t.Helper()
	info, err := os.Stat(filepath.Join("/run/netns", h.Namespace()))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// talkToItself sends so many bytes over a connection from the host to itself, under lia, and waits until
// nothing of it is live.
func talkToItself(t *testing.T, h *lab.Host, bytes int64) {
	t.Helper()
	err := h.Do(func() error {
		ln, err := mptcp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), "")
		if err != nil {
			return err
		}
		defer ln.Close()
		client, err := mptcp.Dial(t.Context(), ln.Addr(), mptcp.Options{CC: "lia"})
		if err != nil {
			return err
		}
		defer client.Close()
		server, err := ln.Accept(t.Context())
		if err != nil {
			return err
		}
		defer server.Close()
		received := make(chan error, 1)
		go func() {
			_, err := io.CopyN(io.Discard, server, bytes)
			received <- err
		}()
		_, err = client.Write(make([]byte, bytes))
		if err := errors.Join(err, <-received); err != nil {
			return err
		}
		for _, conn := range []*net.TCPConn{client, server} { // a reset: TIME_WAIT would keep the namespace
			if err := conn.SetLinger(0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !eventually(10*time.Second, func() bool { s := readStatus(t); return len(s.of(h))+len(schedulers(t, h)) == 0 }) {
		t.Fatal("still live 10 s after the close")
	}
}

// sums is what `mpcc status -j` has of namespaces by their number.
type sums struct {
	Totals []struct {
		CC     string
		Netns  uint64
		Cookie uint64  `json:"netns_cookie"`
		Name   string  `json:"netns_name"`
		Acked  uint64  `json:"bytes_acked"`
		Joules float64 `json:"energy_joules"`
	}
	Scheds []struct {
		Netns     uint64
		Cookie    uint64 `json:"netns_cookie"`
		Name      string `json:"netns_name"`
		Opened    uint64 `json:"connections_opened"`
		Decisions uint64
		Bytes     uint64
	} `json:"scheduler_totals"`
}

// sumsOf picks those of the namespaces that have, or have had, an inode number.
func sumsOf(t *testing.T, inode uint64) (of sums) {
	t.Helper()
	var all sums
	if err := json.Unmarshal(mpcc(t, "status", "-j"), &all); err != nil {
		t.Fatal(err)
	}
	for _, sum := range all.Totals {
		if sum.Netns == inode {
			of.Totals = append(of.Totals, sum)
		}
	}
	for _, sum := range all.Scheds {
		if sum.Netns == inode {
			of.Scheds = append(of.Scheds, sum)
		}
	}
	return of
}

// An interface whose name is no text: tables keep their columns, JSON is JSON, and nothing in between gets
// to the terminal.
func TestOneKernelInterfaceOfAnyName(t *testing.T) {
	load(t, "lia", "minrtt")
	n := newTwoPaths(t, [2]lab.Shape{})
	const raw, shown = "w\xff\x1b[7m\\n", `w\xff\x1b[7m\n`
	must(t, "ip", "-n", n.client.Namespace(), "link", "set", n.paths[0].Interface(n.client), "name", raw)
	mpcc(t, "load", "minrtt", "--default", "--netns", n.client.Namespace())
	mpcc(t, "energy", "set", raw, "wifi-2012", "--netns", n.client.Namespace())
	p := n.connect(t, "lia", "")
	x := p.transfer(1 << 20)
	p.join(t, 2)
	x.wait(t)

	for _, command := range [][]string{{"status"}, {"energy", "show"}} {
		found := false
		for line := range strings.Lines(string(mpcc(t, command...))) {
			if !utf8.ValidString(line) || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), unicode.IsControl) {
				t.Errorf("mpcc %s has the line %q", command[0], line)
			}
			found = found || strings.Contains(line, shown)
		}
		if !found {
			t.Errorf("mpcc %s does not show %s", command[0], shown)
		}
		text := mpcc(t, append(command, "-j")...)
		if !utf8.Valid(text) || !json.Valid(text) {
			t.Errorf("mpcc %s -j is no JSON: %q", command[0], text)
		}
	}
	s := readStatus(t)
	flows, scheds := s.of(n.client), schedulers(t, n.client)
	if len(flows) != 2 || flows[0].Interface != shown || len(scheds) != 1 || scheds[0].Subflows[0].Interface != shown {
		t.Errorf("status has subflows %+v and connections %+v", flows, scheds)
	}
	out, err := exec.Command(os.Getenv("MPCC_BIN"), "energy", "set", "none\a", "wifi-2012", "-n", n.client.Namespace()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), `w\xff\x1b[7m`) || !utf8.Valid(out) || strings.ContainsAny(string(out), "\x1b\a") {
		t.Errorf("of an interface that is not there: %v, %q", err, out)
	}
}
