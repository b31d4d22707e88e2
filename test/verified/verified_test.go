// SPDX-License-Identifier: Apache-2.0

package verified

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

const root = "../.."

// Each record is of a cell that there is.
func TestRecords(t *testing.T) {
	for _, part := range Parts {
		cells, err := Cells(root, part)
		if err != nil {
			t.Fatal(err)
		}
		table, err := Read(root, part)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range table {
			if _, found := table.Find(Cell{Row: r.Row, Column: r.Column}); !found || !known(cells, r) {
				t.Errorf("%s: there is no %s/%s any more: remove its record", filepath.Join(Folder, part+".json"), r.Row, r.Column)
			}
		}
	}
}

func known(cells []Cell, r Record) bool {
	for _, c := range cells {
		if c.Row == r.Row && c.Column == r.Column {
			return true
		}
	}
	return false
}

// The tests that the Makefile names are there, once: one that has got another name would be run by nobody, or where it
// should not.
func TestNamesInTheMakefile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, test := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			found[string(test[1])]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`(?m)^(LONG|MEASURING) := \^\((.*)\)\$\$$`).FindAllSubmatch(text, -1)
	if len(lists) != 2 {
		t.Fatalf("the Makefile has %d lists of tests, want LONG and MEASURING", len(lists))
	}
	for _, list := range lists {
		for name := range strings.SplitSeq(string(list[2]), "|") {
			if found[name] != 1 {
				t.Errorf("%s names %s, which is there %d times", list[1], name, found[name])
			}
		}
	}
}

// A record takes the place of the cell's former one, and others stay.
func TestKeep(t *testing.T) {
	root := t.TempDir()
	for _, r := range []Record{
		{Row: "b", Column: "y", State: Passed}, {Row: "a", State: Failed}, {Row: "b", Column: "x", State: Passed},
		{Row: "a", State: Passed, Said: "later"},
	} {
		if err := Keep(root, "part", r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(root, "part")
	want := Table{
		{Row: "a", State: Passed, Said: "later"},
		{Row: "b", Column: "x", State: Passed}, {Row: "b", Column: "y", State: Passed},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, records (-want +got):\n%s", err, diff)
	}
	if none, err := Read(root, "other"); none != nil || err != nil {
		t.Errorf("of a part without a file: %v, %v", none, err)
	}
}

// Two readings of an object give the same digest. Instructions, variables and maps change the digest, since the kernel is
// given them; the constants of relocated instructions do not, since loading replaces them.
func TestObject(t *testing.T) {
	digest := func(id string, change func(*ebpf.CollectionSpec), more ...string) string {
		t.Helper()
		spec, err := Spec(id)
		if err != nil {
			t.Fatal(err)
		}
		change(spec)
		return Object(spec, more...)
	}
	nothing := func(*ebpf.CollectionSpec) {}
	was := digest("cc/lia", nothing)
	if again := digest("cc/lia", nothing); again != was {
		t.Errorf("it is %s, then %s", was, again)
	}
	relocated := 0
	if now := digest("cc/lia", func(spec *ebpf.CollectionSpec) {
		for _, p := range spec.Programs {
			for i := range p.Instructions {
				if btf.CORERelocationMetadata(&p.Instructions[i]) != nil {
					p.Instructions[i].Constant++
					relocated++
				}
			}
		}
	}); now != was || relocated == 0 {
		t.Errorf("%d relocated constants, as types with other numbers have, change it", relocated)
	}
	for what, now := range map[string]string{
		"another object": digest("cc/olia", nothing),
		"the module":     digest("cc/lia", nothing, "of the module"),
		"an instruction": digest("cc/lia", func(spec *ebpf.CollectionSpec) {
			for _, p := range spec.Programs {
				p.Instructions = append(p.Instructions, asm.Mov.Imm(asm.R0, 0))
			}
		}),
		"a constant": digest("cc/lia", func(spec *ebpf.CollectionSpec) {
			for _, v := range spec.Variables {
				v.Value[0]++
			}
		}),
		"room in a map": digest("cc/lia", func(spec *ebpf.CollectionSpec) { spec.Maps["mpcc_subflows"].MaxEntries++ }),
	} {
		if now == was {
			t.Errorf("%s changes nothing", what)
		}
	}
}

// A row is about its own network: neither what other rows run in nor a scenario's words make it older.
func TestNetwork(t *testing.T) {
	sweep := Sweeps[Households]
	file, err := scenario.Load(filepath.Join(root, sweep.File))
	if err != nil {
		t.Fatal(err)
	}
	digests := func(file *scenario.File) map[string]string {
		networks, err := sweep.networks(file)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := sweep.runs(file)
		if err != nil {
			t.Fatal(err)
		}
		digests := map[string]string{}
		for _, name := range networks {
			if digests[name], err = sweep.network(runs, name); err != nil {
				t.Fatal(err)
			}
		}
		return digests
	}
	before := digests(file)
	distinct := map[string]bool{}
	for _, digest := range before {
		distinct[digest] = true
	}
	if len(before) < 12 || len(distinct) != len(before) {
		t.Errorf("%d digests of %d networks", len(distinct), len(before))
	}
	for _, c := range []struct {
		what, old, new string
		changed        []string
	}{
		{"a title", "title: Households", "title: Homes", nil},
		{"a link", "rate: 16 Mbit/s, delay: 300 ms", "rate: 16 Mbit/s, delay: 301 ms", []string{"dsl-satellite"}},
		{"users", "size: 1 MB", "size: 2 MB", []string{"its-web"}},
		{"an event", "at: 13 s", "at: 14 s", []string{"fibre-starlink"}},
		{"how long", "'dsl-satellite', ", "", []string{"dsl-satellite"}},
	} {
		text := strings.Replace(file.YAML(), c.old, c.new, 1)
		other, err := scenario.Parse(sweep.File, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		var changed []string
		for name, digest := range digests(other) {
			if digest != before[name] {
				changed = append(changed, name)
			}
		}
		if !slices.Equal(changed, c.changed) {
			t.Errorf("with %s changed, the digests of %q are others, want %q", c.what, changed, c.changed)
		}
	}
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const source = "package a\n\nconst A = \"a\" // one\n"
	write("a.go", source)
	write("a_test.go", source)
	write("a.yaml", "a: 1 # one\n")
	digest := func(patterns ...string) string {
		t.Helper()
		d, err := Files(root, patterns...)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	was, tests, data := digest("*.go"), digest("*_test.go"), digest("*.yaml")
	write("a_test.go", source+"var B = A\n")
	if digest("*.go") != was || digest("*_test.go") == tests {
		t.Error("tests count where they are not asked for, or do not where they are")
	}
	for _, c := range []struct {
		what, text string
		same       bool
	}{
		{"a comment", "// Package a is a.\npackage a\n\nconst A = \"a\" /* two */\n", true},
		{"layout", "package a; const A=\"a\";", true},
		{"a string", "package a\n\nconst A = \"b\" // one\n", false},
		{"a name", "package a\n\nconst B = \"a\" // one\n", false},
		{"a build tag", "//go:build linux\n\n" + source, false},
		{"a statement", source + "var B = A\n", false},
	} {
		write("a.go", c.text)
		if got := digest("*.go") == was; got != c.same {
			t.Errorf("with %s changed, that the digest stays is %v", c.what, got)
		}
	}
	write("a.yaml", "a: 1 # two\n")
	if digest("*.yaml") == data {
		t.Error("the text of a file that is not Go's does not count")
	}
	if _, err := Files(root, "*.c"); err == nil || !strings.Contains(err.Error(), "no file is called *.c") {
		t.Errorf("a pattern without files: %v", err)
	}
}
