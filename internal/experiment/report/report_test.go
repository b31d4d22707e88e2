// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

func load(t *testing.T, fixtures ...fixture) *Report {
	t.Helper()
	r, err := Load(folders(t, fixtures...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func folders(t *testing.T, fixtures ...fixture) []string {
	t.Helper()
	var folders []string
	for i, f := range fixtures {
		folder := filepath.Join(t.TempDir(), fmt.Sprintf("run-%d", i))
		f.write(t, folder)
		folders = append(folders, folder)
	}
	return folders
}

func (e *Experiment) row(t *testing.T, metric, of string, point result.Point) Row {
	t.Helper()
	i := slices.IndexFunc(e.Rows, func(r Row) bool { return r.Metric == metric && r.Of == of && maps.Equal(r.Point, point) })
	if i < 0 {
		t.Fatalf("no row of %s of %s at %v", metric, of, point)
	}
	return e.Rows[i]
}

func TestRows(t *testing.T) {
	e := &load(t, scenarioC()).Experiments[0]
	// 1.20, 1.30, 1.40: deviation 0.1, t = 4.303 with two degrees of freedom.
	r := e.row(t, "goodput", "multi", result.Point{"cc": "lia", "n1": "10"})
	near(t, "mean", r.Ours[0].Mean, 1.3, 1e-9)
	near(t, "half", r.Ours[0].half(), 4.303*.1/math.Sqrt(3), 1e-4)
	near(t, "difference", r.theirs(result.Published).Difference[0], 0, 1e-9)
	near(t, "theory", r.theirs(result.Theory).Value, 1.296, 0)
	// A value for any algorithm at 30 users.
	for _, cc := range []string{"lia", "olia"} {
		r := e.row(t, "goodput", "single", result.Point{"cc": cc, "n1": "30"})
		near(t, "optimum", r.theirs(result.Optimum).Value, .76, 0)
	}
	r = e.row(t, "goodput", "single", result.Point{"cc": "lia", "n1": "30"})
	near(t, "difference", r.theirs(result.Published).Difference[0], .42/.38-1, 1e-9)
	if !r.Main || r.Unit != "Mbit/s" || r.Source != "" {
		t.Errorf("goodput is %+v", r)
	}
	// (10+11+12+13+14+30)/6 = 15, and one more at each repeat.
	r = e.row(t, "energy", "multi", result.Point{"cc": "lia", "n1": "10"})
	near(t, "energy", r.Ours[0].Mean, 16, 1e-9)
	if r.Source != result.SourceModel {
		t.Errorf("energy has source %q", r.Source)
	}
	// 200 of 10,000 packets.
	r = e.row(t, "loss", "ap2", result.Point{"cc": "lia", "n1": "10"})
	near(t, "loss", r.Ours[0].Mean, 2, 1e-9)
	if r.Main {
		t.Error("the scenario does not speak of losses")
	}
	near(t, "links' rate", *e.Runs[0].Links.Rate, .01, 1e-9)
	if e.Runs[0].Links.Delay != nil || e.Runs[0].Repeats != 3 {
		t.Errorf("%+v", e.Runs[0])
	}
}

func TestVerdicts(t *testing.T) {
	e := &load(t, scenarioC()).Experiments[0]
	var outcomes []string
	for _, v := range e.Claims {
		outcomes = append(outcomes, v.Outcome)
	}
	if diff := cmp.Diff([]string{judge.Reproduced, judge.Inconclusive, judge.Contradicted, judge.Inconclusive}, outcomes); diff != "" {
		t.Error(diff)
	}
	// .86/.68, .88/.70, .90/.72, repeat by repeat.
	checks := e.Claims[0].Checks
	if len(checks) != 2 {
		t.Fatalf("%d checks, want one at each n1", len(checks))
	}
	near(t, "ratio", checks[0].Ours.Mean, (.86/.68+.88/.70+.90/.72)/3, 1e-9)
	if len(e.Claims[3].Checks) != 0 {
		t.Error("an algorithm that was not run was checked")
	}
}

// A ratio is of as many repeats as the one of its two points that is run less often: so many are planned for it.
func TestPlannedOfRatios(t *testing.T) {
	path := folders(t, scenarioC())[0]
	r, err := result.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Runs {
		r.Runs[i].Planned = map[string]int{"lia": 3, "olia": 7}[r.Runs[i].Point["cc"]]
	}
	if err := must(reopen(t, path)).Write(r); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, v := range must(Load(path)).Experiments[0].Claims {
		for _, check := range v.Checks {
			want := map[string]int{"lia": 3, "olia": 7}[check.Point["cc"]]
			if v.To != nil && v.To.At["cc"] == "lia" {
				want, compared = 3, compared+1
			}
			if check.Planned != want {
				t.Errorf("claim %q at %v has %d planned repeats, want %d", v.Text, check.Point, check.Planned, want)
			}
		}
	}
	if compared == 0 {
		t.Error("no claim compares two algorithms")
	}
}

// A run with a fault counts nowhere, and is named; a claim that was run otherwise than planned says so.
func TestLeftOutAndUnplanned(t *testing.T) {
	f := scenarioC()
	f.expect.Claims = f.expect.Claims[:2]
	f.expect.Claims[0].Plan = &result.Plan{Effect: .1, Spread: .02, Source: "table 6", Power: .9}
	f.expect.Claims[1].Untestable = "a published fair share"
	f.multi["lia"]["10"][2], f.single["lia"]["10"][2] = 9, 9
	path := folders(t, f)[0]
	r, err := result.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Runs {
		r.Runs[i].Planned = 5
		if r.Runs[i].Repeat == 2 && r.Runs[i].Point.Agrees(result.Point{"cc": "lia", "n1": "10"}) {
			r.Runs[i].Faults = []string{"a cat on the keyboard"}
		}
	}
	if err := must(reopen(t, path)).Write(r); err != nil {
		t.Fatal(err)
	}
	e := &must(Load(path)).Experiments[0]
	if ours := e.row(t, "goodput", "multi", result.Point{"cc": "lia", "n1": "10"}).Ours[0]; ours.N != 2 || ours.Mean != 1.25 {
		t.Errorf("with a run left out there are %+v", ours)
	}
	check := e.Claims[0].Checks[0]
	if check.Ours.N != 2 || check.Planned != 5 || *check.Power >= .9 {
		t.Errorf("the claim has %+v, power %v", check, check.Power)
	}
	if e.Claims[1].Outcome != judge.NotTestable {
		t.Errorf("what is not testable is %s", e.Claims[1].Outcome)
	}
	notices := strings.Join(e.Notices(), "\n")
	for _, want := range []string{
		"other runs: cc lia, n1 10, repeat 2: a cat on the keyboard", "run-0: other than the planned number of repeats",
		"Not testable is \"LIA's multipath users get 1.3 times the fair share\", for want of a published fair share.",
	} {
		if !strings.Contains(notices, want) {
			t.Errorf("no notice %q in %q", want, notices)
		}
	}
	for i := range r.Runs {
		r.Runs[i].Faults = []string{"an earthquake"}
	}
	if err := must(reopen(t, path)).Write(r); err != nil {
		t.Fatal(err)
	}
	all := &must(Load(path)).Experiments[0]
	if ours := all.row(t, "goodput", "multi", result.Point{"cc": "lia", "n1": "10"}).Ours[0]; ours.N != 3 || len(all.Claims[0].Checks) != 0 {
		t.Errorf("where all runs have a fault there are %+v, and %d checks", ours, len(all.Claims[0].Checks))
	}
	table := e.ClaimTable()
	if got := table.Rows[0][slices.Index(table.Head, "repeats")]; got != "2 of 5" {
		t.Errorf("the table has %s repeats", got)
	}
}

// reopen opens a run folder to write its results again.
func reopen(t *testing.T, path string) (*result.Folder, error) {
	if err := os.Remove(filepath.Join(path, result.File)); err != nil {
		return nil, err
	}
	folder, err := result.Create(path)
	t.Cleanup(func() { _ = folder.Close() })
	return folder, err
}

func TestCompare(t *testing.T) {
	other := scenarioC()
	other.kernel = "7.2"
	other.multi["lia"]["10"] = []float64{1.17, 1.17, 1.17}
	e := &load(t, scenarioC(), other).Experiments[0]
	if len(e.Runs) != 2 || e.Runs[1].Kernel != "7.2" {
		t.Fatalf("runs %+v", e.Runs)
	}
	r := e.row(t, "goodput", "multi", result.Point{"cc": "lia", "n1": "10"})
	near(t, "second run", r.Ours[1].Mean, 1.17, 1e-9)
	table := e.Main()[0]
	column := slices.Index(table.Head, "against run-0")
	if column < 0 {
		t.Fatalf("columns %v", table.Head)
	}
	if got := table.Rows[0][column]; got != "-10 %" { // 1.17/1.3
		t.Errorf("against the first run: %s", got)
	}
	if n := len(e.Claims[0].Checks); n != 4 {
		t.Errorf("%d checks, want one at each n1 in each run", n)
	}
}

// Two runs of one algorithm each stand side by side.
func TestCompareAlgorithms(t *testing.T) {
	lia, olia := scenarioC(), scenarioC()
	lia.ccs, olia.ccs = []string{"lia"}, []string{"olia"}
	e := &load(t, lia, olia).Experiments[0]
	if !slices.Equal(e.Axes, []string{"n1"}) {
		t.Errorf("axes %v", e.Axes)
	}
	r := e.row(t, "goodput", "multi", result.Point{"n1": "10"})
	near(t, "lia", r.Ours[0].Mean, 1.3, 1e-9)
	near(t, "olia", r.Ours[1].Mean, 1.12, 1e-9)
	if !strings.HasSuffix(e.Runs[0].Label, ", cc lia") || !strings.HasSuffix(e.Runs[1].Label, ", cc olia") {
		t.Errorf("labels %q and %q", e.Runs[0].Label, e.Runs[1].Label)
	}
}

// Pieces show what the whole run does: points from one, further repeats from another.
func TestJoin(t *testing.T) {
	lia, further, olia := scenarioC(), scenarioC(), scenarioC()
	lia.ccs, further.ccs, olia.ccs = []string{"lia"}, []string{"lia"}, []string{"olia"}
	further.seed = 2
	for _, n1 := range []string{"10", "30"} {
		lia.multi["lia"][n1], further.multi["lia"][n1] = lia.multi["lia"][n1][:2], further.multi["lia"][n1][2:]
		lia.single["lia"][n1], further.single["lia"][n1] = lia.single["lia"][n1][:2], further.single["lia"][n1][2:]
	}
	for i, j := range further.joules["lia"] {
		further.joules["lia"][i] = j + 2 // the fixture adds the repeat's number
	}
	lia10 := lia // the points are in order all the same
	lia.n1s, lia10.n1s = []string{"30"}, []string{"10"}
	r, err := Join(folders(t, lia, lia10, further, olia)...)
	if err != nil {
		t.Fatal(err)
	}
	whole := load(t, scenarioC())
	r.Experiments[0].Runs[0].Label = whole.Experiments[0].Runs[0].Label
	for i := range whole.Experiments[0].Claims { // checks name the folder
		for j := range whole.Experiments[0].Claims[i].Checks {
			whole.Experiments[0].Claims[i].Checks[j].Run = "scenario-c"
		}
	}
	if diff := cmp.Diff(whole, r, cmpopts.IgnoreUnexported(Report{})); diff != "" {
		t.Error(diff)
	}
}

// A piece that has further repeats of some points only.
func TestJoinCountsRepeats(t *testing.T) {
	further := scenarioC()
	further.ccs, further.seed = []string{"lia"}, 100
	r, err := Join(folders(t, scenarioC(), further)...)
	if err != nil {
		t.Fatal(err)
	}
	e := &r.Experiments[0]
	if n := e.row(t, "goodput", "multi", result.Point{"cc": "lia", "n1": "10"}).Ours[0].N; n != 6 {
		t.Errorf("%d repeats of lia, want 6", n)
	}
	if table := e.RunTable(); table.Rows[0][slices.Index(table.Head, "repeats")] != "3 to 6" {
		t.Errorf("runs %q", table.Rows)
	}
}

func TestJoinRefuses(t *testing.T) {
	other, again := scenarioC(), scenarioC()
	other.kernel, other.seed = "7.2", 100
	again.seed = 2
	for _, c := range []struct {
		with fixture
		want string
	}{
		{other, "differ in kernel"},
		{scenarioC(), "have the same run (cc lia, n1 10, seed 0)"},
		{again, "have the same run (cc lia, n1 10, seed 2)"},
	} {
		if _, err := Join(folders(t, scenarioC(), c.with)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestScenariosAreNotMixed(t *testing.T) {
	other := scenarioC()
	other.name = "scenario-d"
	if r := load(t, scenarioC(), other); len(r.Experiments) != 2 || len(r.Experiments[0].Runs) != 1 {
		t.Errorf("%d experiments", len(r.Experiments))
	}
}

func TestLoadRefusesUnknownWords(t *testing.T) {
	for want, change := range map[string]func(*result.Expect){
		`claims[0]: unknown metric "speed"`:         func(e *result.Expect) { e.Claims[0].Metric = "speed" },
		`claims[1]: unknown relation "about"`:       func(e *result.Expect) { e.Claims[1].Relation = "about" },
		`claims[0]: unknown metric "beauty"`:        func(e *result.Expect) { e.Claims[0].To.Metric = "beauty" },
		`values[0]: unknown kind "rumoured"`:        func(e *result.Expect) { e.Values[0].Kind = "rumoured" },
		`figures[0]: unknown kind "pie"`:            func(e *result.Expect) { e.Figures[0].Kind = "pie" },
		`figures[3]: unknown trace "temperature"`:   func(e *result.Expect) { e.Figures[3].Metric = "temperature" },
		`figures[1]: lines need the axis that they`: func(e *result.Expect) { e.Figures[1].Over = "" },
	} {
		f := scenarioC()
		change(&f.expect)
		folder := filepath.Join(t.TempDir(), "run")
		f.write(t, folder)
		_, err := Load(folder)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want %q in one line", err, want)
		}
	}
}

func TestReportRoundTrip(t *testing.T) {
	want := load(t, scenarioC())
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	near5 := cmp.Comparer(func(a, b float64) bool { return a == b || math.Abs(a-b) <= 1e-4*max(math.Abs(a), math.Abs(b)) })
	if diff := cmp.Diff(want, got, near5, cmpopts.IgnoreUnexported(Report{})); diff != "" {
		t.Error(diff)
	}
	for _, foreign := range []string{`{}`, `{"format": "mpcc report", "version": 1}`, `[`} {
		if err := os.WriteFile(path, []byte(foreign), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%s: error %v", foreign, err)
		}
	}
}

func TestThinKeepsPeaks(t *testing.T) {
	var data []Datum
	for i := range 20000 {
		data = append(data, Datum{X: float64(i) / 100, Y: 10})
	}
	data[7777].Y, data[13131].Y = 99, 1
	thinned := thin(data)
	if len(thinned) > 2*spans+2 || len(thinned) < spans {
		t.Errorf("%d of 20000 are kept", len(thinned))
	}
	for _, d := range []Datum{data[7777], data[13131]} {
		if !slices.Contains(thinned, d) {
			t.Errorf("%+v is lost", d)
		}
	}
	if !slices.IsSortedFunc(thinned, func(a, b Datum) int { return int(math.Copysign(1, a.X-b.X)) }) {
		t.Error("time runs backwards")
	}
}

// element is an SVG's path or text, with its style.
type element struct{ name, style, path, text string }

func parseSVG(t *testing.T, svg []byte) (root xml.StartElement, elements []element) {
	t.Helper()
	in := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return root, elements
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if root.Name.Local == "" {
				root = token.Copy()
			}
			e := element{name: token.Name.Local}
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "style":
					e.style = a.Value
				case "d":
					e.path = a.Value
				case "href", "src":
					t.Errorf("%s refers to %s", e.name, a.Value)
				}
			}
			elements = append(elements, e)
		case xml.CharData:
			if len(elements) > 0 {
				elements[len(elements)-1].text += string(token)
			}
		}
	}
}

func texts(elements []element) (all []string) {
	for _, e := range elements {
		if e.name == "text" {
			all = append(all, strings.TrimSpace(e.text))
		}
	}
	return all
}

// painted lists the paths of a colour.
func painted(elements []element, property string, t tone) (paths []string) {
	for _, e := range elements {
		if e.name == "path" && strings.Contains(e.style, fmt.Sprintf("%s:#%06X", property, t.light)) {
			paths = append(paths, e.path)
		}
	}
	return paths
}

// extent is the height of a path.
func extent(t *testing.T, path string) float64 {
	t.Helper()
	low, high := math.Inf(1), math.Inf(-1)
	for _, m := range regexp.MustCompile(`[ML][-\d.e]+,([-\d.e]+)`).FindAllStringSubmatch(path, -1) {
		y, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		low, high = min(low, y), max(high, y)
	}
	return high - low
}

func plotsOf(t *testing.T, kind string) []Plot {
	t.Helper()
	var plots []Plot
	for _, p := range load(t, scenarioC()).Experiments[0].Plots {
		if p.Kind == kind {
			plots = append(plots, p)
		}
	}
	if len(plots) == 0 {
		t.Fatalf("no %s", kind)
	}
	return plots
}

func drawn(t *testing.T, p Plot) []element {
	t.Helper()
	svg, err := p.SVG()
	if err != nil {
		t.Fatal(err)
	}
	root, elements := parseSVG(t, svg)
	attributes := map[string]string{}
	for _, a := range root.Attr {
		attributes[a.Name.Local] = a.Value
	}
	if root.Name.Local != "svg" || attributes["role"] != "img" || attributes["viewBox"] == "" {
		t.Errorf("root %s %v", root.Name.Local, attributes)
	}
	if elements[1].name != "title" || strings.TrimSpace(elements[1].text) != p.Title {
		t.Errorf("the first element is %+v, not the title", elements[1])
	}
	if elements[2].name != "desc" || !strings.Contains(elements[2].text, p.Y) {
		t.Errorf("the second element is %+v, not the description", elements[2])
	}
	for _, label := range []string{p.X, p.Y} {
		if !slices.Contains(texts(elements), label) {
			t.Errorf("%s: no label %q in %q", p.Title, label, texts(elements))
		}
	}
	for _, s := range p.Series {
		want := s.Name
		if s.Kind != "" {
			want = s.Kind
		}
		if !slices.Contains(texts(elements), want) {
			t.Errorf("%s: no legend %q", p.Title, want)
		}
	}
	return elements
}

// Both classes under both algorithms: four bars over each of two numbers of users, as high as the means.
func TestBars(t *testing.T) {
	elements := drawn(t, plotsOf(t, result.Bars)[0])
	first := 0.0
	for i, means := range [][2]float64{{1.3, 1.2}, {1.12, 1.1}, {.7, .42}, {.88, .71}} {
		bars := painted(elements, "fill", hues[i])
		if len(bars) != 3 {
			t.Fatalf("hue %d: %d bars, want one in the legend and two", i, len(bars))
		}
		if i == 0 {
			first = extent(t, bars[1])
		}
		for j, mean := range means {
			near(t, "bar", extent(t, bars[1+j])/first, mean/1.3, 2e-3)
		}
		if outlines := painted(elements, "stroke", hues[i]); len(outlines) != 2 {
			t.Errorf("hue %d: %d published values, want 2", i, len(outlines))
		}
	}
}

func TestBoxPlot(t *testing.T) {
	p := plotsOf(t, result.Box)[0]
	if !strings.HasSuffix(p.Y, ", J (model)") {
		t.Errorf("%q does not name the energy's source", p.Y)
	}
	// Over three repeats: 10 to 16, and 30, 31 and 32 beyond the fences.
	b := p.Series[0].Data[0].Box
	if b.N != 18 || b.Low != 10 || b.High != 16 || !slices.Equal(b.Outliers, []float64{30, 31, 32}) {
		t.Errorf("%+v", b)
	}
	elements := drawn(t, p)
	if dots := painted(elements, "fill", hues[0]); len(dots) != 6 {
		t.Errorf("%d outliers are drawn, want 3 at each n1", len(dots))
	}
	if dots := painted(elements, "fill", hues[1]); len(dots) != 0 {
		t.Errorf("%d outliers are drawn where there are none", len(dots))
	}
}

func TestLines(t *testing.T) {
	p := plotsOf(t, result.Lines)[0]
	elements := drawn(t, p)
	if p.Names != nil || p.Series[0].Data[0].X != 10 || p.Series[0].Data[1].X != 30 {
		t.Errorf("numbers are not drawn at their place: %+v", p.Series[0].Data)
	}
	for _, label := range []string{"10", "30"} {
		if !slices.Contains(texts(elements), label) {
			t.Errorf("x axis without %s", label)
		}
	}
	// Legend, the line, and the published one.
	if lines := painted(elements, "stroke", hues[1]); len(lines) < 3 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestTraces(t *testing.T) {
	plots := plotsOf(t, result.Traces)
	if len(plots) != 4 {
		t.Fatalf("%d plots, want cwnd and sequence for each algorithm at n1 10", len(plots))
	}
	for _, p := range plots {
		if len(p.Series) != 3 {
			t.Fatalf("%s has %d subflows, want 3", p.Title, len(p.Series))
		}
		elements := drawn(t, p)
		for i := range 3 {
			if lines := painted(elements, "stroke", hues[i]); len(lines) != 2 {
				t.Errorf("%s, hue %d: %d lines, want one in the legend and one", p.Title, i, len(lines))
			}
		}
	}
	// The third sawtooth ends below 150, after having been there.
	highest := slices.MaxFunc(plots[0].Series[2].Trace, func(a, b Datum) int { return int(a.Y - b.Y) })
	if highest.Y != 149 {
		t.Errorf("the peak of 149 packets is drawn as %v", highest.Y)
	}
}

// Light and dark text, and each hue, stand out from the page (WCAG: 4.5 for text, 3 for graphics).
func TestContrast(t *testing.T) {
	luminance := func(c uint32) float64 {
		sum := 0.0
		for i, weight := range []float64{.0722, .7152, .2126} {
			v := float64(c>>(8*i)&255) / 255
			if v <= .04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+.055)/1.055, 2.4)
			}
			sum += weight * v
		}
		return sum
	}
	contrast := func(a, b uint32) float64 {
		x, y := luminance(a), luminance(b)
		return (max(x, y) + .05) / (min(x, y) + .05)
	}
	for i, c := range append([]tone{ink}, hues...) {
		want := 3.0
		if i == 0 {
			want = 4.5
		}
		if light, dark := contrast(c.light, paper.light), contrast(c.dark, paper.dark); light < want || dark < want {
			t.Errorf("colour %d: contrast %.1f on light, %.1f on dark, want %v", i, light, dark, want)
		}
	}
}

func TestHTML(t *testing.T) {
	f := scenarioC()
	f.name = `<script>alert("&")</script>`
	r := load(t, f)
	page, err := r.page()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(page, []byte("<script")) {
		t.Error("a scenario's text became code")
	}
	in := xml.NewDecoder(bytes.NewReader(page))
	in.Strict, in.AutoClose, in.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	count := map[string]int{}
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		count[start.Name.Local]++
		for _, a := range start.Attr {
			if slices.Contains([]string{"src", "href", "srcset", "data", "action"}, a.Name.Local) {
				t.Errorf("%s refers to %s", start.Name.Local, a.Value)
			}
		}
	}
	e := &r.Experiments[0]
	tables := len(e.Main()) + len(e.Rest()) + 2 // claims, runs
	for name, want := range map[string]int{
		"svg": len(e.Plots), "desc": len(e.Plots), "figure": len(e.Plots), "figcaption": len(e.Plots), "title": 1 + len(e.Plots),
		"table": tables, "caption": tables, "h1": 1, "main": 1,
	} {
		if count[name] != want {
			t.Errorf("%d of %s, want %d", count[name], name, want)
		}
	}
	if bytes.Contains(page, []byte("url(")) || bytes.Contains(page, []byte("@import")) {
		t.Error("the style refers to something else")
	}
	if !bytes.Contains(page, []byte("source: model")) {
		t.Error("the energy's source is not named")
	}
}

func TestQuickIsSaid(t *testing.T) {
	r := load(t, scenarioC())
	e := &r.Experiments[0]
	e.Runs[0].Quick = true
	page, err := r.page()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	for where, said := range map[string]string{"HTML": string(page), "text": text.String(), "Markdown": Markdown(Part{e, "", func(int) string { return "" }})} {
		if !strings.Contains(said, "quick") {
			t.Errorf("%s does not say that the run was quick", where)
		}
	}
}

func TestMarkdown(t *testing.T) {
	r := load(t, scenarioC())
	e := &r.Experiments[0]
	e.Claims[0].Text = "a | b"
	var addresses []int
	page := Markdown(Part{e, "Our remark.", func(i int) string { addresses = append(addresses, i); return fmt.Sprintf("plot-%d.svg", i) }})
	if len(addresses) != len(e.Plots) || strings.Count(page, "\n![") != len(e.Plots) {
		t.Errorf("%d images of %d plots", strings.Count(page, "\n!["), len(e.Plots))
	}
	if !strings.Contains(page, "\nOur remark.\n") || !strings.Contains(page, `a \| b`) {
		t.Error("remark or bar is missing")
	}
	columns := 0
	for _, line := range strings.Split(page, "\n") {
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		if n > 0 && columns > 0 && n != columns {
			t.Errorf("%d bars after %d: %s", n, columns, line)
		}
		columns = n
	}
}

// What the kernel ran and what was simulated stand on one page, each under its own heading with its own claims, command
// and plots; the set-up and the notes are those of the later one.
func TestMarkdownOfTwo(t *testing.T) {
	first, second := load(t, scenarioC()), load(t, scenarioC())
	kernel, simulated := &first.Experiments[0], &second.Experiments[0]
	simulated.Runs[0].Kernel = result.Simulated
	simulated.Scenario.Setup = result.Setup{Published: "a testbed", Ours: "namespaces", Simulated: "ten times as fast"}
	image := func(of string) func(int) string { return func(i int) string { return of + strconv.Itoa(i) } }
	page := Markdown(Part{kernel, "By the kernel.", image("k")}, Part{simulated, "By the simulator.", image("s")})
	at := -1
	for _, want := range []string{
		"\n- Simulated: ten times as fast\n", "\n## With the kernel\n", "`mpcc run scenario-c --set", "\nBy the kernel.\n", "](k0)",
		"\n## Simulated\n", "`mpcc run scenario-c --sim --set", "\nBy the simulator.\n", "](s0)",
	} {
		next := strings.Index(page, want)
		if next <= at {
			t.Fatalf("%q is not there, or not in its place:\n%s", want, page)
		}
		at = next
	}
	if strings.Count(page, "**Claims**") != 2 || strings.Count(page, "# scenario-c\n") != 1 {
		t.Error("not one title and two tables of claims")
	}
}

// The same results give the same files.
func TestSave(t *testing.T) {
	read := func() map[string]string {
		folder := filepath.Join(t.TempDir(), "run")
		scenarioC().write(t, folder)
		r, err := Load(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Save(folder); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, path := range must(filepath.Glob(filepath.Join(folder, "*.*"))) {
			files[filepath.Base(path)] = string(must(os.ReadFile(path)))
		}
		return files
	}
	first, second := read(), read()
	if diff := cmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
	if len(first) != 3+7 { // results.json, repeats.csv, report.html; bars, lines, box, cwnd and sequence of two algorithms
		t.Errorf("files %v", slices.Sorted(maps.Keys(first)))
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// One value, nothing at all, or very large and small ones: axes with at least two numbers, and no endless drawing.
func TestPlotsOfLittle(t *testing.T) {
	for _, y := range []float64{0, 1e-9, 1, 1e12} {
		b := boxed([]float64{y})
		for kind, series := range map[string]Series{
			result.Bars: {Data: []Datum{{Y: y}}}, result.Lines: {Data: []Datum{{X: 3, Y: y}}},
			result.Box: {Data: []Datum{{Y: y, Box: &b}}}, result.Traces: {Trace: Trace{{X: 1, Y: y}}},
		} {
			series.Name = "one"
			p := Plot{Title: kind, Kind: kind, X: "x", Y: "y", Series: []Series{series}}
			if kind == result.Bars || kind == result.Box {
				p.Names = []string{"name"}
			}
			numbers := 0
			for _, text := range texts(drawn(t, p)) {
				if _, err := strconv.ParseFloat(text, 64); err == nil {
					numbers++
				}
			}
			if numbers < 2 {
				t.Errorf("%s of %g has %d numbers on its axes", kind, y, numbers)
			}
		}
	}
}

// The command names the kernel, every variable at the values that were measured, the repeats and the seed.
func TestRerun(t *testing.T) {
	e := &load(t, scenarioC()).Experiments[0]
	if got, want := e.Rerun(nil, 0), "mpcc run scenario-c --set cc=lia,olia --set n1=10,30 --seed 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	e.Runs[0].Machine = "emulated VM"
	if got, want := e.Rerun(result.Point{"n1": "10"}, 3), "mpcc run scenario-c --vm=6.12 --set cc=lia,olia --set n1=10 --repeats 3 --seed 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	e.Runs[0].Machine, e.Runs[0].Kernel = "", result.Simulated
	if got, want := e.Command(), "mpcc run scenario-c --sim"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A row for each check, with its verdict in words and its colour; the published value.
func TestForest(t *testing.T) {
	f := scenarioC()
	published := 1.3
	f.expect.Claims[0].Published = &published
	f.multi["olia"]["30"] = []float64{9, 10, 11} // beyond the axis
	r := load(t, f)
	svg, err := Forest(r.Experiments)
	if err != nil {
		t.Fatal(err)
	}
	_, elements := parseSVG(t, svg)
	words := texts(elements)
	count := map[string]int{}
	for _, w := range words {
		count[w]++
	}
	for want, n := range map[string]int{
		"scenario-c": 1, "OLIA leaves the single-path users more than LIA: n1 10": 1, "Balia does well": 1,
		judge.Reproduced: 1 + 3, judge.Inconclusive: 1 + 1, "not measured": 1, judge.Contradicted: 1,
	} {
		if count[want] != n {
			t.Errorf("%q is there %d times, want %d: %q", want, count[want], n, words)
		}
	}
	rings := 0
	for _, p := range painted(elements, "stroke", ink) {
		if strings.Contains(p, "A") {
			rings++
		}
	}
	if rings != 3 { // in the legend, and beside both checks of the claim
		t.Errorf("%d published values", rings)
	}
	if desc := elements[2]; !strings.Contains(desc.text, "Balia does well: not measured") {
		t.Errorf("the description is %q", desc.text)
	}
}

// Of three repeats a third is up to the smallest, all up to the largest.
func TestCDF(t *testing.T) {
	f := scenarioC()
	f.expect.Figures = []result.Figure{{Title: "Distribution", Kind: result.CDF, Select: result.Select{Metric: "goodput", Of: "multi", At: result.Point{"n1": "10"}}}}
	p := load(t, f).Experiments[0].Plots[0]
	if len(p.Series) != 2 || p.Series[0].Name != "lia" || p.Y != "share of the repeats" {
		t.Fatalf("%+v", p)
	}
	var got []string
	for _, d := range p.Series[0].Data {
		got = append(got, fmt.Sprintf("%.2f %.2f", d.X, d.Y))
	}
	want := []string{"1.20 0.00", "1.20 0.00", "1.20 0.33", "1.30 0.33", "1.30 0.67", "1.40 0.67", "1.40 1.00"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if lines := painted(drawn(t, p), "stroke", hues[0]); len(lines) != 2 {
		t.Errorf("%d lines, want one in the legend and one", len(lines))
	}
}

// Every row of every table is there, with as many cells as the head, and nothing that TeX takes for a command.
func TestLaTeX(t *testing.T) {
	f := scenarioC()
	f.expect.Claims[0].Text = `50 % of R&D_{x} cost $5 #1 ~ \input`
	r := load(t, f)
	var text strings.Builder
	if err := r.LaTeX(&text); err != nil {
		t.Fatal(err)
	}
	e := &r.Experiments[0]
	if n := strings.Count(text.String(), `\toprule`); n != len(e.Main())+1 {
		t.Errorf("%d tables, want %d", n, len(e.Main())+1)
	}
	if want := `50 \% of R\&D\_\{x\} cost \$5 \#1 \textasciitilde{} \textbackslash{}input & `; !strings.Contains(text.String(), want) {
		t.Errorf("no %s in %s", want, text.String())
	}
	columns := 0
	for _, line := range strings.Split(text.String(), "\n") {
		if _, spec, ok := strings.Cut(line, `\begin{tabular}{`); ok {
			columns = len(spec) - 1
		}
		if cells := strings.Count(strings.ReplaceAll(line, `\&`, ""), " & "); strings.HasSuffix(line, `\\`) && cells != columns-1 {
			t.Errorf("%d cells in %d columns: %s", cells+1, columns, line)
		}
	}
}

// 1.26 ± 0.02 is not the published 1.3: the claim holds, but by less.
func TestPublishedOutside(t *testing.T) {
	f := scenarioC()
	less, same := 1.3, 1.26
	f.expect.Claims[0].At = result.Point{"cc": "olia", "n1": "10"}
	for published, want := range map[*float64]string{&less: "1.30, outside", &same: "1.26", nil: "-"} {
		f.expect.Claims[0].Published = published
		table := load(t, f).Experiments[0].ClaimTable()
		if got := table.Rows[0][slices.Index(table.Head, "published")]; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
