// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/loaded"
)

// prints fails the test unless mpcc prints what the pattern describes.
func prints(t *testing.T, pattern string, args ...string) {
	t.Helper()
	if out := string(mpcc(t, args...)); !regexp.MustCompile(pattern).MatchString(out) {
		t.Errorf("mpcc %s printed %q, want %s", strings.Join(args, " "), out, pattern)
	}
}

func runs(t *testing.T, conn *net.TCPConn, cc string) {
	t.Helper()
	if got, err := mptcp.CongestionControl(conn); err != nil || got != cc {
		t.Errorf("the connection runs %q, want %s: %v", got, cc, err)
	}
}

// programs waits until there are so many struct_ops maps of this name, but for those that closing
// sockets of earlier tests may hold.
func programs(t *testing.T, name string, earlier []string, want int) {
	t.Helper()
	var ids []string
	if !eventually(untilFreed, func() bool {
		ids = slices.DeleteFunc(structOps(t)[name], func(id string) bool { return slices.Contains(earlier, id) })
		return len(ids) == want
	}) {
		t.Errorf("%d struct_ops maps called %s, want %d", len(ids), name, want)
	}
}

// Two narrow paths take four minutes for longTransfer, which leaves time for many commands, also in emulation, and on a kernel
// that watches itself: there they have taken two and a half. Once the paths are wide, the rest takes a few seconds.
const longTransfer = 60 << 20 // bytes

var (
	narrow = lab.Shape{Rate: 1e6, Delay: 10 * time.Millisecond, Queue: 10}
	wide   = lab.Shape{Rate: 50e6, Delay: 10 * time.Millisecond, Queue: 200}
)

func (n twoPaths) widen(t *testing.T) {
	t.Helper()
	for _, path := range n.paths {
		if err := path.Set(lab.AtoB, wide); err != nil {
			t.Fatal(err)
		}
	}
}

// The programs of a connection stay with it through switch and unload, while it goes on undisturbed.
func TestLifeUnderTraffic(t *testing.T) {
	untouched(t)
	earlier := structOps(t)["dts"]
	n := newTwoPaths(t, [2]lab.Shape{narrow, narrow})
	mpcc(t, "load", "dts")
	p := n.connect(t, "dts", "")
	x := p.transfer(longTransfer)
	p.join(t, 2)
	if !eventually(10*time.Second, func() bool { return len(readStatus(t).of(n.client)) == 2 }) {
		t.Fatal("status does not show two subflows of the client")
	}

	prints(t, `^dts: switched; live connections keep the programs they have\n$`, "switch", "dts")
	programs(t, "dts", earlier, 2)
	later := n.connect(t, "dts", "")
	later.stream()
	later.join(t, 2)
	prints(t, `^dts: unloaded; 4 live subflows keep its programs until they close\n$`, "unload", "dts")
	if err := n.client.Do(func() error {
		conn, err := mptcp.Dial(t.Context(), netip.AddrPortFrom(n.paths[0].Addr(n.server), 1), mptcp.Options{CC: "dts"})
		if err == nil {
			conn.Close()
		}
		return err
	}); err == nil || !strings.Contains(err.Error(), "not available") {
		t.Errorf("a connection under what is unloaded: %v", err)
	}
	programs(t, "dts", earlier, 2)
	runs(t, p.client, "dts")

	before := acked(t, n.client)
	if !eventually(10*time.Second, func() bool { return acked(t, n.client) > before }) {
		t.Error("the live state stands still after unload")
	}
	prints(t, `^nothing loaded\n`, "status")
	prints(t, `^dts: loaded\n$`, "load", "dts")
	prints(t, `^dts: unloaded; 4 live subflows`, "unload", "dts")

	later.close()
	programs(t, "dts", earlier, 1)
	select {
	case end := <-x.sent:
		t.Fatalf("the transfer ended while there was still something to try: %+v", end)
	default:
	}
	n.widen(t)
	x.wait(t)
	p.close()
	programs(t, "dts", earlier, 0)
	// Any later command of mpcc removes maps that are no longer in use.
	if out, err := exec.Command(os.Getenv("MPCC_BIN"), "unload", "dts").CombinedOutput(); err == nil {
		t.Errorf("unloaded twice: %s", out)
	}
}

func acked(t *testing.T, h *lab.Host) (bytes uint64) {
	t.Helper()
	for _, f := range readStatus(t).of(h) {
		bytes += f.BytesAcked
	}
	return bytes
}

// The default reaches connections that choose nothing, in namespaces other than the machine's too, and
// switch reaches the default.
func TestOneKernelDefaultOfNamespaces(t *testing.T) {
	untouched(t)
	earlier := structOps(t)["dts"]
	n := newTwoPaths(t, [2]lab.Shape{})
	hosts := []*lab.Host{n.client, n.server}
	mpcc(t, "load", "dts", "--default", "--netns", n.client.Namespace()+","+n.server.Namespace())
	// With the connection ends its listener, which holds programs too.
	t.Run("connection", func(t *testing.T) {
		p := n.connect(t, "", "")
		runs(t, p.client, "dts")
		runs(t, p.server, "dts")
		x := p.transfer(1 << 20)
		p.join(t, 2)
		x.wait(t)
		for _, h := range hosts {
			if flows := readStatus(t).of(h); len(flows) != 2 {
				t.Errorf("live state of %d subflows on %s, want 2", len(flows), h.Name())
			}
		}
		mpcc(t, "switch", "dts")
		programs(t, "dts", earlier, 2)
	})
	programs(t, "dts", earlier, 1)
	t.Run("unload", func(t *testing.T) {
		p := n.connect(t, "", "")
		runs(t, p.client, "dts")
		p.join(t, 2)
		out := string(mpcc(t, "unload", "dts"))
		for _, want := range []string{
			"dts: the default of network namespace " + n.client.Namespace() + " is reno again\n",
			"dts: the default of network namespace " + n.server.Namespace() + " is reno again\n",
			"dts: unloaded; 4 live subflows keep its programs until they close\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("unload printed %q, want %q", out, want)
			}
		}
		runs(t, n.connect(t, "", "").client, "reno")
	})
	// Whichever command is next removes the maps.
	if out, err := exec.Command(os.Getenv("MPCC_BIN"), "unload", "dts").CombinedOutput(); err == nil {
		t.Errorf("unloaded twice: %s", out)
	}
}

// While programs are replaced, the name is always listed, and sockets can always choose it.
func TestHostSwitchNeverLosesTheName(t *testing.T) {
	loaded.Turn(t)
	switchNeverLoses(t, "balia", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "balia")
	})
}

func TestOneKernelSchedulerSwitchNeverLosesTheName(t *testing.T) {
	withSchedulers(t)
	// The kernel looks the name up, as it does for a new connection.
	files, name := kindOf("sched/minrtt")
	switchNeverLoses(t, "sched/minrtt", func() error { return os.WriteFile(files.standard, []byte(name), 0) })
}

func switchNeverLoses(t *testing.T, id string, use func() error) {
	const leastSwitches, leastLooks = 3, 300
	untouched(t)
	files, name := kindOf(id)
	earlier := structOps(t)[name]
	mpcc(t, "load", id)
	ctx, stop := context.WithCancel(t.Context())
	var polls, uses atomic.Int64
	var group sync.WaitGroup
	poll := func(count *atomic.Int64, works func() error) {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := works(); err != nil {
					t.Error(err)
					return
				}
				count.Add(1)
				time.Sleep(100 * time.Microsecond) // leaves some of the processor to the switches
			}
		})
	}
	poll(&polls, func() error {
		names, err := os.ReadFile(files.available)
		if err == nil && !slices.Contains(strings.Fields(string(names)), name) {
			t.Errorf("offered are %s", names)
		}
		return err
	})
	poll(&uses, use)
	switches := 0
	for ; !t.Failed() && (switches < leastSwitches || min(polls.Load(), uses.Load()) < leastLooks); switches++ {
		mpcc(t, "switch", id)
	}
	stop()
	group.Wait()
	t.Logf("%d looks and %d uses during %d switches", polls.Load(), uses.Load(), switches)
	programs(t, name, earlier, 1)
	mpcc(t, "unload", id)
}

// Several at once, of the same and of different names: one link each, and no complaint.
func TestOneKernelLoadersAtOnce(t *testing.T) {
	untouched(t)
	names := []string{"dts", "lia", "olia", "dts", "lia", "olia"}
	var group sync.WaitGroup
	var loaded, made atomic.Int64
	for _, name := range names {
		group.Go(func() {
			out, err := exec.Command(os.Getenv("MPCC_BIN"), "load", name).CombinedOutput()
			text := string(out)
			if room, rest, first := strings.Cut(text, "\n"); strings.HasPrefix(room, "maps: room for ") && first {
				made.Add(1)
				text = rest
			}
			switch {
			case err != nil:
				t.Errorf("load %s: %v: %s", name, err, out)
			case text == name+": loaded\n":
				loaded.Add(1)
			case text != name+": was loaded already\n":
				t.Errorf("load %s printed %q", name, out)
			}
		})
	}
	group.Wait()
	if loaded.Load() != 3 || made.Load() != 1 {
		t.Errorf("%d commands say that they loaded and %d that they made the maps, want 3 and 1", loaded.Load(), made.Load())
	}
	links := 0
	for _, object := range bpftool(t, "link") {
		if object.Type == "struct_ops" {
			links++
		}
	}
	if links != 3 {
		t.Errorf("%d struct_ops links, want 3", links)
	}
	mpcc(t, "unload", "--all")
}

// The pin of a link that somebody has detached by force goes with the next command, whatever that is for, and the
// algorithm can be loaded again. Kernels before 6.11 detach no link of struct_ops.
func TestOneKernelDetachedByForce(t *testing.T) {
	untouched(t)
	const pin = "/sys/fs/bpf/mpcc/cc/lia"
	detach := func() {
		t.Helper()
		if out, err := exec.Command("bpftool", "link", "detach", "pinned", pin).CombinedOutput(); err != nil {
			t.Fatalf("bpftool: %v: %s", err, out)
		}
		if _, err := os.Stat(pin); err != nil {
			t.Fatalf("the pin is gone already: %v", err)
		}
	}
	mpcc(t, "load", "lia")
	detach()
	prints(t, `(^|\n)dts: loaded\n$`, "load", "dts")
	if _, err := os.Stat(pin); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after another load: %v", pin, err)
	}
	prints(t, `(^|\n)lia: loaded\n$`, "load", "lia")
	detach()
	prints(t, `(^|\n)lia: loaded\n$`, "load", "lia")
	detach()
	mpcc(t, "unload", "--all")
}

// A command that waits for another one ends at once when it is told to, and says for whom it has waited.
func TestHostWaitIsInterrupted(t *testing.T) {
	loaded.Turn(t)
	untouched(t)
	const path = "/run/mpcc/lock"
	lock, err := lockfile.Take(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	for word, signal := range map[string]syscall.Signal{"terminated": unix.SIGTERM, "interrupt": unix.SIGINT} {
		for _, command := range []string{"load dts", "switch dts", "unload dts", "unload --all", "energy unset lo"} {
			want := fmt.Sprintf(`^mpcc: %s is held by process %d \(.*\); waited \d+s for it: %s signal received\n$`, path, os.Getpid(), word)
			interruptedWaiting(t, path, signal, want, strings.Fields(command)...)
		}
	}
}

// interruptedWaiting sends mpcc a signal when it waits for a lock, and wants it to end at once with this complaint.
func interruptedWaiting(t *testing.T, lock string, signal syscall.Signal, want string, args ...string) {
	t.Helper()
	waits := opened(t, lock)
	var complaint bytes.Buffer
	cmd := exec.Command(os.Getenv("MPCC_BIN"), args...)
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waits(2) // once to try the lock, and again while it waits
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatalf("%q: it did not wait: %v: %s", args, err, complaint.String())
	}
	err := cmd.Wait() // which has not heard waits on, for a minute or for ever, and complains of something else
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || !regexp.MustCompile(want).MatchString(complaint.String()) {
		t.Errorf("%q: %v, %q, want %s", args, err, complaint.String(), want)
	}
}

// opened returns what waits until a file has been opened so many times from now on.
func opened(t *testing.T, path string) (wait func(times int)) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func(times int) {
		t.Helper()
		defer events.Close()
		if err := events.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		// The kernel counts those as one that nobody has read yet: it takes at least as many.
		for seen, buf := 0, make([]byte, unix.SizeofInotifyEvent); seen < times; seen++ {
			if _, err := events.Read(buf); err != nil {
				t.Fatalf("%s was opened %d times, want %d: %v", path, seen, times, err)
			}
		}
	}
}
