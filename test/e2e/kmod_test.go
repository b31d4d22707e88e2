// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// A warning that the kernel prints on its console fails the whole run: see internal/vm.

// memoryUse is the memory that must be free again when schedulers, their connections and the module are gone.
func memoryUse(t *testing.T) map[string]int {
	t.Helper()
	use := map[string]int{}
	count := func(kind string, next func(uint32) (uint32, error)) {
		id, err := next(0)
		for ; err == nil; id, err = next(id) {
			use[kind]++
		}
		if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	count("BPF maps", func(id uint32) (uint32, error) {
		next, err := ebpf.MapGetNextID(ebpf.MapID(id))
		return uint32(next), err
	})
	count("BPF programs", func(id uint32) (uint32, error) {
		next, err := ebpf.ProgramGetNextID(ebpf.ProgramID(id))
		return uint32(next), err
	})
	// Sockets, whose slabs count what is free on a CPU as used until they are shrunk.
	sockets := []string{"MPTCP", "request_sock_subflow_v4"}
	for _, name := range sockets {
		if err := os.WriteFile("/sys/kernel/slab/"+name+"/shrink", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	slabs, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(slabs)) {
		words := strings.Fields(line)
		if slices.Contains(sockets, words[0]) {
			if use[words[0]], err = strconv.Atoi(words[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range sockets {
		if _, ok := use[name]; !ok {
			t.Fatalf("the kernel does not count %s in /proc/slabinfo", name)
		}
	}
	// Memory for programs, maps and trampolines is mapped by these.
	areas, err := os.ReadFile("/proc/vmallocinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(areas)) {
		for _, of := range []string{"bpf_map_area_alloc", "bpf_prog_alloc", "bpf_struct_ops"} {
			if strings.Contains(line, of) {
				use[of]++
			}
		}
	}
	return use
}

// settledMemory is the memory in use when no closing socket of an earlier connection holds any, nor a program,
// and the kernel frees none any more: it does so a while after a program has gone.
func settledMemory(t *testing.T) (use map[string]int) {
	t.Helper()
	const still = 5 * time.Second
	var since time.Time
	if !eventually(90*time.Second, func() bool {
		now := memoryUse(t)
		if !maps.Equal(now, use) {
			use, since = now, time.Now()
		}
		return use["MPTCP"]+use["BPF maps"]+use["BPF programs"] == 0 && time.Since(since) > still
	}) {
		t.Fatalf("90 s after the last test sockets, maps or programs are still there, or come and go: %v", use)
	}
	return use
}

// sameMemory waits until the memory in use is as before; the kernel lets some of it go later.
func sameMemory(t *testing.T, before map[string]int) {
	t.Helper()
	var diff string
	if !eventually(90*time.Second, func() bool {
		diff = cmp.Diff(before, memoryUse(t))
		return diff == ""
	}) {
		t.Errorf("memory in use before (-) and after (+):\n%s", diff)
	}
}

// schedule has new connections of the hosts run under a scheduler.
func schedule(t *testing.T, name string, hosts ...*lab.Host) {
	t.Helper()
	for _, h := range hosts {
		if err := h.Sysctl("net.mptcp.scheduler", name); err != nil {
			t.Fatal(err)
		}
	}
}

// rmmodRefused wants the kernel to keep the module because it is in use.
func rmmodRefused(t *testing.T) {
	t.Helper()
	out, err := exec.Command("rmmod", module).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is in use") {
		t.Fatalf("rmmod %s while it is in use: %v, %s", module, err, out)
	}
}

//go:embed simplest.o
var simplestObject []byte

// loadSimplest parses the scheduler of test/e2e/bpf.
func loadSimplest() (*ebpf.CollectionSpec, error) {
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(simplestObject))
}

// attachSimplest attaches a scheduler directly, without mpcc.
func attachSimplest() (detach func(), err error) {
	spec, err := loadSimplest()
	if err != nil {
		return nil, err
	}
	return attachTable(spec, "simplest")
}

func attachScheduler(t *testing.T) (detach func()) {
	t.Helper()
	detach, err := attachSimplest()
	if err != nil {
		t.Fatal(err)
	}
	return detach
}

// The module comes and goes thirty times, each time with a scheduler, a connection and its data.
func TestModuleRounds(t *testing.T) {
	const rounds = 30
	n := newTwoPaths(t, [2]lab.Shape{})
	round := func() {
		must(t, "modprobe", module)
		detach := attachScheduler(t)
		schedule(t, "simplest", n.client) // not at the server, whose listener would hold it
		p := n.connect(t, "", "")
		p.transfer(128 << 10).wait(t)
		schedule(t, "default", n.client)
		detach()
		rmmodRefused(t) // the connection has it
		p.close()
		withoutSchedulers(t)
	}
	round() // caches fill up
	before := settledMemory(t)
	for range rounds - 1 {
		round()
	}
	sameMemory(t, before)
}

// attacher is the name under which the test binary attaches a scheduler, says so, and waits for its end.
const attacher = "attacher"

// attached keeps the attacher's link from the garbage collector, which would close it.
var attached func()

func init() {
	if os.Args[0] != attacher {
		return
	}
	var err error
	if attached, err = attachSimplest(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("attached")
	time.Sleep(time.Hour) // not select{}, which the runtime would take for a deadlock
}

// A loader that pins nothing is killed under traffic: its scheduler's name is gone, new connections have the
// kernel's own, and live ones go on under theirs and hold the module.
func TestModuleOutlivesLoader(t *testing.T) {
	before := settledMemory(t)
	t.Cleanup(func() { sameMemory(t, before) }) // when the listeners are closed too
	withSchedulers(t)
	other := exec.Command("/proc/self/exe")
	other.Args = []string{attacher}
	other.Stderr = os.Stderr
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "attached\n" {
		t.Fatalf("the loader says %q, %v", line, err)
	}
	n := newTwoPaths(t, [2]lab.Shape{{Rate: 10e6}, {Rate: 10e6}})
	for _, h := range []*lab.Host{n.client, n.server} {
		// A connection closed with data on its way stays for so many seconds.
		if err := h.Sysctl("net.mptcp.close_timeout", "1"); err != nil {
			t.Fatal(err)
		}
	}
	schedule(t, "simplest", n.client)
	p := n.connect(t, "", "")
	p.stream()
	p.join(t, 2)
	rmmodRefused(t)

	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // says that it was killed
	if !eventually(5*time.Second, func() bool { return !available(t, "simplest") }) {
		t.Error("the name is still there 5 s after its loader was killed")
	}
	rmmodRefused(t)
	moved := p.received.Load()
	if !eventually(5*time.Second, func() bool { return p.received.Load() > moved+1<<20 }) {
		t.Errorf("the connection moved %d bytes in 5 s after the loader was killed, want 1 MiB", p.received.Load()-moved)
	}
	later := n.connect(t, "", "")
	later.transfer(64 << 10).wait(t)
	later.close()
	rmmodRefused(t)
	p.close()
	withoutSchedulers(t)
}

// available tells whether the kernel has a scheduler of this name.
func available(t *testing.T, name string) bool {
	t.Helper()
	names, err := os.ReadFile("/proc/sys/net/mptcp/available_schedulers")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range strings.Fields(string(names)) {
		if n == name {
			return true
		}
	}
	return false
}

// A thousand short connections, both ends under a scheduler, while packets are lost and the second path's
// address comes and goes, and with it everyone's second subflow.
//
//	        ┌── 2 ms, 2 % lost ──┐
//	client ─┤                    ├─ server
//	        └── 2 ms, 2 % lost ──┘
func TestModuleChurn(t *testing.T) {
	const (
		connections = 1000
		atOnce      = 20
		bytes       = 20 << 10
	)
	before := settledMemory(t)
	withSchedulers(t)
	detach := attachScheduler(t)
	shape := lab.Shape{Delay: 2 * time.Millisecond, Loss: 2}
	n := newTwoPaths(t, [2]lab.Shape{shape, shape})
	schedule(t, "simplest", n.client, n.server)

	var ln *mptcp.Listener
	if err := n.server.Do(func() (err error) {
		ln, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept(t.Context())
			if err != nil {
				return
			}
			serving.Go(func() { defer conn.Close(); _, _ = io.Copy(conn, conn) })
		}
	})

	var left, second atomic.Int64
	left.Store(connections)
	failed := make(chan error, connections)
	var clients sync.WaitGroup
	addr := netip.AddrPortFrom(n.paths[0].Addr(n.server), ln.Addr().Port())
	for range atOnce {
		clients.Go(func() {
			_ = n.client.Do(func() error {
				for left.Add(-1) >= 0 {
					subflows, err := exchange(t.Context(), addr, bytes)
					if err != nil {
						failed <- err
					}
					if subflows > 1 {
						second.Add(1)
					}
				}
				return nil
			})
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	changes := 0
	for running := true; running; changes++ {
		if changes%2 == 0 {
			announce(t, n.server, netip.Addr{})
		} else {
			announce(t, n.server, n.paths[1].Addr(n.server))
		}
		select {
		case <-done:
			running = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	ln.Close()
	serving.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	t.Logf("%d of %d connections had a second subflow at their end; its address came or went %d times",
		second.Load(), connections, changes)
	if second.Load() < connections/20 || changes < 20 {
		t.Error("too little came and went for a test")
	}
	schedule(t, "default", n.client, n.server)
	detach()
	withoutSchedulers(t)
	sameMemory(t, before)
}

// exchange sends bytes to a server that returns them; it reports how many subflows there were at the end.
func exchange(ctx context.Context, addr netip.AddrPort, bytes int) (subflows int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := mptcp.Dial(ctx, addr, mptcp.Options{})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, err
	}
	content := make([]byte, bytes)
	for i := range content {
		content[i] = byte(i * 31)
	}
	go func() { _, _ = conn.Write(content) }()
	returned := make([]byte, bytes)
	if _, err := io.ReadFull(conn, returned); err != nil {
		return 0, fmt.Errorf("%s: %w", conn.LocalAddr().(*net.TCPAddr), err)
	}
	if string(returned) != string(content) {
		return 0, errors.New("other content came back than was sent")
	}
	if is, err := conn.MultipathTCP(); err != nil || !is { // its first packets were lost
		return 1, err
	}
	info, err := mptcp.ReadInfo(conn)
	return len(info.Subflows), err
}

// The verifier holds schedulers to what the module allows.
func TestModuleRules(t *testing.T) {
	withSchedulers(t)
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var conn *btf.Struct
	if err := spec.TypeByName("mptcp_sock", &conn); err != nil {
		t.Fatal(err)
	}
	offset := func(field string) int16 {
		for _, m := range conn.Members {
			if m.Name == field {
				return int16(m.Offset.Bytes())
			}
		}
		t.Fatalf("mptcp_sock has no field %s", field)
		return 0
	}
	// try loads a scheduler whose program for a member is another.
	try := func(s *ebpf.CollectionSpec, program string, other asm.Instructions) string {
		for _, m := range s.Maps {
			m.Pinning = ebpf.PinNone
		}
		s.Programs[program].Instructions = other
		coll, err := ebpf.NewCollection(s)
		if err == nil {
			coll.Close()
			return ""
		}
		var refused *ebpf.VerifierError
		if !errors.As(err, &refused) {
			t.Fatal(err)
		}
		return strings.Join(refused.Log, "\n")
	}
	writes := func(field string) string {
		s, err := loadSimplest()
		if err != nil {
			t.Fatal(err)
		}
		return try(s, "mpcc_get_send", asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
			asm.StoreImm(asm.R1, offset(field), 0, asm.Word),
			asm.Mov.Imm(asm.R0, -1),
			asm.Return(),
		})
	}
	if complaint := writes("snd_burst"); complaint != "" {
		t.Errorf("a scheduler may not write snd_burst: %s", complaint)
	}
	for _, field := range []string{"token", "snd_nxt", "sched"} {
		want := "a scheduler writes only mptcp_sock.snd_burst, mptcp_sock.timer_ival and mptcp_subflow_context.avg_pacing_rate"
		if complaint := writes(field); !strings.Contains(complaint, want) {
			t.Errorf("a scheduler that writes %s: %q, want %q", field, complaint, want)
		}
	}

	entry, err := catalog.Find("sched/redundant")
	if err != nil {
		t.Fatal(err)
	}
	redundant, err := obj.Load(entry.Kind, entry.Name, obj.Stock)
	if err != nil {
		t.Fatal(err)
	}
	want := "mptcp_xsched_resend is not allowed"
	complaint := try(redundant, "mpcc_get_send", redundant.Programs["mpcc_get_retrans"].Instructions)
	if !strings.Contains(complaint, want) {
		t.Errorf("sending again from an ACK: %q, want %q", complaint, want)
	}
}

// mpcc sched, on a machine that has the module already, and where nothing to build it with is there.
func TestModuleCommands(t *testing.T) {
	untouched(t)
	release := loader.Release()
	t.Cleanup(func() {
		withoutSchedulers(t)
		_ = os.Remove("/etc/modules-load.d/mpcc-sched.conf")
	})
	fails(t, 3, "mpcc: mpcc_sched: not loaded", "sched", "status")
	prints(t, `^mpcc_sched: installed and loaded\n$`, "sched", "install")
	prints(t, `^mpcc_sched: already installed and loaded\n$`, "sched", "install")
	prints(t, `^Linux `+regexp.QuoteMeta(release)+`: mpcc_sched is loaded, users: 0\n$`, "sched", "status")

	modules := filepath.Join("/lib/modules", release, "updates/dkms")
	away := t.TempDir()
	must(t, "mv", modules, away)
	must(t, "depmod")
	t.Cleanup(func() {
		must(t, "mv", filepath.Join(away, "dkms"), modules)
		must(t, "depmod")
	})
	fails(t, 1, "mpcc: cannot build the module for Linux "+release+": there is no /lib/modules/"+release+
		"/build (the headers of this kernel), no make, no strip, no pahole (it makes the module's BTF); on Debian: apt install linux-headers-"+
		release+" make binutils dwarves", "sched", "install")
	prints(t, `^mpcc_sched: removed\n$`, "sched", "remove")
	prints(t, `^mpcc_sched: not installed\n$`, "sched", "remove")
}

func TestOldKernelModule(t *testing.T) {
	release := loader.Release()
	fails(t, 4, "mpcc: this kernel ("+release+") has no choice of packet schedulers: that came with Linux 6.6", "sched", "install")
}

// fails wants an exit code and exactly one line of complaint of an mpcc command.
func fails(t *testing.T, code int, complaint string, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Getenv("MPCC_BIN"), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != code || stderr.String() != complaint+"\n" {
		t.Errorf("mpcc %s: %v, %q; want exit code %d and %q", strings.Join(args, " "), err, stderr.String(), code, complaint)
	}
}
