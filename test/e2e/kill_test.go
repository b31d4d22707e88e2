// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/test/loaded"
)

// mpcc is killed right after each single change that outlives it, and the next commands have to cope.

// killed runs mpcc and kills it as soon as enough lasting changes have been made. It returns them, and
// whether mpcc has come to its end instead.
func killed(t *testing.T, enough func(changes []string) bool, args ...string) (changes []string, ended bool) {
	t.Helper()
	return killedAt(t, false, enough, args...)
}

// killedAt is killed; with contents it counts as a change also what is written into a pinned map or to /var/lib/mpcc.
func killedAt(t *testing.T, contents bool, enough func(changes []string) bool, args ...string) (changes []string, ended bool) {
	t.Helper()
	// ptrace(2) serves one thread; wait4 below asks for its children alone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{traced, os.Getenv("MPCC_BIN")}, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Process.Release() }()

	started := false
	pinned := false           // it has opened a pinned map
	calls := map[int]string{} // the change that a thread is making
	for {
		var status syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			t.Fatalf("wait for mpcc: %v", err)
		}
		if !status.Stopped() {
			if tid != pid {
				continue // a thread
			}
			if status.Exited() && status.ExitStatus() != 0 {
				t.Fatalf("mpcc %s: exit code %d", strings.Join(args, " "), status.ExitStatus())
			}
			return changes, status.Exited()
		}
		signal := 0
		resume := syscall.PtraceCont
		switch stop := status.StopSignal(); {
		case !started:
			started = true
			if err := syscall.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACESECCOMP|
				unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
				t.Fatalf("trace mpcc: %v", err)
			}
		case status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			info, err := syscallInfo(tid)
			if err == nil {
				calls[tid] = info.change(tid, contents, pinned)
				pinned = pinned || contents && info.value == unix.SYS_BPF && info.args[0] == unix.BPF_OBJ_GET
			}
			if calls[tid] != "" {
				resume = syscall.PtraceSyscall // stops at the end of the call
			}
		case stop == unix.SIGTRAP|0x80:
			info, err := syscallInfo(tid)
			if err != nil || info.value>>63 != 0 {
				break
			}
			if changes = append(changes, calls[tid]); enough(changes) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		case stop == unix.SIGTRAP, stop == unix.SIGSTOP: // mpcc takes its place; a thread begins
		default:
			signal = int(stop)
		}
		_ = resume(tid, signal) // fails only for a thread that is being killed
	}
}

// traced is the name under which the test binary has some system calls stop for the tracer, and becomes
// mpcc. All calls would be some ten thousand, each a millisecond under emulation.
const traced = "traced"

func init() {
	if os.Args[0] != traced {
		return
	}
	calls := []uint32{
		unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_OPENAT, unix.SYS_WRITE, unix.SYS_PWRITE64,
		unix.SYS_BPF, unix.SYS_SENDTO,
	}
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the call's number
	for i, call := range calls {
		filter = append(filter, unix.SockFilter{
			Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jt: uint8(len(calls) - i),
		})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	become(filter, os.Args[1], os.Args[2:])
}

// callInfo is the kernel's struct ptrace_syscall_info.
type callInfo struct {
	_     [3]uint64
	value uint64 // the call's number or, at its end, what it returns
	args  [6]uint64
	_     uint64
}

func syscallInfo(tid int) (callInfo, error) {
	var info callInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// change names what a call changes for longer than its process lives; "" for nothing. What is written to a map is such a
// change only if the map may be a pinned one.
func (c callInfo) change(tid int, contents, pinned bool) string {
	switch c.value {
	case unix.SYS_MKDIRAT, unix.SYS_UNLINKAT:
		verb := "make"
		if c.value == unix.SYS_UNLINKAT {
			verb = "remove"
		}
		return verb + " " + filepath.Base(text(tid, c.args[1]))
	case unix.SYS_RENAMEAT:
		return "rename to " + filepath.Base(text(tid, c.args[3]))
	case unix.SYS_OPENAT:
		path := text(tid, c.args[1])
		if _, err := os.Stat(path); err != nil && c.args[2]&unix.O_CREAT != 0 {
			return "create " + nameOf(path)
		}
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, c.args[0]))
		if err == nil && (strings.HasPrefix(path, "/proc/sys/") || strings.HasPrefix(path, "/run/mpcc/") || contents && strings.HasPrefix(path, "/var/lib/mpcc/")) {
			return "write " + nameOf(path)
		}
	case unix.SYS_SENDTO:
		header := memory(tid, c.args[1], 8) // struct nlmsghdr: length, type, flags
		kind, flags := binary.NativeEndian.Uint16(header[4:]), binary.NativeEndian.Uint16(header[6:])
		if flags&unix.NLM_F_ACK != 0 && flags&unix.NLM_F_DUMP != unix.NLM_F_DUMP && kind != unix.RTM_GETLINK {
			return "ask the kernel"
		}
	case unix.SYS_BPF:
		switch c.args[0] {
		case unix.BPF_OBJ_PIN:
			return "pin " + filepath.Base(text(tid, binary.NativeEndian.Uint64(memory(tid, c.args[1], 8))))
		case unix.BPF_LINK_CREATE:
			return "attach"
		case unix.BPF_LINK_UPDATE:
			return "update"
		case unix.BPF_MAP_UPDATE_ELEM, unix.BPF_MAP_DELETE_ELEM:
			if pinned {
				return "change a map"
			}
		}
	}
	return ""
}

// nameOf is a file's name, without the random end of one that is there only until it gets its real name.
func nameOf(path string) string {
	name := filepath.Base(path)
	if strings.HasPrefix(name, ".") {
		return name[:strings.LastIndexByte(name, '.')+1] + "*"
	}
	return name
}

// text reads a C string of the traced process.
func text(tid int, at uint64) string {
	path, _, _ := bytes.Cut(memory(tid, at, unix.PathMax), []byte{0})
	return string(path)
}

// memory reads the traced process's memory, zero where there is none.
func memory(tid int, at uint64, size int) []byte {
	buf := make([]byte, size)
	if f, err := os.Open(fmt.Sprintf("/proc/%d/mem", tid)); err == nil {
		_, _ = f.ReadAt(buf, int64(at))
		f.Close()
	}
	return buf
}

// The changes of a load in which it pins maps, all in the same way: killed after the first and the last of them, it
// leaves what it leaves in between.
const firstPin = 3

var lastPin = firstPin - 1 + sharedMaps()

// sharedMaps counts the maps that a load pins.
func sharedMaps() int {
	spec, err := obj.LoadMaps()
	if err != nil {
		panic(err)
	}
	maps := 0
	for _, m := range spec.Maps {
		if m.Pinning == ebpf.PinByName {
			maps++
		}
	}
	return maps
}

func nth(n int) func([]string) bool { return func(changes []string) bool { return len(changes) == n } }

// noted are the changes that note the machine's default: the same for all, and looked at with the first.
var noted = []string{"create .defaults.json.*", "write .defaults.json.*", "rename to defaults.json"}

// victim is what is loaded while mpcc is killed, and what the machine's default was: a congestion control
// that only mpcc's own note can bring back.
type victim struct {
	id, name, rare string
	setting        string   // file of the machine's default
	switched       []string // what a switch changes
	// maps are the changes before those of its own: the same for all, and looked at with the first.
	maps int
	load []string // how it is loaded
	own  []string // what only its load changes, after it is pinned
}

func congestionControl() victim {
	files, name := kindOf("balia")
	return victim{
		id: "cc/balia", name: name, rare: "reno", setting: files.standard,
		switched: []string{"update", "write tcp_congestion_control"}, load: []string{"load", "cc/balia", "--default"},
	}
}

// scheduler attaches another one too, to be the rare default. Both are the quickest to verify.
func scheduler(t *testing.T) victim {
	t.Helper()
	withSchedulers(t)
	detach, err := attach("roundrobin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(detach)
	files, name := kindOf("sched/minrtt")
	return victim{
		id: "sched/minrtt", name: name, rare: "roundrobin", setting: files.standard, switched: []string{"update"},
		maps: lastPin, load: []string{"load", "sched/minrtt", "--default", "--small-pieces"},
		own: []string{"create pieces", "write pieces", "write high_order_alloc_disable"},
	}
}

// met makes sure that the kills came after the changes that matter, in this order among others.
func met(t *testing.T, changes []string, want ...string) {
	t.Helper()
	t.Logf("killed after each of %q", changes)
	rest := changes
	for _, w := range want {
		i := slices.Index(rest, w)
		if i < 0 {
			t.Fatalf("no %q in its place among the changes %q", w, changes)
		}
		rest = rest[i+1:]
	}
}

// understood makes sure that status tells what a killed command left, be it nothing.
func understood(t *testing.T, changes []string) {
	t.Helper()
	out, err := exec.Command(os.Getenv("MPCC_BIN"), "status").CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) {
		t.Fatalf("killed after %q: status: %v: %s", changes, err, out)
	}
}

// cleaned makes sure that the machine is as it was before.
func cleaned(t *testing.T, before map[string]string, changes []string) {
	t.Helper()
	var after map[string]string
	if !eventually(untilFreed, func() bool {
		after = footprint(t)
		return nothingLeft(before, after)
	}) {
		t.Fatalf("killed after %q: left behind (-before +after):\n%s", changes, cmp.Diff(before, after))
	}
}

func (v victim) machineDefault(t *testing.T) string {
	t.Helper()
	return traces(t)[v.setting]
}

// rareDefault gives the machine its rare default for the test.
func (v victim) rareDefault(t *testing.T) {
	t.Helper()
	set := func(name string) {
		if err := os.WriteFile(v.setting, []byte(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	was := v.machineDefault(t)
	set(v.rare)
	t.Cleanup(func() { set(was) })
}

// Whatever a killed load leaves, unload --all takes away.
func TestHostKilledLoadIsTakenAway(t *testing.T) {
	loaded.Turn(t)
	killedLoadIsTakenAway(t, congestionControl())
}

func TestOneKernelKilledSchedulerLoadIsTakenAway(t *testing.T) {
	killedLoadIsTakenAway(t, scheduler(t))
}

func killedLoadIsTakenAway(t *testing.T, v victim) {
	v.rareDefault(t)
	untouched(t)
	before := footprint(t)
	for n := 1 + v.maps; ; n++ {
		if n == firstPin+1 {
			n = lastPin
		}
		changes, ended := killed(t, nth(n), v.load...)
		understood(t, changes)
		mpcc(t, "unload", "--all")
		cleaned(t, before, changes)
		if n == lastPin {
			if pin := changes[firstPin-1 : lastPin]; slices.ContainsFunc(pin, func(c string) bool { return !strings.HasPrefix(c, "pin mpcc_") }) {
				t.Fatalf("the changes %d to %d are %q, not the maps' pins", firstPin, lastPin, pin)
			}
		}
		if ended {
			met(t, changes, slices.Concat(
				[]string{"make mpcc", "make maps", "pin mpcc_subflows", "attach", "pin " + v.name}, v.own,
				noted, []string{"write " + filepath.Base(v.setting)})...)
			return
		}
		if v.own != nil && changes[n-1] == v.own[len(v.own)-1] {
			n += len(noted)
		}
	}
}

// Load goes on from what killed loads leave, one on top of the other.
func TestHostKilledLoadIsCompleted(t *testing.T) {
	loaded.Turn(t)
	v := congestionControl()
	v.rareDefault(t)
	untouched(t)
	was := v.machineDefault(t)
	for n := 1; ; n++ {
		changes, ended := killed(t, nth(n), v.load...)
		understood(t, changes)
		if ended {
			t.Logf("the last of %d loads made %q", n, changes)
			break
		}
	}
	if now := v.machineDefault(t); now != v.name {
		t.Errorf("the default is %s in the end", now)
	}
	mpcc(t, "unload", v.id)
	if now := v.machineDefault(t); now != was {
		t.Errorf("the default is %s after unload, was %s", now, was)
	}
}

// A killed unload can be taken back, or done again.
func TestHostKilledUnload(t *testing.T) {
	loaded.Turn(t)
	killedUnload(t, congestionControl())
}

func TestOneKernelKilledSchedulerUnload(t *testing.T) { killedUnload(t, scheduler(t)) }

func killedUnload(t *testing.T, v victim) {
	v.rareDefault(t)
	untouched(t)
	before := footprint(t)
	mpcc(t, v.load...)
	var changes []string
	for n := 1; !slices.Contains(changes, "remove "+v.name); n++ {
		var ended bool
		if changes, ended = killed(t, nth(n), "unload", v.id); ended {
			t.Fatalf("unloaded without a change that removes it: %q", changes)
		}
		understood(t, changes)
		if changes[n-1] != "remove "+v.name {
			mpcc(t, v.load...)
			if now := v.machineDefault(t); now != v.name {
				t.Errorf("killed after %q, loaded again: the default is %s", changes, now)
			}
		}
	}
	met(t, changes, "write "+filepath.Base(v.setting), "remove defaults.json", "remove "+v.name)
	mpcc(t, "unload", "--all")
	cleaned(t, before, changes)
}

// The maps, of which a killed load leaves them all, can be removed in several goes.
func TestHostKilledSweep(t *testing.T) {
	loaded.Turn(t)
	untouched(t)
	before := footprint(t)
	pinned := func(changes []string) bool {
		pins := 0
		for _, change := range changes {
			if strings.HasPrefix(change, "pin ") {
				pins++
			}
		}
		return pins == lastPin-firstPin+1
	}
	for n := 1; ; n++ {
		if made, ended := killed(t, pinned, "load", "dts"); ended {
			t.Fatalf("the maps were not pinned: %q", made)
		}
		changes, ended := killed(t, nth(n), "unload", "--all")
		understood(t, changes)
		mpcc(t, "unload", "--all")
		cleaned(t, before, changes)
		if ended {
			met(t, changes, "remove mpcc_totals", "remove maps", "remove mpcc")
			return
		}
	}
}

// A killed switch leaves the old programs or the new ones under the name, and at most the default with
// the old ones, until it is set again.
func TestHostKilledSwitch(t *testing.T) {
	loaded.Turn(t)
	killedSwitch(t, congestionControl())
}

func TestOneKernelKilledSchedulerSwitch(t *testing.T) { killedSwitch(t, scheduler(t)) }

func killedSwitch(t *testing.T, v victim) {
	v.rareDefault(t)
	untouched(t)
	mpcc(t, "load", v.id, "--default")
	for n := 1; ; n++ {
		changes, ended := killed(t, nth(n), "switch", v.id)
		understood(t, changes)
		if now := v.machineDefault(t); now != v.name {
			t.Errorf("killed after %q: the default is %s", changes, now)
		}
		mpcc(t, "load", v.id, "--default")
		var programs []string
		if !eventually(10*time.Second, func() bool {
			programs = structOps(t)[v.name]
			return len(programs) == 1
		}) {
			t.Errorf("killed after %q: struct_ops maps %q of that name", changes, programs)
		}
		if ended {
			met(t, changes, v.switched...)
			break
		}
	}
	mpcc(t, "unload", v.id)
}
