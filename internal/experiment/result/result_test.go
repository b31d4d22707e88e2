// SPDX-License-Identifier: Apache-2.0

package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/test/fulldisk"
	"github.com/mpcc/mpcc/test/said"
)

func of[T any](v T) *T { return &v }

// sample is a result with every field in use. Its runs: two users with 1 and 3 Mbit/s, and one alone.
func sample() *Result {
	return &Result{
		Tool: "v1", Kernel: "6.12.0", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 30, Seed: 7, Quick: true,
		Scenario: Scenario{Name: "two", Title: "Two kinds of users", Source: "paper 4", Notes: []string{"scaled"}, YAML: "name: two\n"},
		Sweep:    []Axis{{"cc", []string{"lia"}}},
		Expect: Expect{
			Values: []Value{{Select{"goodput", "multi", Point{"cc": "lia"}}, Published, 1.3, "table 3"}},
			Claims: []Claim{{Text: "more", Source: "4", Select: Select{"goodput", "multi", nil}, To: &Select{"goodput", "single", nil},
				Relation: Above, Bound: 1, Margin: 0.1}},
			Figures: []Figure{{"Goodput", "fig 1", Bars, Select{"goodput", "", nil}, "cc", "control"}},
		},
		Runs: []Run{{
			Point: Point{"cc": "lia"}, Repeat: 1, Seed: 9, Warmup: 5, Measured: 20,
			Links: []Link{{"ap", "r1", "server", Quality{of(1e7), of(75.0), nil}, Quality{of(9.9e6), of(75.1), of(0.0)},
				"qdisc red 1:", Queue{990, 10, 30}}},
			Classes: []Class{
				{"multi", true, "olia", "default", map[string]string{"min_cwnd": "1"}, map[string]string{}, &HostPower{"i7", 1, .001, 2}, []User{
					{Bytes: 2_500_000, Active: 20, Goodput: 1e6, Transfers: []Transfer{{0, 1_000_000, of(4.0)}, {5, 1_500_000, of(6.0)}},
						Subflows:   []Subflow{{1, "wlan", 2_000_000, 3, 12.5, 100, 150}, {2, "lte", 500_000, 1, 4, 200, 250}},
						OutOfOrder: of(uint64(50)), Received: of(uint64(1000)), Reinjected: of(uint64(5)), Energy: &Energy{40, SourceModel}},
					{Bytes: 7_500_000, Active: 20, Goodput: 3e6, Transfers: []Transfer{{0, 1_000_000, nil}}, Subflows: []Subflow{}},
				}},
				{"single", false, "reno", "", map[string]string{}, map[string]string{}, nil, []User{{Bytes: 1_000_000, Active: 8, Goodput: 1e6, Transfers: []Transfer{}, Subflows: []Subflow{}}}},
			},
			RAPL: []Zone{{"package-0", Energy{100, SourceRAPL}}}, Samples: "samples/0000.csv", Warnings: []string{"slow"}, Faults: []string{"too slow"}, Planned: 3,
		}},
	}
}

func TestRoundTrip(t *testing.T) {
	folder, err := Create(filepath.Join(t.TempDir(), "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	want := sample()
	if err := folder.Write(want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(folder.Path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Runs[0].Measures) == 0 {
		t.Error("no measures were filled in")
	}
	got.Runs[0].Measures = nil
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Run{})); diff != "" {
		t.Error(diff)
	}
	if entries, _ := os.ReadDir(folder.Path); len(entries) != 2 {
		t.Errorf("%d files beside the results", len(entries)-1)
	}
	if _, err := Create(folder.Path); err == nil || !strings.Contains(err.Error(), "holds results already") {
		t.Errorf("writing over results: %v", err)
	}
}

// On a full disk samples and results fail with a line each, said once, and leave no half of the results.
func TestFullDisk(t *testing.T) {
	folder, err := Create(fulldisk.Mount(t, 8))
	if err != nil {
		t.Fatal(err)
	}
	var run Run
	samples, err := folder.Samples(&run, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		if err = samples.Write(Sample{Class: "multi"}); err != nil {
			break
		}
	}
	err = errors.Join(err, samples.Close())
	said.InALine(t, err, "samples/0000.csv: no space left on device")
	err = folder.Write(sample())
	said.InALine(t, err, "write "+filepath.Join(folder.Path, RepeatsFile)+": no space left on device")
	if entries, err := os.ReadDir(folder.Path); err != nil || len(entries) != 1 {
		t.Errorf("%v (%v), want the folder of the samples alone", entries, err)
	}
	if err := folder.Drop(&run); err != nil {
		t.Error(err)
	}
	if err := folder.Write(sample()); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// Readers meet [] and {}, never null, where a list or an object is empty.
func TestEmptyListsAreLists(t *testing.T) {
	folder, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.Write(&Result{Runs: []Run{{Classes: []Class{{Users: []User{{}}}}}}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder.Path, File))
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	notMeasured := map[string]bool{"out_of_order_packets": true, "received_packets": true, "reinjected_packets": true, "energy": true, "host_power": true, "shard": true}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, inner := range v {
				if !notMeasured[key] {
					walk(path+"."+key, inner)
				}
			}
		case []any:
			for _, inner := range v {
				walk(path+"[]", inner)
			}
		case nil:
			t.Errorf("%s is null", path)
		}
	}
	walk("", tree)
}

func TestMetrics(t *testing.T) {
	run := &sample().Runs[0]
	for _, c := range []struct {
		metric, of string
		want       float64
	}{
		{"goodput", "multi", 2},           // (1 + 3)/2
		{"goodput", "", 5.0 / 3},          // (1 + 3 + 1)/3
		{"total_goodput", "multi", 4},     // 1 + 3
		{"path_goodput", "multi/lte", .2}, // 0.5 MB in 20 s
		{"fairness", "multi", .8},         // 4²/(2·10)
		{"fairness", "single", 1},
		{"completion", "multi", 5}, // of the one user whose files came whole
		{"loss", "ap", 1},
		{"marked", "ap", 3},
		{"srtt", "multi", 120}, // (100·2 + 200·0.5)/2.5
		{"out_of_order", "multi", 5},
		{"reinjected", "multi", .5},
		{"energy", "multi", 40},
		{"total_energy", "", 40},
		{"power", "multi", 2},
		{"energy_per_bit", "multi", 2000}, // 40 J/20 Mbit
		{"efficiency", "multi", .5},
		{"rapl_energy", "package-0", 100},
		{"rapl_power", "package-0", 5},
	} {
		m, err := FindMetric(c.metric)
		if err != nil {
			t.Error(err)
			continue
		}
		got, ok := m.Value(run, c.of)
		if !ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s of %q is %v, %v; want %v", c.metric, c.of, got, ok, c.want)
		}
	}
	for metric, of := range map[string]string{"goodput": "none", "loss": "none", "energy": "single", "completion": "single",
		"path_goodput": "multi/eth9", "rapl_power": "dram", "out_of_order": "single"} {
		m, _ := FindMetric(metric)
		if v, ok := m.Value(run, of); ok {
			t.Errorf("%s of %q is %v, though nothing was measured", metric, of, v)
		}
	}
	if _, err := FindMetric("speed"); err == nil || !strings.Contains(err.Error(), "goodput") {
		t.Errorf("unknown metric: %v", err)
	}
}

func TestMeasuresNameTheirSource(t *testing.T) {
	for _, m := range sample().Runs[0].measures() {
		joule := strings.Contains(m.Unit, "J") || strings.Contains(m.Unit, "P0") || m.Unit == "W"
		if (m.Source != "") != joule {
			t.Errorf("%s in %s has source %q", m.Metric, m.Unit, m.Source)
		}
	}
}

func TestJainBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 1000 {
		x := make([]float64, 1+random.IntN(20))
		for i := range x {
			x[i] = random.ExpFloat64()
		}
		low := 1 / float64(len(x))
		if j := jain(x); j < low-1e-12 || j > 1+1e-12 {
			t.Fatalf("jain(%v) = %v, not from %v to 1", x, j, low)
		}
		scaled := make([]float64, len(x))
		for i := range x {
			scaled[i] = 1e6 * x[i]
		}
		if math.Abs(jain(x)-jain(scaled)) > 1e-9 {
			t.Fatalf("jain(%v) depends on the unit", x)
		}
	}
	if j := jain([]float64{5, 0, 0, 0}); math.Abs(j-0.25) > 1e-12 {
		t.Errorf("one of four has all: %v", j)
	}
	if j := jain([]float64{0, 0}); j != 1 {
		t.Errorf("all have nothing: %v", j)
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                                     "results.json, byte 0: unexpected end of JSON input",
		`{"format": "mpcc results", "version"`: "byte 36: unexpected end of JSON input",
		`[1]`:                                  "cannot unmarshal array",
		`{"a": 1}`:                             `is not of mpcc run: its format is "", not "mpcc results"`,
		`{"format": "mpcc results", "version": 9, "tool": "v9"}`: "has version 9; this mpcc reads version 1: read it with the mpcc that wrote it, v9",
	} {
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Read(dir)
		said.InALine(t, err, want)
	}
	_, err := Read(filepath.Join(dir, "nowhere"))
	said.InALine(t, err, "nowhere: no such folder")
	_, err = Read(t.TempDir())
	said.InALine(t, err, "has no results.json")
}

// A folder may be anybody's, and mpcc run as root: neither a name in it nor a link leads to a file outside.
func TestNothingLeadsOut(t *testing.T) {
	parent := t.TempDir()
	secret := filepath.Join(parent, "secret")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	// The files outside are valid: if they were read there would be no error.
	write(secret+"/0000.csv", strings.Join(sampleColumns, ",")+"\n")
	results := func(samples string) string {
		return fmt.Sprintf(`{"format": "mpcc results", "version": 1, "runs": [{"samples": %q}]}`, samples)
	}
	write(secret+"/"+File, results("0000.csv"))

	for name, made := range map[string]func(dir string){
		"a path with ..": func(dir string) { write(dir+"/"+File, results("../secret/0000.csv")) },
		"a whole path":   func(dir string) { write(dir+"/"+File, results(secret+"/0000.csv")) },
		"a link to a file": func(dir string) {
			write(dir+"/"+File, results("0000.csv"))
			link(t, "../secret/0000.csv", dir+"/0000.csv")
		},
		"a link to a folder": func(dir string) {
			write(dir+"/"+File, results("samples/0000.csv"))
			link(t, secret, dir+"/samples")
		},
		"a link to results": func(dir string) { link(t, secret+"/"+File, dir+"/"+File) },
		"a pipe": func(dir string) {
			if err := unix.Mkfifo(dir+"/"+File, 0o644); err != nil {
				t.Fatal(err)
			}
		},
	} {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		made(dir)
		r, err := Read(dir)
		if err == nil {
			err = r.Runs[0].ReadSamples(func(Sample) {})
		}
		said.InALine(t, err, dir+": ")
	}
}

// A link is followed if the user names it, but not if it is in a folder that is written to.
func TestLinksOfTheUser(t *testing.T) {
	parent := t.TempDir()
	real := filepath.Join(parent, "real")
	folder, err := Create(real)
	if err != nil {
		t.Fatal(err)
	}
	run := Run{}
	w, err := folder.Samples(&run, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), folder.Write(&Result{Runs: []Run{run}}), folder.Close()); err != nil {
		t.Fatal(err)
	}
	link(t, real, filepath.Join(parent, "mine"))
	r, err := Read(filepath.Join(parent, "mine"))
	if err == nil {
		err = r.Runs[0].ReadSamples(func(Sample) {})
	}
	if err != nil {
		t.Error(err)
	}

	dir := filepath.Join(parent, "theirs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, real, dir+"/"+samplesFolder)
	if folder, err = Create(dir); err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if _, err := folder.Samples(new(Run), 1); err == nil {
		t.Error("samples were written through a link")
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestSamples(t *testing.T) {
	folder, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var run Run
	w, err := folder.Samples(&run, 3)
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{
		{-1.5, "multi", 0, 1, "wlan", 10, nil, 25.125, 1e6, 0, 0},
		{0.1, "multi, and more", 12, 2, "lte", 20, of(uint32(15)), 0, 0, 1 << 40, 3},
	}
	for _, s := range want {
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run.folder = folder.Path
	path := filepath.Join(folder.Path, run.Samples)
	var got []Sample
	if err := run.ReadSamples(func(s Sample) { got = append(got, s) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	none := func(Sample) {}
	for _, c := range []struct{ old, new, want string }{
		{"-1.500", "soon", `line 2: strconv.ParseFloat: parsing "soon"`},
		{"srtt_ms", "srtt", "its columns are"},
		{",wlan", "", "wrong number of fields"},
	} {
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		said.InALine(t, run.ReadSamples(none), c.want)
	}
}

// One row for each run and metric: those of classes and, of links, those that the scenario speaks of.
func TestRepeats(t *testing.T) {
	r := sample()
	r.Expect.Figures = append(r.Expect.Figures, Figure{Kind: Bars, Select: Select{Metric: "loss", Of: "ap"}})
	var text strings.Builder
	if err := WriteRepeats(&text, []Labelled{{"first", r}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	if want := "run,repeat,seed,metric,of,unit,source,value,faults,cc"; lines[0] != want {
		t.Errorf("columns %s, want %s", lines[0], want)
	}
	for _, want := range []string{
		"first,1,9,goodput,multi,Mbit/s,,2,too slow,lia",
		"first,1,9,loss,ap,%,,1,too slow,lia",
		"first,1,9,energy,multi,J,model,40,too slow,lia",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no row %s in %s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "marked") {
		t.Error("there are metrics of links that the scenario does not speak of")
	}
}

// A user that moved little weighs little: 10 and 30 J for 1 and 9 Mbit are 4 µJ a bit, not the 6.67 of the users' mean.
func TestRatiosAreOfSums(t *testing.T) {
	r := &Run{Classes: []Class{{Name: "all", Users: []User{
		{Bytes: 125_000, Active: 1, Energy: &Energy{Joules: 10}}, {Bytes: 1_125_000, Active: 1, Energy: &Energy{Joules: 30}},
	}}}}
	for name, want := range map[string]float64{"energy_per_bit": 4000, "efficiency": 10. / 40} {
		m, err := FindMetric(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := m.Value(r, "all"); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, %v; want %v", name, got, ok, want)
		}
		if got := m.Values(r, "all"); len(got) != 2 {
			t.Errorf("%s has %v of two users", name, got)
		}
	}
}

// Two users on one host and one on another: bases for 20 and 5 s, and 10, 30 and 20 Mbit at twice 0.01.
func TestHostEnergy(t *testing.T) {
	r := &Run{Classes: []Class{{Name: "all", HostPower: &HostPower{"i7", 1, .01, 2}, Users: []User{
		{Host: "a", Bytes: 1_250_000, Active: 20}, {Host: "a", Bytes: 3_750_000, Active: 10}, {Host: "b", Bytes: 2_500_000, Active: 5},
	}}, {Name: "other"}}}
	m, err := FindMetric("host_energy")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := m.Value(r, "all"); !ok || math.Abs(got-(20+5+.02*60)) > 1e-9 {
		t.Errorf("%v, %v", got, ok)
	}
	if _, ok := m.Value(r, "other"); ok {
		t.Error("hosts without a profile have an energy")
	}
}

// 2 of 2.5 MB.
func TestPathShare(t *testing.T) {
	m, err := FindMetric("path_share")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := m.Value(&sample().Runs[0], "multi/wlan"); !ok || got != 80 {
		t.Errorf("%v, %v", got, ok)
	}
}
