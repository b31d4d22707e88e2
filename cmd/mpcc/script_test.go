// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/scripts"
)

// The test program is mpcc, where a script calls it by that name.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"mpcc": main}) }

// What mpcc does before it changes anything on the machine, and without it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "../../testdata/scripts/anywhere",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": scripts.Exits, "tells": scripts.Tells},
	})
}

// What mpcc does with object files of others, on this machine. It takes a kernel that runs congestion controls.
func TestObjectScripts(t *testing.T) {
	loaded.Turn(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.RunT(oneByOne{t}, testscript.Params{
		Dir:                 "../../testdata/scripts/objects",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("REPO", root)
			env.Setenv("MPCC_INCLUDE", filepath.Join(root, "bpf/include"))
			const ns = "mpcc-objects-test"
			env.Setenv("NETNS", ns)
			env.Defer(func() {
				// A script that failed may have left something.
				if _, _, err := loader.UnloadAll(context.Background()); err != nil {
					t.Error(err)
				}
			})
			env.Defer(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
			return exec.Command("ip", "netns", "add", ns).Run()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripts.Exits, "tells": scripts.Tells, "connect": connect},
	})
}

// connect NAME opens a TCP connection that runs a congestion control, until the end of the script.
func connect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: connect NAME")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { ln.Close() })
	conn, err := mptcp.Dial(context.Background(), ln.Addr().(*net.TCPAddr).AddrPort(), mptcp.Options{CC: args[0], TCP: true})
	ts.Check(err)
	ts.Defer(func() { conn.Close() })
}

// oneByOne keeps scripts from running at once: what is loaded is the machine's.
type oneByOne struct{ *testing.T }

func (oneByOne) Parallel() {}

func (o oneByOne) Run(name string, f func(t testscript.T)) {
	o.T.Run(name, func(t *testing.T) { f(oneByOne{t}) })
}

func (oneByOne) Verbose() bool { return testing.Verbose() }
