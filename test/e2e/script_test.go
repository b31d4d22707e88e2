// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
)

// What a user types, reads and gets as exit codes: testdata/scripts. Each script has to leave the
// machine as it was.
func TestNewKernelScripts(t *testing.T) { runScripts(t, "scripts") }

func TestOldKernelScripts(t *testing.T) { runScripts(t, "scripts/old") }

func runScripts(t *testing.T, folder string) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("MPCC_TESTDATA"), folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts in %s: %q, %v", folder, files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Cleanup(func() { withoutSchedulers(t) })
			untouched(t)
			testscript.RunT(serial{t}, testscript.Params{
				Files:               []string{file},
				RequireExplicitExec: true,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits": scriptExits, "tells": scriptTells, "attach": scriptAttach, "default": scriptDefault, "offered": scriptOffered,
				},
			})
		})
	}
}

// serial keeps the scripts, which share the machine, from running at once, and under the test's own name.
type serial struct{ *testing.T }

func (serial) Parallel()                              {}
func (s serial) Run(_ string, f func(t testscript.T)) { f(s) }
func (serial) Verbose() bool                          { return testing.Verbose() }

// exits CODE COMMAND… wants this exit code and, but for 0, one line of complaint by mpcc and no output.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	scriptEnds(ts, args)
	complaint := ts.ReadFile("stderr")
	if args[0] != "0" && (!strings.HasPrefix(complaint, "mpcc: ") || strings.Count(complaint, "\n") != 1) {
		ts.Fatalf("not one line of complaint: %q", complaint)
	}
}

// tells CODE COMMAND… wants this exit code of a command whose output tells why, and no complaint.
func scriptTells(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: tells CODE COMMAND [ARGUMENT...]")
	}
	scriptEnds(ts, args)
	if complaint := ts.ReadFile("stderr"); complaint != "" {
		ts.Fatalf("it complains: %q", complaint)
	}
}

// scriptEnds runs CODE COMMAND… and wants this exit code.
func scriptEnds(ts *testscript.TestScript, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// attach NAME attaches the algorithm directly, without mpcc, until the end of the script.
func scriptAttach(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: attach NAME")
	}
	detach, err := attach(args[0])
	ts.Check(err)
	ts.Defer(detach)
}

// attach attaches an algorithm directly, as another program than mpcc would.
func attach(id string) (detach func(), err error) {
	entry, err := catalog.Find(id)
	if err != nil {
		return nil, err
	}
	spec, err := obj.Load(entry.Kind, entry.Name, obj.Stock)
	if err != nil {
		return nil, err
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	return attachTable(spec, entry.Name)
}

// attachTable loads programs and attaches the table of that name, until detach.
func attachTable(spec *ebpf.CollectionSpec, name string) (detach func(), err error) {
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps[name]})
	if err != nil {
		return nil, err
	}
	return func() { l.Close() }, nil
}

// settings are the kernel's files of a kind of algorithm.
type settings struct{ available, standard string }

// kindOf takes sched/NAME apart; a bare name is a congestion control's.
func kindOf(id string) (settings, string) {
	if name, ok := strings.CutPrefix(id, "sched/"); ok {
		return settings{"/proc/sys/net/mptcp/available_schedulers", "/proc/sys/net/mptcp/scheduler"}, name
	}
	return settings{
		"/proc/sys/net/ipv4/tcp_available_congestion_control", "/proc/sys/net/ipv4/tcp_congestion_control",
	}, id
}

// default NAMESPACE [sched/]NAME wants this default in a namespace of ip netns, or with "-" in the machine's own.
func scriptDefault(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: default NAMESPACE [sched/]NAME")
	}
	files, want := kindOf(args[1])
	command := []string{"cat", files.standard}
	if args[0] != "-" {
		command = append([]string{"ip", "netns", "exec", args[0]}, command...)
	}
	ts.Check(ts.Exec(command[0], command[1:]...))
	if got := strings.TrimSpace(ts.ReadFile("stdout")); got != want {
		ts.Fatalf("the default of %s is %s, want %s", args[0], got, want)
	}
}

// offered [sched/]NAME wants the kernel to offer it; "! offered" wants it not to, at once.
func scriptOffered(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] offered [sched/]NAME")
	}
	files, want := kindOf(args[0])
	names, err := os.ReadFile(files.available)
	ts.Check(err)
	if slices.Contains(strings.Fields(string(names)), want) == neg {
		ts.Fatalf("offered are %s", names)
	}
}

// untouched makes the test fail if it does not leave the machine as it was, by its own commands.
func untouched(t *testing.T) {
	t.Helper()
	before := footprint(t)
	t.Cleanup(func() {
		var after map[string]string
		clean := eventually(10*time.Second, func() bool {
			after = footprint(t)
			return nothingLeft(before, after)
		})
		if clean {
			return
		}
		t.Errorf("left behind (-before +after):\n%s", cmp.Diff(before, after))
		mpcc(t, "unload", "--all") // for the tests to come
	})
}

// footprint is what traces sees and the struct_ops that the kernel has, attached or only held by sockets.
func footprint(t *testing.T) map[string]string {
	t.Helper()
	found := traces(t)
	for name, ids := range structOps(t) {
		for _, id := range ids {
			found[structOpsKey+name+" "+id] = "there"
		}
	}
	return found
}

const structOpsKey = "struct_ops "

// nothingLeft compares two footprints. A struct_ops that an earlier test's closing sockets held may go
// meanwhile.
func nothingLeft(before, after map[string]string) bool {
	kept := maps.Clone(before)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		_, there := after[key]
		return strings.HasPrefix(key, structOpsKey) && !there
	})
	return maps.Equal(kept, after)
}

// structOps lists the ids of struct_ops maps by name. A map stays for as long as anything runs its
// programs.
func structOps(t *testing.T) map[string][]string {
	t.Helper()
	ids := map[string][]string{}
	for _, object := range bpftool(t, "map") {
		if object.Type == "struct_ops" {
			ids[object.Name] = append(ids[object.Name], strconv.Itoa(object.ID))
		}
	}
	return ids
}

type bpfObject struct {
	ID         int
	Type, Name string
}

func bpftool(t *testing.T, objects string) []bpfObject {
	t.Helper()
	out, err := exec.Command("bpftool", "--json", objects, "show").Output()
	if err != nil {
		t.Fatalf("bpftool %s: %v", objects, err)
	}
	var list []bpfObject
	if out = bytes.TrimSpace(out); len(out) > 0 {
		if err := json.Unmarshal(out, &list); err != nil {
			t.Fatalf("bpftool %s: %v: %s", objects, err, out)
		}
	}
	return list
}
