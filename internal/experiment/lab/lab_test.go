// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/test/nobody"
)

// buildThenWait makes this test program build a lab, print its id and wait to
// be killed.
const buildThenWait = "NETLAB_TEST_BUILD_THEN_WAIT"

// The first thread of a process never ends: tests must not run on it, because
// some look at what happens to a command when the thread that started it ends.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if os.Getenv(buildThenWait) == "" {
		os.Exit(m.Run())
	}
	l, err := lab.New()
	if err != nil {
		panic(err)
	}
	var hosts []*lab.Host
	for _, name := range []string{"a", "b"} {
		h, err := l.Host(name)
		if err != nil {
			panic(err)
		}
		hosts = append(hosts, h)
	}
	if _, err := l.Link(hosts[0], hosts[1], lab.LinkOpts{AtoB: lab.Shape{Rate: 1e6}}); err != nil {
		panic(err)
	}
	child := hosts[0].Command(context.Background(), "sleep", "1000")
	if err := child.Start(); err != nil {
		panic(err)
	}
	fmt.Println(l.ID(), child.Process.Pid)
	time.Sleep(time.Hour)
}

// newLab makes a lab that leaves nothing behind when the test ends.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left := traces(t, l.ID()); len(left) > 0 {
			t.Errorf("left after Close: %v", left)
		}
	})
	return l
}

// traces are the files that the lab has on this machine.
func traces(t *testing.T, id string) []string {
	t.Helper()
	names, err := filepath.Glob("/run/netns/mpcc-" + id + "-*")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := filepath.Glob("/run/mpcc/lab/" + id)
	if err != nil {
		t.Fatal(err)
	}
	return append(names, entry...)
}

func addHost(t *testing.T, l *lab.Lab, name string) *lab.Host {
	t.Helper()
	h, err := l.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func addRouter(t *testing.T, l *lab.Lab, name string) *lab.Host {
	t.Helper()
	h, err := l.Router(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func addLink(t *testing.T, l *lab.Lab, a, b *lab.Host, o lab.LinkOpts) *lab.Link {
	t.Helper()
	link, err := l.Link(a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// exchange sends a datagram from one address to another and an answer back.
func exchange(from, to *lab.Host, src, dst netip.Addr) error {
	var server, client *net.UDPConn
	err := to.Do(func() (err error) {
		server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 0)))
		return err
	})
	if err != nil {
		return err
	}
	defer server.Close()
	err = from.Do(func() (err error) {
		client, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0)), server.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		return err
	}
	defer client.Close()
	deadline := time.Now().Add(time.Minute)
	if err := errors.Join(server.SetDeadline(deadline), client.SetDeadline(deadline)); err != nil {
		return err
	}
	if _, err := client.Write([]byte("there")); err != nil {
		return err
	}
	buf := make([]byte, 16)
	n, back, err := server.ReadFromUDPAddrPort(buf)
	if err != nil {
		return fmt.Errorf("on the way there: %w", err)
	}
	if _, err := server.WriteToUDPAddrPort(buf[:n], back); err != nil {
		return err
	}
	if _, err := client.Read(buf); err != nil {
		return fmt.Errorf("on the way back: %w", err)
	}
	return nil
}

func TestSweepAfterKill(t *testing.T) {
	living := newLab(t)
	bystander := addHost(t, living, "bystander")

	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), buildThenWait+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var id string
	var child int
	if err == nil {
		_, err = fmt.Sscan(line, &id, &child)
	}
	if err != nil {
		t.Fatalf("the process that builds a lab printed %q: %v", line, err)
	}

	// While its owner lives a lab is left alone.
	if removed, err := lab.Sweep(); err != nil || len(removed) > 0 {
		t.Errorf("Sweep removed %v of a lab whose owner lives, %v", removed, err)
	}
	if got := traces(t, id); len(got) != 3 {
		t.Errorf("the living lab has %v, want two namespaces and an entry", got)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	if got := traces(t, id); len(got) != 3 {
		t.Fatalf("the killed lab has %v: nothing to sweep", got)
	}
	removed, err := lab.Sweep()
	if err != nil {
		t.Error(err)
	}
	slices.Sort(removed)
	if want := []string{"mpcc-" + id + "-a", "mpcc-" + id + "-b"}; !slices.Equal(removed, want) {
		t.Errorf("Sweep removed %v, want %v", removed, want)
	}
	if left := traces(t, id); len(left) > 0 {
		t.Errorf("left after Sweep: %v", left)
	}
	gone(t, child)
	if err := bystander.Do(func() error { return nil }); err != nil {
		t.Errorf("the lab of this process after Sweep: %v", err)
	}
	if got := traces(t, living.ID()); len(got) != 2 {
		t.Errorf("the lab of this process has %v after Sweep", got)
	}
}

// User nobody must not be able to lock a lab's entry: Sweep would take its owner for alive.
func TestEntryIsNotForNobody(t *testing.T) {
	nobody.CannotLock(t, "/run/mpcc/lab/"+newLab(t).ID())
}

// gone waits for a process to be dead.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 6000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

func TestSideBySide(t *testing.T) {
	first, second := newLab(t), newLab(t)
	type pair struct {
		a, b *lab.Host
		link *lab.Link
	}
	var pairs []pair
	for _, l := range []*lab.Lab{first, second} {
		p := pair{a: addHost(t, l, "a"), b: addHost(t, l, "b")}
		p.link = addLink(t, l, p.a, p.b, lab.LinkOpts{})
		pairs = append(pairs, p)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	p := pairs[1]
	if err := exchange(p.a, p.b, p.link.Addr(p.a), p.link.Addr(p.b)); err != nil {
		t.Errorf("the second lab after the first closed: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("Close, the second time: %v", err)
	}
}

func TestCloseAfterFailure(t *testing.T) {
	l := newLab(t)
	a, b := addHost(t, l, "a"), addHost(t, l, "b")
	addLink(t, l, a, b, lab.LinkOpts{Name: "wlan0"})
	for text, err := range map[string]error{
		`a host named "a" is already there`:     second(l.Host("a")),
		`host name "no/slash"`:                  second(l.Host("no/slash")),
		"make the veth pair wlan0: file exists": second(l.Link(a, b, lab.LinkOpts{Name: "wlan0"})),
		"needs two hosts":                       second(l.Link(a, a, lab.LinkOpts{})),
		"rate 100 bit/s: use 0 for unlimited":   second(l.Link(a, b, lab.LinkOpts{AtoB: lab.Shape{Rate: 100}})),
		"RED from 9 to 5 packets":               second(l.Link(a, b, lab.LinkOpts{AtoB: lab.Shape{Rate: 1e6, RED: &lab.RED{Min: 9, Max: 5, Prob: 0.1}}})),
		"more than one of a queue in packets":   second(l.Link(a, b, lab.LinkOpts{AtoB: lab.Shape{Rate: 1e6, Queue: 9, QueueBytes: 9000}})),
		"queue 5 without a rate":                second(l.Link(a, b, lab.LinkOpts{BtoA: lab.Shape{Queue: 5}})),
		"loss 101 %: use 0 to 100":              second(l.Link(a, b, lab.LinkOpts{AtoB: lab.Shape{Loss: 101}})),
		"delay 5s: use 0 to 4s":                 second(l.Link(a, b, lab.LinkOpts{AtoB: lab.Shape{Delay: 5 * time.Second}})),
		"reorder without jitter":                second(l.Link(a, b, lab.LinkOpts{AtoB: lab.Shape{Reorder: true}})),
		"jitter 1ms: use 0 to the delay":        second(l.Link(a, b, lab.LinkOpts{AtoB: lab.Shape{Jitter: time.Millisecond}})),
		"lab: a: set net.nosuch=1":              a.Sysctl("net.nosuch", "1"),
		"ip mptcp limits set subflows 99":       a.MPTCP(lab.MPTCPLimits{Subflows: 99}),
	} {
		if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, want one line with %q", err, text)
		}
	}
	// newLab's cleanup sees to it that Close removes the rest.
}

func second[T any](_ T, err error) error { return err }

func TestDoComesBack(t *testing.T) {
	l := newLab(t)
	a, b := addHost(t, l, "a"), addHost(t, l, "b")
	home := here(t)
	inside := map[uint64]bool{}
	for range 100 {
		for _, h := range []*lab.Host{a, b} {
			err := h.Do(func() error {
				inside[here(t)] = true
				return b.Do(func() error { inside[here(t)] = true; return nil })
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		runtime.Gosched()
		if now := here(t); now != home {
			t.Fatalf("in %d after Do, home is %d", now, home)
		}
	}
	if len(inside) != 2 || inside[home] {
		t.Errorf("two hosts gave the namespaces %v", inside)
	}

	boom := errors.New("boom")
	if err := a.Do(func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("Do returned %v", err)
	}
	if err := a.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("Do returned nil for a function that ended its goroutine")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Do(func() error { return nil }); err == nil {
		t.Error("Do worked in a closed lab")
	}
}

// here is the present thread's namespace.
func here(t *testing.T) uint64 {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	return ns.Inode
}

func TestCommand(t *testing.T) {
	l := newLab(t)
	a, b := addHost(t, l, "a"), addHost(t, l, "b")
	addLink(t, l, a, b, lab.LinkOpts{Name: "wlan0"})
	for name, run := range map[string]func(*lab.Cmd) ([]byte, error){
		"Output":         (*lab.Cmd).Output,
		"CombinedOutput": (*lab.Cmd).CombinedOutput,
		"Run": func(c *lab.Cmd) ([]byte, error) {
			var out strings.Builder
			c.Stdout = &out
			err := c.Run()
			return []byte(out.String()), err
		},
	} {
		out, err := run(a.Command(t.Context(), "cat", "/proc/self/net/dev"))
		if err != nil || !strings.Contains(string(out), "wlan0:") {
			t.Errorf("%s: %v, and it saw the interfaces %s", name, err, out)
		}
	}

	cmd := a.Command(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	err := cmd.Wait()
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("a command outlived its lab: %v", err)
	}
}

// A command lives on when the thread that started it would have ended, on whose
// end the kernel would kill it.
func TestCommandOutlivesItsThread(t *testing.T) {
	l := newLab(t)
	cmd := addHost(t, l, "a").Command(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	endIdleThreads()
	time.Sleep(300 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it did not live until it was told to end: %v", err)
	}
}

// endIdleThreads ends all threads of this process that no goroutine holds.
func endIdleThreads() {
	const threads = 64 // more than there are
	var locked, ended sync.WaitGroup
	locked.Add(threads)
	all := make(chan struct{})
	for range threads {
		ended.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
			locked.Done()
			<-all
		})
	}
	locked.Wait()
	close(all)
	ended.Wait()
}

func TestHas(t *testing.T) {
	if err := lab.Has("tbf"); err != nil {
		t.Error(err)
	}
	if err := lab.Has("nosuch"); err == nil || err.Error() != "this kernel has no sch_nosuch" {
		t.Errorf("error %v", err)
	}
}

// A delay takes netem: a link has it exactly where Has finds netem.
func TestDelayTakesNetem(t *testing.T) {
	l := newLab(t)
	a, b := addHost(t, l, "a"), addHost(t, l, "b")
	link := addLink(t, l, a, b, lab.LinkOpts{
		AtoB: lab.Shape{Rate: 10e6, Delay: 20 * time.Millisecond, Jitter: time.Millisecond},
		BtoA: lab.Shape{Rate: 10e6},
	})
	took := time.Hour
	for range 20 { // each of which a busy machine may delay as well
		start := time.Now()
		if err := exchange(a, b, link.Addr(a), link.Addr(b)); err != nil {
			t.Fatal(err)
		}
		took = min(took, time.Since(start))
	}
	if err := lab.Has("netem"); (err == nil) != (took >= 19*time.Millisecond) {
		t.Errorf("an exchange took %v; netem: %v", took, err)
	}
}
