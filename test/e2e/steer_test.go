// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/pmtest"
)

// change is a line of `mpcc steer -j`.
type change struct {
	Backup    bool
	Interface string
	Local     string
	Endpoint  int
	Token     string
	Rule      string
	Because   *struct {
		K         int
		Objective []float64
		Download  bool
		Size      uint64 `json:"size_bytes"`
		Subflows  []struct {
			Interface string
			Rate      float64 `json:"rate_mbps"`
			Cost      float64 `json:"cost_mj_per_mbit"`
			In        bool
		}
	}
}

// steering is an mpcc steer that runs.
type steering struct {
	cmd       *exec.Cmd
	complaint bytes.Buffer
	mu        sync.Mutex
	changes   []change
	garbled   []string
	done      chan struct{} // its output has ended
}

// steer starts mpcc steer -j in the host's namespace, as root with the only capability it needs.
func steer(t *testing.T, h *lab.Host, args ...string) *steering {
	t.Helper()
	s := &steering{done: make(chan struct{})}
	s.cmd = exec.Command("nsenter", append([]string{
		"--net=/run/netns/" + h.Namespace(),
		"setpriv", "--bounding-set=-all,+net_admin", "--no-new-privs", os.Getenv("MPCC_BIN"), "steer", "-j",
	}, args...)...)
	s.cmd.Stderr = &s.complaint
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	go func() {
		defer close(s.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var c change
			err := json.Unmarshal(lines.Bytes(), &c)
			s.mu.Lock()
			if err != nil {
				s.garbled = append(s.garbled, lines.Text())
			}
			s.changes = append(s.changes, c)
			s.mu.Unlock()
		}
	}()
	return s
}

// seen is what it has changed so far.
func (s *steering) seen(t *testing.T) []change {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.garbled) > 0 {
		t.Fatalf("not lines of JSON: %q", s.garbled)
	}
	return append([]change(nil), s.changes...)
}

// next waits for one more change than there have been.
func (s *steering) next(t *testing.T, before int) change {
	t.Helper()
	if !eventually(20*time.Second, func() bool { return len(s.seen(t)) > before }) {
		t.Fatalf("no change in 20 s; %s", s.complaint.String())
	}
	return s.seen(t)[before]
}

// end ends it by a signal, and returns all its changes.
func (s *steering) end(t *testing.T, signal syscall.Signal) []change {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	<-s.done
	err := s.cmd.Wait()
	if signal == syscall.SIGKILL {
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			t.Fatalf("killed, steer ended with %v", err)
		}
	} else if err != nil {
		t.Fatalf("%v: steer ended with %v: %s", signal, err, s.complaint.String())
	}
	return s.seen(t)
}

// flags is what ip mptcp says of a host's endpoint.
func flags(t *testing.T, h *lab.Host, link *lab.Link) string {
	t.Helper()
	out, err := exec.Command("ip", "-n", h.Namespace(), "mptcp", "endpoint", "show").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if addr, rest, _ := strings.Cut(strings.TrimSpace(line), " "); addr == link.Addr(h).String() {
			return rest
		}
	}
	t.Fatalf("no endpoint %v: %s", link.Addr(h), out)
	return ""
}

// notes are the files in which steers keep what they have to restore.
func notes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/run/mpcc/steer/*")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// newUnequal is two paths of 10 Mbit/s and 20 ms, the second one dear.
func newUnequal(t *testing.T) twoPaths {
	t.Helper()
	load(t, "lia")
	path := lab.Shape{Rate: 10e6, Delay: 10 * time.Millisecond, Queue: 33}
	n := newTwoPaths(t, [2]lab.Shape{path, path})
	for i, price := range []string{"100", "900"} { // mW/Mbps, and mW
		mpcc(t, "energy", "set", n.paths[i].Interface(n.client), "--netns", n.client.Namespace(),
			"--uplink", price, "--downlink", "0", "--base", price)
	}
	return n
}

// steered is a connection under way over unequal paths; both of the client's addresses are endpoints.
func steered(t *testing.T, endpoints [2]lab.MPTCPEndpoint) (twoPaths, pair) {
	t.Helper()
	n := newUnequal(t)
	for i := range endpoints {
		endpoints[i].Addr = n.paths[i].Addr(n.client)
	}
	if err := n.client.MPTCP(lab.MPTCPLimits{Subflows: 1, AddAddrAccepted: 1}, endpoints[:]...); err != nil {
		t.Fatal(err)
	}
	p := n.connect(t, "lia", "reno")
	p.stream()
	p.join(t, 2)
	return n, p
}

// inUse waits until the paths carry what they should: the first one always, the second one or nothing.
func (n twoPaths) inUse(t *testing.T, p pair, when string, second bool) {
	t.Helper()
	const full = 10e6 / 8 / 2 // bytes in half a second
	var got [2]uint64
	ok := eventually(10*time.Second, func() bool {
		got = n.carried(t, p)
		return got[0] > full/2 && (second && got[1] > full/2 || !second && got[1] < full/100)
	})
	t.Logf("%s: the paths carry %d bytes in half a second", when, got)
	if !ok {
		t.Errorf("%s: the paths carry %d bytes in half a second", when, got)
	}
}

// carried is what the client sends on each path in half a second, in bytes.
func (n twoPaths) carried(t *testing.T, p pair) (bytes [2]uint64) {
	t.Helper()
	read := func() (sum [2]uint64) {
		info, err := mptcp.ReadInfo(p.client)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Subflows {
			sum[n.path(t, s.Local.Addr())] += s.TCP.Bytes_sent
		}
		return sum
	}
	before := read()
	time.Sleep(500 * time.Millisecond)
	after := read()
	for i := range bytes {
		bytes[i] = after[i] - before[i]
	}
	return bytes
}

// At 10 Mbit/s a Mbit costs 110 mJ on the first path and 990 mJ on the second, 550 mJ on both. With 0.001
// for a mJ the second path is worth it while 10 Mbit/s are more than 0.001 · 440 mJ/Mbit · N: for transfers
// of less than 22.7 Mbit, 2.8 MB.
func TestOneKernelSteer(t *testing.T) {
	n, p := steered(t, [2]lab.MPTCPEndpoint{})
	dear := n.paths[1]
	untouched := flags(t, n.client, dear)
	inUse := func(when string, second bool) {
		t.Helper()
		n.inUse(t, p, when, second)
	}
	given := func(by string) {
		t.Helper()
		if now := flags(t, n.client, dear); now != untouched || len(notes(t)) > 0 {
			t.Errorf("%s leaves the endpoint %q, which was %q, and %q", by, now, untouched, notes(t))
		}
	}

	dry := steer(t, n.client, "--size", "100M", "--dry-run")
	if c := dry.next(t, 0); !c.Backup || c.Interface != dear.Interface(n.client) {
		t.Errorf("would change %+v", c)
	}
	given("a dry run")
	dry.end(t, syscall.SIGINT)

	large := steer(t, n.client, "--size", "100M")
	c := large.next(t, 0)
	if !c.Backup || c.Interface != dear.Interface(n.client) || c.Local != dear.Addr(n.client).String() ||
		c.Endpoint == 0 || c.Because == nil || c.Because.K != 1 || len(c.Because.Objective) != 2 {
		t.Errorf("the change is %+v", c)
	}
	if now := flags(t, n.client, dear); !strings.Contains(now, "backup") {
		t.Errorf("the endpoint is %q", now)
	}
	inUse("large transfers", false)
	out, err := exec.Command(os.Getenv("MPCC_BIN"), "steer", "--netns", n.client.Namespace()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another mpcc steer is at work") {
		t.Errorf("a second steer: %v: %s", err, out)
	}
	if changes := large.end(t, syscall.SIGTERM); len(changes) != 2 || changes[1].Backup || changes[1].Local != c.Local {
		t.Errorf("changes in all: %+v", changes)
	}
	given("SIGTERM")
	inUse("given back", true)

	// Killed, it leaves the flag and a note: for --restore, and for the next one.
	kill := func() {
		t.Helper()
		killed := steer(t, n.client, "--size", "100M")
		killed.next(t, 0)
		killed.end(t, syscall.SIGKILL)
		if now := flags(t, n.client, dear); !strings.Contains(now, "backup") || len(notes(t)) != 1 {
			t.Fatalf("killed, it leaves the endpoint %q and %q", now, notes(t))
		}
	}
	kill()
	if out := mpcc(t, "steer", "--restore", "--netns", n.client.Namespace()); !strings.Contains(string(out), "given back") {
		t.Errorf("restore says %q", out)
	}
	given("--restore")
	inUse("restored", true)

	kill()
	small := steer(t, n.client, "--size", "100K")
	if c := small.next(t, 0); c.Backup || c.Local != dear.Addr(n.client).String() {
		t.Errorf("the next one changes %+v", c)
	}
	time.Sleep(2 * time.Second) // twenty round trips and more
	inUse("small transfers", true)
	if changes := small.end(t, syscall.SIGTERM); len(changes) != 1 {
		t.Errorf("small transfers: changes %+v", changes)
	}
	given("the next one")
	p.close()
}

// A subflow that the user has made a backup stays one, and steer leaves it alone until the user clears the flag.
func TestOneKernelSteerKeepsTheUsersFlags(t *testing.T) {
	n, p := steered(t, [2]lab.MPTCPEndpoint{{Backup: true}, {}})
	before := [2]string{flags(t, n.client, n.paths[0]), flags(t, n.client, n.paths[1])}
	s := steer(t, n.client, "--size", "100M")
	time.Sleep(2 * time.Second) // twenty round trips and more
	if changes := s.seen(t); len(changes) > 0 {
		t.Errorf("with the cheap path the user's backup: changes %+v", changes)
	}
	must(t, "ip", "-n", n.client.Namespace(), "mptcp", "endpoint", "change", n.paths[0].Addr(n.client).String(), "nobackup")
	if c := s.next(t, 0); !c.Backup || c.Interface != n.paths[1].Interface(n.client) {
		t.Errorf("with the cheap path in use: %+v", c)
	}
	must(t, "ip", "-n", n.client.Namespace(), "mptcp", "endpoint", "change", n.paths[0].Addr(n.client).String(), "backup")
	// It ends where the maps do.
	mpcc(t, "unload", "--all")
	<-s.done
	err := s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("without maps it ends with %v: %s", err, s.complaint.String())
	}
	if after := [2]string{flags(t, n.client, n.paths[0]), flags(t, n.client, n.paths[1])}; after != before {
		t.Errorf("the endpoints are %q, were %q", after, before)
	}
	p.close()
}

// With --size auto a connection is taken for as large as those were that sent more. Nothing but small ones has ended before
// the first large one: the second path becomes a backup once that one itself has sent too much for both paths, some 2.8 MB
// (TestOneKernelSteer). Later ones leave the second path as soon as they can be judged: one is taken for as large as the
// first, the next for the mean of both. The small ones count in neither mean: every connection that is judged has sent more.
func TestOwnTimeSteerLearnsSizes(t *testing.T) {
	n := newUnequal(t)
	var endpoints [2]lab.MPTCPEndpoint
	for i := range endpoints {
		endpoints[i].Addr = n.paths[i].Addr(n.client)
	}
	if err := n.client.MPTCP(lab.MPTCPLimits{Subflows: 1, AddAddrAccepted: 1}, endpoints[:]...); err != nil {
		t.Fatal(err)
	}
	s := steer(t, n.client, "--size", "auto")
	// Without connections steer looks once a second: one that is under way so long is then seen ten times a second.
	begin := func() pair {
		t.Helper()
		p := n.connect(t, "lia", "reno")
		p.drain()
		p.trickle(t, 10e3, 100*time.Millisecond, 1500*time.Millisecond)
		p.join(t, 2)
		return p
	}
	// send has a connection send so much, and returns what its subflows have sent in all.
	send := func(bytes int64) (sent float64) {
		t.Helper()
		p := begin()
		due := p.received.Load() + bytes
		if _, err := p.client.Write(make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
		if !eventually(time.Minute, func() bool { return p.received.Load() == due }) {
			t.Fatalf("%d of %d bytes arrived in a minute", p.received.Load(), due)
		}
		p.trickle(t, 10e3, 100*time.Millisecond, time.Second) // ACKs bring the maps up to date
		info, err := mptcp.ReadInfo(p.client)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range info.Subflows {
			sent += float64(f.TCP.Bytes_sent)
		}
		p.close()
		if !eventually(10*time.Second, func() bool { return len(readStatus(t).of(n.client)) == 0 }) {
			t.Fatal("a connection has not ended 10 s after it was closed")
		}
		return sent
	}
	changes := 0
	// takenFor waits until the second path becomes a backup, and returns the size that the connection is taken for.
	takenFor := func() float64 {
		t.Helper()
		c := s.next(t, changes)
		changes++
		if !c.Backup || c.Interface != n.paths[1].Interface(n.client) || c.Because == nil {
			t.Fatalf("the change is %+v, because of %+v", c, c.Because)
		}
		return float64(c.Because.Size)
	}
	ended := func() {
		t.Helper()
		if c := s.next(t, changes); c.Backup {
			t.Fatalf("after the connection: %+v, because of %+v", c, c.Because)
		}
		changes++
	}
	// A backup's last tenth of a second may be missing: 0.125 MB.
	expect := func(which string, got, want float64) {
		t.Helper()
		t.Logf("%s is taken for %.3g MB, want %.3g MB", which, got/1e6, want/1e6)
		if got < 0.95*want || got > 1.05*want {
			t.Errorf("%s is taken for %.3g MB, want %.3g MB", which, got/1e6, want/1e6)
		}
	}

	for range 2 {
		if sent := send(80e3); sent < 64<<10 || sent > 128<<10 {
			t.Fatalf("a small one sent %g bytes: steer remembers those of 64 KiB and more, and judges after 128 KiB", sent)
		}
	}
	if seen := s.seen(t); len(seen) > 0 {
		t.Fatalf("small ones: %+v", seen)
	}

	first := send(12e6)
	if got := takenFor(); got < 1<<20 || got > first/2 {
		t.Errorf("the first large one sent %.3g MB and is taken for %.3g MB, want what it had sent by then", first/1e6, got/1e6)
	}
	ended()
	second := send(6e6)
	expect("the second", takenFor(), first)
	ended()
	third := begin()
	third.fill()
	expect("the third", takenFor(), (first+second)/2)
	n.inUse(t, third, "the third", false)
	if all := s.end(t, syscall.SIGTERM); len(all) != changes+1 || all[changes].Backup {
		t.Errorf("changes in all: %+v", all)
	}
	third.close()
}

// A download keeps the second path in use, at both ends, although energy makes that path too dear for the large upload
// beside. When the download has ended, steer makes the path a backup again.
func TestOneKernelSteerSparesDownloads(t *testing.T) {
	n, p := steered(t, [2]lab.MPTCPEndpoint{})
	s := steer(t, n.client, "--size", "100M")
	if c := s.next(t, 0); !c.Backup || c.Interface != n.paths[1].Interface(n.client) {
		t.Fatalf("the upload alone: %+v", c)
	}
	n.inUse(t, p, "the upload alone", false)
	download := n.connect(t, "lia", "lia")
	download.reverse().stream()
	download.join(t, 2)
	if c := s.next(t, 1); c.Backup || c.Because == nil || !c.Because.Download {
		t.Fatalf("beside a download: %+v", c)
	}
	got := eventually(10*time.Second, func() bool {
		before := n.received(t, download)
		time.Sleep(500 * time.Millisecond)
		return n.received(t, download)-before > 10e6/8/2/2
	})
	if !got {
		t.Error("the download gets little over the dear path")
	}
	download.close()
	if c := s.next(t, 2); !c.Backup {
		t.Errorf("after the download: %+v", c)
	}
	s.end(t, syscall.SIGTERM)
	p.close()
}

// received is what the client has received over the second path.
func (n twoPaths) received(t *testing.T, p pair) (bytes uint64) {
	t.Helper()
	info, err := mptcp.ReadInfo(p.client)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Subflows {
		if n.path(t, s.Local.Addr()) == 1 {
			bytes += s.TCP.Bytes_received
		}
	}
	return bytes
}

// Under a userspace path manager it is the single subflow that becomes a backup.
func TestOneKernelSteerSingleSubflows(t *testing.T) {
	n := newUnequal(t)
	var release func()
	err := n.client.Do(func() (err error) {
		release, err = pmtest.Take()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	p := n.connect(t, "lia", "reno")
	p.stream()
	info, err := mptcp.ReadInfo(p.client)
	if err != nil {
		t.Fatal(err)
	}
	port := p.client.RemoteAddr().(*net.TCPAddr).AddrPort().Port()
	err = n.client.Do(func() (err error) {
		// It cannot be joined before its first data is acknowledged.
		eventually(10*time.Second, func() bool {
			err = pmtest.Join(info.Token, 1, n.paths[1].Addr(n.client), netip.AddrPortFrom(n.paths[1].Addr(n.server), port))
			return err == nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p.join(t, 2)

	s := steer(t, n.client, "--size", "100M")
	if c := s.next(t, 0); !c.Backup || c.Endpoint != 0 || c.Token != fmt.Sprintf("%08x", info.Token) ||
		c.Interface != n.paths[1].Interface(n.client) {
		t.Errorf("the change is %+v", c)
	}
	n.inUse(t, p, "steered", false)
	if changes := s.end(t, syscall.SIGTERM); len(changes) != 2 || changes[1].Backup {
		t.Errorf("changes in all: %+v", changes)
	}
	if left := notes(t); len(left) > 0 {
		t.Errorf("it leaves %q", left)
	}
	n.inUse(t, p, "given back", true)
	p.close()
}
