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
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/ss"
)

// A warning that the kernel prints on its console fails the whole run: see internal/vm.

// memoryUse is the memory that must be free again when schedulers, their connections and the module are gone.
func memoryUse(t *testing.T) map[string]int {
	t.Helper()
	use := bpfObjects(t)
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
	if !eventually(untilFreed, func() bool {
		now := memoryUse(t)
		if !maps.Equal(now, use) {
			use, since = now, time.Now()
		}
		return use["MPTCP"]+use["BPF maps"]+use["BPF programs"] == 0 && time.Since(since) > still
	}) {
		t.Fatalf("%v after the last test sockets, maps or programs are still there, or come and go: %v", untilFreed, use)
	}
	return use
}

// sameMemory waits until the memory in use is as before; the kernel lets some of it go later.
func sameMemory(t *testing.T, before map[string]int) {
	t.Helper()
	var diff string
	if !eventually(untilFreed, func() bool {
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

//go:embed rogue.o
var rogueObject []byte

// loadSimplest parses the scheduler of test/e2e/bpf.
func loadSimplest() (*ebpf.CollectionSpec, error) {
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(simplestObject))
}

// What the scheduler rogue of test/e2e/bpf can do wrong.
const (
	writesAnywhere = iota + 1
	schedulesAll
	schedulesNone
	writesSocket
)

func loadRogue(t *testing.T, misdeed uint32) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(rogueObject))
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["misdeed"].Set(misdeed); err != nil {
		t.Fatal(err)
	}
	return spec
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

// The module comes and goes a dozen times, each time with a scheduler, a connection and its data.
func TestModuleRounds(t *testing.T) {
	const rounds = 12
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

// Five hundred short connections, both ends under a scheduler, while packets are lost and the second path's
// address comes and goes, and with it everyone's second subflow.
//
//	        ┌── 2 ms, 2 % lost ──┐
//	client ─┤                    ├─ server
//	        └── 2 ms, 2 % lost ──┘
func TestModuleChurn(t *testing.T) {
	const (
		connections = 500
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
	if second.Load() < connections/20 || changes < 5 {
		t.Error("too little came and went for a test")
	}
	schedule(t, "default", n.client, n.server)
	detach()
	withoutSchedulers(t)
	sameMemory(t, before)
}

// exchange sends bytes to a server that returns them; it reports how many subflows there were at the end.
func exchange(ctx context.Context, addr netip.AddrPort, bytes int) (subflows int, err error) {
	// A busy host may hold up a VM for a minute.
	const limit = 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := mptcp.Dial(ctx, addr, mptcp.Options{})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
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
	// try loads a scheduler, and returns the verifier's complaint.
	try := func(s *ebpf.CollectionSpec) string {
		for _, m := range s.Maps {
			m.Pinning = ebpf.PinNone
		}
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
	simplest := func() *ebpf.CollectionSpec {
		s, err := loadSimplest()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	writes := func(field string) string {
		s := simplest()
		s.Programs["mpcc_get_send"].Instructions = asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
			asm.StoreImm(asm.R1, offset(field), 0, asm.Word),
			asm.Mov.Imm(asm.R0, -1),
			asm.Return(),
		}
		return try(s)
	}
	if complaint := writes("snd_burst"); complaint != "" {
		t.Errorf("a scheduler may not write snd_burst: %s", complaint)
	}
	want := "a scheduler writes only mptcp_sock.snd_burst, mptcp_sock.timer_ival and mptcp_subflow_context.avg_pacing_rate"
	for _, field := range []string{"token", "snd_nxt", "sched"} {
		if complaint := writes(field); !strings.Contains(complaint, want) {
			t.Errorf("a scheduler that writes %s: %q, want %q", field, complaint, want)
		}
	}

	if complaint := try(loadRogue(t, 0)); complaint != "" {
		t.Fatalf("a rogue that behaves is refused: %s", complaint)
	}
	// Linux 7.3 does not ask the module.
	refusal := regexp.MustCompile(`(a scheduler writes only through its argument and its iterator's subflows|only read is supported)\s`)
	if complaint := try(loadRogue(t, writesAnywhere)); !refusal.MatchString(complaint) {
		t.Errorf("a write through a number: %q, want %q", complaint, refusal)
	}
	if complaint := try(loadRogue(t, writesSocket)); !strings.Contains(complaint, want) {
		t.Errorf("a write to a subflow's socket: %q, want %q", complaint, want)
	}
	for _, program := range []string{"mpcc_get_send", "mpcc_get_retrans", "mpcc_sched_init", "mpcc_sched_release"} {
		sleepy := simplest()
		sleepy.Programs[program].Flags |= unix.BPF_F_SLEEPABLE
		want := "attach to unsupported member " + strings.TrimPrefix(strings.TrimPrefix(program, "mpcc_"), "sched_")
		if complaint := try(sleepy); !strings.Contains(complaint, want) {
			t.Errorf("%s, sleepable: %q, want %q", program, complaint, want)
		}
	}
	jumps := simplest()
	jumps.Maps["targets"] = &ebpf.MapSpec{Name: "targets", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	jumps.Programs["mpcc_get_send"].Instructions = asm.Instructions{
		asm.LoadMapPtr(asm.R2, 0).WithReference("targets"),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return(),
	}
	if complaint := try(jumps); !strings.Contains(complaint, "tail_call") {
		t.Errorf("a tail call: %q", complaint)
	}

	// Each function that takes a subflow's or the connection's lock, which the ACK that has get_send called may hold; calls of
	// the other such functions are taken out of the program.
	functions := []string{"mptcp_xsched_resend", "mptcp_xsched_carries", "mptcp_xsched_resend_of"}
	for _, function := range functions {
		s, _, err := objectOf("sched/earliest")
		if err != nil {
			t.Fatal(err)
		}
		code := s.Programs["mpcc_get_retrans"].Instructions
		for i := range code {
			if name := code[i].Reference(); code[i].IsKfuncCall() && name != function && slices.Contains(functions, name) {
				code[i] = asm.Mov.Imm(asm.R0, 0)
			}
		}
		s.Programs["mpcc_get_send"].Instructions = code
		if complaint, want := try(s), function+" is not allowed"; !strings.Contains(complaint, want) {
			t.Errorf("from an ACK: %q, want %q", complaint, want)
		}
	}
}

// A scheduler can stop its own connection's data, but not have the kernel go round for ever: a sender gives up in
// time. The first rogue schedules subflows that cannot send, to a peer that does not read; the second rogue says after
// its first decision that subflows are scheduled, where none is.
//
//	        ┌── all that the client sends is lost, with join ──┐
//	client ─┤                                                  ├─ server, which does not read
//	        └──────────────────────────────────────────────────┘
func TestModuleStandsRogues(t *testing.T) {
	for name, misdeed := range map[string]uint32{"schedules all": schedulesAll, "schedules none": schedulesNone} {
		t.Run(name, func(t *testing.T) {
			withSchedulers(t)
			detach, err := attachTable(loadRogue(t, misdeed), "rogue")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(detach)
			n := newTwoPaths(t, [2]lab.Shape{{}, {Loss: 100}})
			schedule(t, "rogue", n.client)
			p := n.connect(t, "", "")
			content := make([]byte, 64<<10) // more than a first window takes, and without it the peer announces no address
			if _, err := p.client.Write(content); err != nil {
				t.Fatal(err)
			}
			if !eventually(5*time.Second, func() bool { return joining(t, n.client) }) {
				t.Fatal("the client does not try to join over the second path")
			}
			if err := p.client.SetWriteDeadline(time.Now().Add(3 * time.Second)); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				for {
					if _, err := p.client.Write(content); err != nil {
						ended <- err
						return
					}
				}
			}()
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the sender ended with %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the sender is still in the kernel 17 s after its deadline")
			}
			if !joining(t, n.client) {
				t.Error("the client no longer tries to join: the test has shown nothing")
			}
		})
	}
}

// joining tells whether a host waits for the answer to a SYN.
func joining(t *testing.T, h *lab.Host) bool {
	t.Helper()
	all, err := ss.Sockets(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(s ss.Socket) bool { return s.State == "SYN-SENT" })
}

// A scheduler is replaced by itself, by another table of its name, and not by one of another name. All the time the
// kernel offers it.
func TestModuleUpdates(t *testing.T) {
	withSchedulers(t)
	table := func(spec *ebpf.CollectionSpec, name string) *ebpf.Map {
		coll, err := ebpf.NewCollection(spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(coll.Close)
		return coll.Maps[name]
	}
	simplest := func() *ebpf.Map {
		spec, err := loadSimplest()
		if err != nil {
			t.Fatal(err)
		}
		return table(spec, "simplest")
	}
	first, second, other := simplest(), simplest(), table(loadRogue(t, 0), "rogue")
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: first})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	update := func(to *ebpf.Map) error {
		attr := struct{ link, to, flags, from uint32 }{link: uint32(l.(interface{ FD() int }).FD()), to: uint32(to.FD())}
		_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_UPDATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		if errno != 0 {
			return errno
		}
		return nil
	}

	var looks, gone atomic.Int64
	var looking sync.WaitGroup
	stop := make(chan struct{})
	looking.Go(func() {
		for ; ; looks.Add(1) {
			select {
			case <-stop:
				return
			default:
			}
			if names, err := os.ReadFile("/proc/sys/net/mptcp/available_schedulers"); err != nil || !slices.Contains(strings.Fields(string(names)), "simplest") {
				gone.Add(1)
			}
		}
	})
	for updates := 0; updates < 20 || looks.Load() < 20; updates++ { // on one CPU it looks between them, now and then
		for _, to := range []*ebpf.Map{first, second, second, first} {
			if err := update(to); err != nil {
				t.Fatal(err)
			}
		}
		if err := update(other); !errors.Is(err, unix.EINVAL) {
			t.Fatalf("update by a table of another name: %v, want %v", err, unix.EINVAL)
		}
	}
	close(stop)
	looking.Wait()
	if gone.Load() > 0 {
		t.Errorf("of %d looks during the updates %d did not find the name", looks.Load(), gone.Load())
	}

	again, err := link.AttachStructOps(link.StructOpsOptions{Map: other})
	if err != nil {
		t.Fatalf("attach what was refused as an update: %v", err)
	}
	if !available(t, "rogue") {
		t.Error("what was refused as an update has lost its name")
	}
	again.Close()
	n := newTwoPaths(t, [2]lab.Shape{})
	schedule(t, "simplest", n.client)
	p := n.connect(t, "", "")
	p.transfer(128 << 10).wait(t)
	p.close()
	l.Close()
	if !eventually(5*time.Second, func() bool { return !available(t, "simplest") && !available(t, "rogue") }) {
		t.Error("a name is there after all links were closed")
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
