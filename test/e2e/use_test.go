// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/cgroups"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// newCgroup makes a cgroup until the test ends, and returns what runs a function while this process is in it.
func newCgroup(t *testing.T, path string) (in func(f func())) {
	t.Helper()
	root, err := cgroups.Find("/")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root.Dir, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	enter := func(dir string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return func(f func()) {
		t.Helper()
		enter(dir)
		defer enter(root.Dir)
		f()
	}
}

// connectFrom connects the client with the server, each socket made where its function runs.
func (n twoPaths) connectFrom(t *testing.T, inClient, inServer func(func()), o mptcp.Options, serverCC string) pair {
	t.Helper()
	return connectFrom(t, inClient, inServer, n.client, n.server, n.paths[0].Addr(n.server), o, serverCC)
}

// controls waits until a host's subflows of a connection run these congestion controls.
func controls(t *testing.T, h *lab.Host, conn *net.TCPConn, want ...string) {
	t.Helper()
	info, err := mptcp.ReadInfo(conn)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if !eventually(10*time.Second, func() bool {
		got = nil
		for _, s := range sockets(t, h) {
			if s.Token == info.Token {
				got = append(got, s.CC)
			}
		}
		return slices.Equal(got, want)
	}) {
		t.Errorf("%s: the subflows run %q, want %q", h.Name(), got, want)
	}
}

// A cgroup's choice reaches both ends of connections, subflows that join later too, but none that live already.
// An application's own choice goes before it, and of groups within each other that of the inner one.
func TestOneKernelUseInCgroup(t *testing.T) {
	untouched(t)
	n := newTwoPaths(t, [2]lab.Shape{})
	inGroup, inInner, inOther := newCgroup(t, "mpcc-use"), newCgroup(t, "mpcc-use/inner"), newCgroup(t, "mpcc-use/other")
	load(t, "dts", "lia")
	standard := "reno" // of the lab's namespaces
	second := n.paths[1].Addr(n.server)
	announce(t, n.server, netip.Addr{})
	older := n.connectFrom(t, inGroup, inGroup, mptcp.Options{}, "")
	prints(t, `^dts: used in cgroup mpcc-use by what connects from now on\n$`, "use", "dts", "--cgroup", "/mpcc-use")
	prints(t, `^dts: was used in cgroup mpcc-use already\n$`, "use", "dts", "--cgroup", "mpcc-use")

	t.Run("older", func(t *testing.T) {
		announce(t, n.server, second)
		older.join(t, 2)
		controls(t, n.client, older.client, standard, standard)
		controls(t, n.server, older.server, standard, standard)
	})
	t.Run("client", func(t *testing.T) {
		p := n.connectFrom(t, inGroup, anywhere, mptcp.Options{}, "")
		p.join(t, 2)
		controls(t, n.client, p.client, "dts", "dts")
		controls(t, n.server, p.server, standard, standard)
	})
	t.Run("server", func(t *testing.T) {
		// While the server sends, the kernel gives a subflow that joins the connection's own control at any moment.
		for range 30 {
			p := n.connectFrom(t, anywhere, inGroup, mptcp.Options{}, "")
			p.reverse().stream()
			p.join(t, 2)
			controls(t, n.client, p.client, standard, standard)
			controls(t, n.server, p.server, "dts", "dts")
			p.close()
		}
	})
	t.Run("chosen before", func(t *testing.T) {
		p := n.connectFrom(t, inGroup, inGroup, mptcp.Options{CC: "lia"}, "lia")
		p.join(t, 2)
		controls(t, n.client, p.client, "lia", "lia")
		controls(t, n.server, p.server, "lia", "lia")
	})
	t.Run("plain", func(t *testing.T) {
		p := n.connectFrom(t, inGroup, inGroup, mptcp.Options{TCP: true}, "")
		runs(t, p.client, standard)
		runs(t, p.server, standard)
	})
	t.Run("chosen afterwards", func(t *testing.T) {
		announce(t, n.server, netip.Addr{})
		p := n.connectFrom(t, inGroup, inGroup, mptcp.Options{}, "")
		for _, conn := range []*net.TCPConn{p.client, p.server} {
			if err := mptcp.Apply(conn, mptcp.Options{CC: "lia"}); err != nil {
				t.Fatal(err)
			}
		}
		announce(t, n.server, second)
		p.join(t, 2)
		controls(t, n.client, p.client, "lia", "lia")
		controls(t, n.server, p.server, "lia", "lia")
	})
	t.Run("nested", func(t *testing.T) {
		mpcc(t, "use", "lia", "--cgroup", "mpcc-use/inner")
		prints(t, `(?m)^lia +cgroup mpcc-use/inner +-$`, "use")
		p := n.connectFrom(t, inInner, inOther, mptcp.Options{}, "")
		p.join(t, 2)
		controls(t, n.client, p.client, "lia", "lia")
		controls(t, n.server, p.server, "dts", "dts")
		prints(t, `^lia: no longer used in cgroup mpcc-use/inner\n$`, "use", "--remove", "--cgroup", "mpcc-use/inner")
	})
	t.Run("replaced", func(t *testing.T) {
		mpcc(t, "use", "lia", "--cgroup", "mpcc-use")
		prints(t, `^WHAT +WHERE +WAS\nlia +cgroup mpcc-use +-\n$`, "use")
		p := n.connectFrom(t, inOther, anywhere, mptcp.Options{}, "")
		p.join(t, 2)
		controls(t, n.client, p.client, "lia", "lia")
		mpcc(t, "use", "dts", "--cgroup", "mpcc-use")
	})
	t.Run("unloaded", func(t *testing.T) {
		prints(t, `(?m)^dts: no longer used in cgroup mpcc-use$`, "unload", "dts")
		prints(t, `^nothing is used `, "use")
		p := n.connectFrom(t, inGroup, inGroup, mptcp.Options{}, "")
		p.join(t, 2)
		controls(t, n.client, p.client, standard, standard)
		controls(t, n.server, p.server, standard, standard)
	})
}

// Connections to some addresses get a choice at either end, on all their subflows, wherever later ones go: that of the
// longest prefix, then that for the interface, in the namespace that it is for. A cgroup's choice goes before it.
func TestOneKernelUseForDestinations(t *testing.T) {
	untouched(t)
	n := newTwoPaths(t, [2]lab.Shape{})
	inGroup := newCgroup(t, "mpcc-use")
	load(t, "dts", "lia")
	standard := "reno" // of the lab's namespaces
	server, client := n.paths[0].Addr(n.server), n.paths[0].Addr(n.client)
	dev := n.paths[0].Interface(n.client)
	use := func(name string, to netip.Addr, bits int, h *lab.Host, flags ...string) {
		t.Helper()
		prefix := netip.PrefixFrom(to, bits).Masked().String()
		mpcc(t, append([]string{"use", name, "--to", prefix, "--netns", h.Namespace()}, flags...)...)
	}
	check := func(in func(func()), o mptcp.Options, atClient, atServer string) {
		t.Helper()
		p := n.connectFrom(t, in, anywhere, o, "")
		p.join(t, 2)
		controls(t, n.client, p.client, atClient, atClient)
		controls(t, n.server, p.server, atServer, atServer)
	}
	use("lia", server, 31, n.client)
	use("dts", server, 8, n.client)
	check(anywhere, mptcp.Options{}, "lia", standard)
	use("dts", server, 31, n.client, "--dev", dev)
	use("lia", server, 31, n.client, "--dev", "lo")
	check(anywhere, mptcp.Options{}, "dts", standard)
	check(anywhere, mptcp.Options{CC: "lia"}, "lia", standard)
	mpcc(t, "use", "lia", "--cgroup", "mpcc-use")
	check(inGroup, mptcp.Options{}, "lia", standard)
	mpcc(t, "use", "lia", "--cgroup", "/")
	check(anywhere, mptcp.Options{}, "dts", "lia")
	mpcc(t, "use", "--remove", "all")

	// What a listener accepts goes to the client's address. A prefix of IPv6 is for no IPv4 address.
	use("dts", client, 32, n.server)
	use("lia", netip.IPv6Unspecified(), 0, n.client)
	use("lia", server.Next().Next(), 32, n.client)
	check(anywhere, mptcp.Options{}, standard, "dts")
	prints(t, `(?m)^dts +connections to `+client.String()+`/32 in network namespace `+n.server.Namespace()+` +-$`, "use")
	prints(t, `(?m)^dts: no longer used for connections to `+client.String()+`/32 in network namespace `+n.server.Namespace()+`$`,
		"use", "--remove", "--to", client.String(), "--netns", n.server.Namespace())
	check(anywhere, mptcp.Options{}, standard, standard)
}

// newSocketsProtocol makes a socket, and returns which protocol the kernel has given it.
func newSocketsProtocol(family, kind, protocol int) (int, error) {
	fd, err := unix.Socket(family, kind, protocol)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
}

// Programs in a cgroup get MPTCP sockets in place of TCP ones without a change to them, but not where MPTCP is
// turned off, which would refuse them; all other sockets stay what they are.
func TestOneKernelUseMultipath(t *testing.T) {
	untouched(t)
	n := newTwoPaths(t, [2]lab.Shape{})
	inGroup, inOther := newCgroup(t, "mpcc-use"), newCgroup(t, "mpcc-other")
	for _, group := range []string{"mpcc-other", "mpcc-use"} {
		prints(t, `^mptcp: used in cgroup `+group+` by `, "use", "--multipath", "--cgroup", group)
	}
	t.Cleanup(func() { mpcc(t, "use", "--remove", "all") })
	prints(t, `^mptcp: no longer used in cgroup mpcc-other\n$`, "use", "--remove", "--cgroup", "mpcc-other")

	protocol := func(h *lab.Host, family, kind, protocol int) (got int) {
		t.Helper()
		err := h.Do(func() (err error) {
			got, err = newSocketsProtocol(family, kind, protocol)
			return err
		})
		if err != nil {
			t.Errorf("socket(%d, %#x, %d): %v", family, kind, protocol, err)
		}
		return got
	}
	const stream = unix.SOCK_STREAM
	for _, c := range []struct {
		in                            func(func())
		family, kind, protocol, given int
	}{
		{inGroup, unix.AF_INET, stream, 0, unix.IPPROTO_MPTCP},
		{inGroup, unix.AF_INET6, stream | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP, unix.IPPROTO_MPTCP},
		{inGroup, unix.AF_INET, unix.SOCK_DGRAM, 0, unix.IPPROTO_UDP},
		{inGroup, unix.AF_UNIX, stream, 0, 0},
		{inOther, unix.AF_INET, stream, 0, unix.IPPROTO_TCP},
		{anywhere, unix.AF_INET, stream, unix.IPPROTO_TCP, unix.IPPROTO_TCP},
	} {
		c.in(func() {
			if got := protocol(n.client, c.family, c.kind, c.protocol); got != c.given {
				t.Errorf("socket(%d, %#x, %d) is one of protocol %d, want %d", c.family, c.kind, c.protocol, got, c.given)
			}
		})
	}
	if err := n.server.Sysctl("net.mptcp.enabled", "0"); err != nil {
		t.Fatal(err)
	}
	inGroup(func() {
		if got := protocol(n.server, unix.AF_INET, stream, 0); got != unix.IPPROTO_TCP {
			t.Errorf("with MPTCP turned off: a socket of protocol %d", got)
		}
	})
	if err := n.server.Sysctl("net.mptcp.enabled", "1"); err != nil {
		t.Fatal(err)
	}

	// A program that knows nothing of MPTCP.
	var listener *mptcp.Listener
	if err := n.server.Do(func() (err error) {
		listener, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dial := func(in func(func())) (multipath bool) {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		addr := n.paths[0].Addr(n.server)
		script := "exec 3<>/dev/tcp/" + addr.String() + "/" + strconv.Itoa(int(listener.Addr().Port())) + "; sleep 60"
		bash := n.client.Command(ctx, "bash", "-c", script)
		in(func() {
			if err := bash.Start(); err != nil {
				t.Fatal(err)
			}
		})
		conn, err := listener.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		multipath, err = conn.MultipathTCP()
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Error(err)
		}
		end()
		if bash.Wait() == nil {
			t.Error("bash has ended before it was stopped")
		}
		return multipath
	}
	if !dial(inGroup) {
		t.Error("bash has no MPTCP connection in the group")
	}
	if dial(anywhere) {
		t.Error("bash has an MPTCP connection outside the group")
	}
}

// mpcc use --remove returns after the use has ended. While another program holds the BPF link of the use, the command waits,
// half a minute at most.
func TestOneKernelUseHeld(t *testing.T) {
	untouched(t)
	inGroup := newCgroup(t, "mpcc-use")
	group, err := cgroups.Find("mpcc-use")
	if err != nil {
		t.Fatal(err)
	}
	pin := "/sys/fs/bpf/mpcc/use/mptcp-" + strconv.FormatUint(group.ID, 10)
	remove := func() (other link.Link, said <-chan string) {
		t.Helper()
		mpcc(t, "use", "--multipath", "--cgroup", "mpcc-use")
		other, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan string, 1)
		go func() {
			out, _ := exec.Command(os.Getenv("MPCC_BIN"), "use", "--remove", "--cgroup", "mpcc-use").CombinedOutput()
			ended <- string(out)
		}()
		if !eventually(time.Minute, func() bool { _, err := os.Stat(pin); return errors.Is(err, fs.ErrNotExist) }) {
			t.Fatal("the pin stays")
		}
		return other, ended
	}
	protocol := func() (got int) {
		t.Helper()
		inGroup(func() {
			if got, err = newSocketsProtocol(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
				t.Fatal(err)
			}
		})
		return got
	}

	other, ended := remove()
	select {
	case said := <-ended:
		t.Fatalf("the command ended while another program held the link (%v), and said %q", other.Close(), said)
	case <-time.After(time.Second):
	}
	if got := protocol(); got != unix.IPPROTO_MPTCP {
		t.Errorf("a held link: a socket of protocol %d", got)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if said, want := <-ended, "mptcp: no longer used in cgroup mpcc-use\n"; said != want {
		t.Errorf("the command said %q, want %q", said, want)
	}
	if got := protocol(); got != unix.IPPROTO_TCP {
		t.Errorf("after the command: a socket of protocol %d", got)
	}

	other, ended = remove()
	want := regexp.MustCompile(`^mpcc: ` + pin + ` is removed, but what it stands for goes on: another program holds its link; ` +
		`bpftool link show id \d+ names it\n$`)
	if said := <-ended; !want.MatchString(said) {
		t.Errorf("the command said %q, want %s", said, want)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
}

// The connections that a process has open change at once and altogether, and later ones do not.
func TestOneKernelUseForProcesses(t *testing.T) {
	untouched(t)
	n := newTwoPaths(t, [2]lab.Shape{})
	load(t, "dts")
	p := n.connect(t, "", "")
	plain := connect(t, n.client, n.server, n.paths[0].Addr(n.server), mptcp.Options{TCP: true}, "")
	p.join(t, 2)
	controls(t, n.client, p.client, "reno", "reno")
	x := p.transfer(1 << 20)
	self := strconv.Itoa(os.Getpid())
	prints(t, `^dts: set on 2 MPTCP and 2 TCP connections\n$`, "use", "dts", "--pid", self+","+self)
	x.wait(t)
	controls(t, n.client, p.client, "dts", "dts")
	controls(t, n.server, p.server, "dts", "dts")
	runs(t, plain.client, "cubic") // to which dts leaves what is not multipath
	later := n.connect(t, "", "")
	later.join(t, 2)
	controls(t, n.client, later.client, "reno", "reno")
	controls(t, n.server, later.server, "reno", "reno")
	if out := string(mpcc(t, "use")); !strings.HasPrefix(out, "nothing is used") {
		t.Errorf("use lists %q", out)
	}
}

// A packet scheduler is used in a namespace, beside a congestion control, until both are given back.
func TestOneKernelUseScheduler(t *testing.T) {
	l := newLab(t)
	h := addHost(t, l, "host")
	load(t, "dts", "minrtt")
	settings := func() (all [2]string) {
		t.Helper()
		err := h.Do(func() error {
			for i, path := range []string{"net/ipv4/tcp_congestion_control", "net/mptcp/scheduler"} {
				text, err := os.ReadFile("/proc/sys/" + path)
				if err != nil {
					return err
				}
				all[i] = strings.TrimSpace(string(text))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := settings()
	mpcc(t, "use", "dts", "--sched", "minrtt", "--netns", h.Namespace())
	if got := settings(); got != ([2]string{"dts", "minrtt"}) {
		t.Errorf("the namespace has %q", got)
	}
	prints(t, `(?m)^minrtt +network namespace `+h.Namespace()+` +default$`, "use")
	mpcc(t, "use", "--remove", "--netns", h.Namespace())
	if got := settings(); got != before {
		t.Errorf("the namespace has %q, before %q", got, before)
	}
}
