// SPDX-License-Identifier: Apache-2.0

package verified

import (
	"cmp"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
)

// The parts, and the files of their records.
const (
	Kernels    = "kernels"
	EndToEnd   = "end-to-end"
	Native     = "native"
	Kills      = "kills"
	Churn      = "churn"
	Selftests  = "selftests"
	Soak       = "soak"
	Fuzz       = "fuzz"
	Cost       = "cost"
	Households = "households"
	Schedulers = "schedulers"
	SlowPath   = "slow-path"
	Shares     = "shares"
	Drawn      = "drawn"
	Verdicts   = "verdicts"
	Prices     = "prices"
)

// The rows of Kernels: labels of package kernels, and the machine's own kernel.
const (
	OldKernel = "6.1" // which has to refuse
	OwnKernel = "own"
)

// KernelRows are the rows of Kernels, in the order of its table: the quick ones first.
var KernelRows = []string{"6.12", "7.x", "rt", "arm64", OldKernel, OwnKernel, "debug"}

// Helpers are the objects beside those of algorithms: what mpcc use attaches, and what lists sockets.
var Helpers = map[string]func() (*ebpf.CollectionSpec, error){"use": obj.LoadUse, "sockets": obj.LoadSockets}

// Objects are the columns of Kernels: the catalog's names with their kinds, and the helpers.
func Objects() (ids []string) {
	for _, e := range catalog.Entries {
		ids = append(ids, e.ID())
	}
	return append(ids, "use", "sockets")
}

// Spec loads the object of a column of Kernels.
func Spec(id string) (*ebpf.CollectionSpec, error) {
	if load := Helpers[id]; load != nil {
		return load()
	}
	e, err := catalog.Find(id)
	if err != nil {
		return nil, err
	}
	return obj.Load(e.Kind, e.Name, obj.Stock)
}

// objectDigest is of a column of Kernels: a packet scheduler is verified against the module's type.
func objectDigest(id string) (string, error) {
	spec, err := Spec(id)
	if err != nil {
		return "", err
	}
	if e, err := catalog.Find(id); err != nil || e.Kind != catalog.Sched {
		return Object(spec), nil
	}
	module, err := Module()
	return Object(spec, module), err
}

// Cells returns the cells of a part, in the order of its table.
func Cells(root, part string) (cells []Cell, err error) {
	digest := ""
	switch part {
	case Kernels:
		return kernelCells()
	case Verdicts:
		return verdictCells()
	case Prices:
		return priceCells()
	case EndToEnd:
		objects, err := allObjects("")
		if err != nil {
			return nil, err
		}
		if digest, err = Files(root, "cmd/mpcc/*.go", "loader/*.go", "pkg/*/*.go", "internal/*/*.go", "internal/experiment/*/*.go",
			"test/e2e/*", "testdata/scripts/*.txtar", "testdata/scripts/old/*.txtar", "deploy/packages/*"); err != nil {
			return nil, err
		}
		for _, name := range EndToEndRows {
			cells = append(cells, Cell{Row: name, Digest: objects + digest})
		}
		return cells, nil
	case Native:
		digest, err = Files(root, "cmd/mpcc/*.go", "cmd/mpcc/*_test.go", "pkg/*/*.go", "pkg/*/*_test.go",
			"internal/experiment/lab/*.go")
		return []Cell{{Row: NativeTests, Digest: digest}}, err
	case Kills:
		digest, err = Files(root, "cmd/mpcc/*.go", "loader/*.go", "pkg/paths/*.go", "pkg/use/*.go", "internal/atomicfile/*.go")
		for _, name := range KilledCommands {
			cells = append(cells, Cell{Row: name, Digest: digest})
		}
		return cells, err
	case Churn:
		digest, err = sum(func(h hash.Hash) error {
			for _, name := range ChurnControls {
				d, err := objectDigest("cc/" + name)
				if err != nil {
					return err
				}
				fmt.Fprintln(h, d)
			}
			return nil
		})
		return []Cell{{Row: "connections", Digest: digest}}, err
	case Selftests:
		for _, name := range SelftestControls() {
			digest = ""
			cc, scheduler, _ := strings.Cut(name, "+")
			for _, id := range []string{"cc/" + cc, "sched/" + scheduler} {
				if !slices.Contains(Objects(), id) {
					continue
				}
				object, err := objectDigest(id)
				if err != nil {
					return nil, err
				}
				digest += object
			}
			cells = append(cells, Cell{Row: name, Digest: cmp.Or(digest, "the kernel's own")})
		}
		return cells, nil
	case Soak:
		digest, err = allObjects("")
		for _, label := range SoakKernels {
			cells = append(cells, Cell{Row: label, Digest: digest})
		}
		return cells, err
	case Fuzz:
		return fuzzCells(root)
	case Households, Schedulers, SlowPath, Shares, Drawn:
		return Sweeps[part].cells(root)
	case Cost:
		var exporter, commands string
		digest, err = allObjects("cc/")
		if err == nil {
			exporter, err = Files(root, "pkg/exporter/*.go", "pkg/telemetry/*.go")
		}
		if err == nil {
			commands, err = Files(root, "cmd/mpcc/*.go", "loader/*.go", "pkg/telemetry/*.go")
		}
		return []Cell{
			{Row: CostControls, Digest: digest}, {Row: CostInstructions, Digest: digest},
			{Row: CostExporter, Digest: exporter}, {Row: CostCommands, Digest: commands},
		}, err
	}
	return nil, fmt.Errorf("no part is called %q: choose from %s", part, strings.Join(Parts, ", "))
}

func kernelCells() (cells []Cell, err error) {
	digests := map[string]string{}
	for _, id := range Objects() {
		if digests[id], err = objectDigest(id); err != nil {
			return nil, err
		}
	}
	for _, row := range KernelRows {
		for _, id := range Objects() {
			if row == OldKernel && Helpers[id] != nil {
				continue // mpcc refuses before it comes to them
			}
			cells = append(cells, Cell{Row: row, Column: id, Digest: digests[id]})
		}
	}
	return cells, nil
}

// allObjects is a digest of every object whose name begins so, with the module where one needs it.
func allObjects(prefix string) (string, error) {
	return sum(func(h hash.Hash) error {
		for _, id := range Objects() {
			if !strings.HasPrefix(id, prefix) {
				continue
			}
			digest, err := objectDigest(id)
			if err != nil {
				return err
			}
			fmt.Fprintln(h, id, digest)
		}
		return nil
	})
}

// Parts are all parts, in the order in which make verify fills them: the quick ones first.
var Parts = []string{
	Kernels, Native, EndToEnd, Kills, Churn, Cost, Selftests, Soak, Fuzz,
	SlowPath, Verdicts, Prices, Households, Schedulers, Shares, Drawn,
}

// EndToEndRows are the subtests of TestE2E in test/kernels.
var EndToEndRows = []string{
	"6.1", "6.12", "7.x", "arm64", "own-time-1", "own-time-2", "install-with-dkms", "install", "packages",
}

// NativeTests is the row of Native.
const NativeTests = "tests"

// KilledCommands are the rows of Kills.
var KilledCommands = []string{
	"energy set", "load", "load --default", "load of a file", "path set", "use --cgroup", "use --netns", "use --to",
}

// ChurnControls are the congestion controls of Churn.
var ChurnControls = []string{"lia", "olia", "dts", "balia"}

// SelftestControls are the rows of Selftests: the kernel's own for comparison, that under the scheduler which is
// recommended, and mpcc's.
func SelftestControls() []string {
	names := []string{"cubic", "cubic+earliest"}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			names = append(names, e.Name)
		}
	}
	return names
}

// The rows of Cost. The figures of the first two are in docs/bench.json and docs/instructions.json.
const (
	CostControls     = "congestion controls"
	CostInstructions = "instructions"
	CostExporter     = "exporter"
	CostCommands     = "commands"
)

// SoakKernels are the rows of Soak.
var SoakKernels = []string{"rt", "debug"}

// fuzzer finds Go's fuzz targets.
var fuzzer = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// ofAlgorithms are the harnesses in test/fuzz that are compiled for one algorithm each.
var ofAlgorithms = []string{"eval", "live", "sched", "whole"}

// reckoned finds the algorithms that the Makefile compiles whole.c for.
var reckoned = regexp.MustCompile(`\(addprefix whole-,([a-z ]+)\)`)

// included finds the sources that a harness includes.
var included = regexp.MustCompile(`(?m)^#include (?:"(\S+\.c)"|SOURCE\(cc, )`)

// harness returns the sources of a harness in test/fuzz, but for headers.
func harness(root, file string) (patterns []string, err error) {
	text, err := os.ReadFile(filepath.Join(root, "test", "fuzz", file))
	patterns = []string{"test/fuzz/" + file}
	for _, found := range included.FindAllSubmatch(text, -1) {
		name := string(found[1])
		switch {
		case name == "": // which one, the compiler is told
			patterns = append(patterns, "bpf/cc/*.c")
		case strings.Contains(name, "/"):
			patterns = append(patterns, "bpf/"+name)
		default:
			more, missing := harness(root, name)
			patterns, err = append(patterns, more...), errors.Join(err, missing)
		}
	}
	return patterns, err
}

// fuzzCells are the targets of make fuzz.
func fuzzCells(root string) (cells []Cell, err error) {
	add := func(target string, patterns ...string) {
		if err == nil {
			c := Cell{Row: target}
			c.Digest, err = Files(root, patterns...)
			cells = append(cells, c)
		}
	}
	addHarness := func(target string, patterns ...string) {
		add(target, append(patterns, "bpf/include/mpcc/*.h", "test/fuzz/*.h")...)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return nil, err
	}
	whole := reckoned.FindSubmatch(makefile)
	if whole == nil {
		return nil, errors.New("the Makefile does not say which algorithms test/fuzz/whole.c is for")
	}
	for _, e := range catalog.Entries {
		source := "bpf/" + string(e.Kind) + "/" + e.Name + ".bpf.c"
		if e.Kind == catalog.Sched {
			addHarness("sched-"+e.Name, source, "test/fuzz/sched.c", "test/fuzz/sched/*.h")
			continue
		}
		addHarness("cc-"+e.Name, source, "test/fuzz/eval.c")
		addHarness("live-"+e.Name, source, "test/fuzz/live.c")
		if slices.Contains(strings.Fields(string(whole[1])), e.Name) {
			addHarness("whole-"+e.Name, source, "test/fuzz/whole.c")
		}
	}
	others, globbed := filepath.Glob(filepath.Join(root, "test", "fuzz", "*.c"))
	if err = errors.Join(err, globbed); err != nil {
		return nil, err
	}
	for _, file := range others {
		name := strings.TrimSuffix(filepath.Base(file), ".c")
		if slices.Contains(ofAlgorithms, name) {
			continue
		}
		sources, err := harness(root, name+".c")
		if err != nil {
			return nil, err
		}
		addHarness(name, sources...)
	}
	err = errors.Join(err, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, found := range fuzzer.FindAllSubmatch(text, -1) {
			add("go/"+filepath.ToSlash(folder)+"/"+string(found[1]), filepath.ToSlash(folder)+"/*.go")
		}
		return nil
	}))
	return cells, err
}
