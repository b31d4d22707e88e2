// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	_ "embed"
	"os"
	"path/filepath"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/test/loaded"
)

//go:embed roomy.o
var roomyObject []byte

// Packet schedulers from files, one of somebody else's and one that mpcc new begins, are loaded, run a connection each,
// and are unloaded under it. The tests of cmd/mpcc load congestion controls so.
func TestOneKernelSchedulersFromFiles(t *testing.T) {
	untouched(t)
	withSchedulers(t)
	n := newTwoPaths(t, [2]lab.Shape{})
	for name, object := range map[string][]byte{"simplest": simplestObject, "roomy": roomyObject} {
		file := filepath.Join(t.TempDir(), name+".o")
		if err := os.WriteFile(file, object, 0o600); err != nil {
			t.Fatal(err)
		}
		prints(t, `(?m)^`+name+`: loaded$`, "load", file)
		schedule(t, name, n.client) // not at the server, whose listener would hold it
		p := n.connect(t, "", "")
		p.transfer(128 << 10).wait(t)
		prints(t, `(?m)^sched/`+name+` loaded from `+file+` at .*; 1 connection runs it$`, "status")
		prints(t, `(?m)^`+name+`: the default of .* is default again\n`+name+`: unloaded; 1 live connection keeps its programs until it closes$`, "unload", name)
		p.close()
	}
	mpcc(t, "unload", "--all") // the maps, which roomy shares
}

//go:embed stranger.o
var strangerObject []byte

// Whatever a killed load of a file leaves, unload --all takes away. The changes before the last of the maps' pins are
// those of any load.
func TestHostKilledLoadOfFile(t *testing.T) {
	loaded.Turn(t)
	untouched(t)
	before := footprint(t)
	file := filepath.Join(t.TempDir(), "stranger.o")
	if err := os.WriteFile(file, strangerObject, 0o600); err != nil {
		t.Fatal(err)
	}
	for n := lastPin; ; n++ {
		changes, ended := killed(t, nth(n), "load", file)
		understood(t, changes)
		mpcc(t, "unload", "--all")
		cleaned(t, before, changes)
		if ended {
			met(t, changes, "make objects", "rename to cc-stranger", "attach", "pin stranger")
			return
		}
	}
}
