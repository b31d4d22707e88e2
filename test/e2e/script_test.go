// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/scripts"
)

// What a user types, reads and gets as exit codes: testdata/scripts (but for anywhere, which the tests of cmd/mpcc
// run). Each script has to leave the machine as it was.
func TestNewKernelScripts(t *testing.T) { runScripts(t, "scripts") }

func TestOldKernelScripts(t *testing.T) { runScripts(t, "scripts/old") }

// These take nothing of the kernel but congestion controls. Each has dozens of starts of mpcc.
func TestHostScripts(t *testing.T) {
	loaded.Turn(t)
	runScripts(t, "scripts/host")
}

func runScripts(t *testing.T, folder string) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("MPCC_TESTDATA"), folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts in %s: %q, %v", folder, files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Cleanup(func() { withoutSchedulers(t) })
			untouched(t)
			cc, _ := kindOf("dts")
			testscript.RunT(serial{t}, testscript.Params{
				Files:               []string{file},
				RequireExplicitExec: true,
				Setup: func(env *testscript.Env) error {
					const ns = "mpcc-script-test"
					for _, name := range append(namespacesOf(t, file), ns) {
						if _, err := os.Stat("/run/netns/" + name); err != nil { // else it is the user's
							env.Defer(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
						}
					}
					env.Setenv("PATH", filepath.Dir(os.Getenv("MPCC_BIN"))+":"+env.Getenv("PATH"))
					env.Setenv("NETNS", ns)
					env.Setenv("DEFAULT", footprint(t)[cc.standard])
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits": scripts.Exits, "tells": scripts.Tells, "attach": scriptAttach, "default": scriptDefault, "offered": scriptOffered,
					"keeps": scriptKeeps,
				},
			})
		})
	}
}

// namespacesOf lists the network namespaces that a script adds, and leaves when it fails.
func namespacesOf(t *testing.T, script string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^exec ip netns add (\S+)$`).FindAllSubmatch(text, -1) {
		names = append(names, string(line[1]))
	}
	return names
}

// serial keeps the scripts, which share the machine, from running at once, and under the test's own name.
type serial struct{ *testing.T }

func (serial) Parallel()                              {}
func (s serial) Run(_ string, f func(t testscript.T)) { f(s) }
func (serial) Verbose() bool                          { return testing.Verbose() }

// attach NAME attaches the algorithm directly, without mpcc, until the end of the script.
func scriptAttach(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: attach NAME")
	}
	detach, err := attach(args[0])
	ts.Check(err)
	ts.Defer(detach)
}

// keeps SIGNAL COUNTS [ARGUMENT...] ends mpcc path keep by a signal once it has written its counts, which makes the file
// another one. TERM is to end it without an error.
func scriptKeeps(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: keeps SIGNAL COUNTS [ARGUMENT...]")
	}
	code := "0"
	if args[0] == "KILL" {
		code = "137"
	}
	scripts.Tells(ts, false, append([]string{code, "sh", "-c", `signal=$1 counts=$2 was=$(stat -c %i "$2" 2>&1)
		shift 2
		mpcc path keep --counts "$counts" "$@" &
		while kill -0 $! && [ "$(stat -c %i "$counts" 2>&1)" = "$was" ]; do sleep 0.1; done
		exec 2>/dev/null # the shell's own word for a killed command
		kill -s "$signal" $!
		wait $!`, "sh"}, args...))
}

// objectOf is an algorithm's object for stock kernels, and its name there.
func objectOf(id string) (spec *ebpf.CollectionSpec, name string, err error) {
	entry, err := catalog.Find(id)
	if err != nil {
		return nil, "", err
	}
	spec, err = obj.Load(entry.Kind, entry.Name, obj.Stock)
	return spec, entry.Name, err
}

// attach attaches an algorithm directly, as another program than mpcc would.
func attach(id string) (detach func(), err error) {
	spec, name, err := objectOf(id)
	if err != nil {
		return nil, err
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	return attachTable(spec, name)
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
		clean := eventually(untilFreed, func() bool {
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
