// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/internal/choose"
)

func TestGenerated(t *testing.T) {
	text, err := os.ReadFile("../../choose.md")
	if err != nil || string(text) != fill() {
		t.Errorf("docs/choose.md is not what its sources give, %v: run make generate and commit", err)
	}
	if strings.Contains(fill(), "{{") {
		t.Error("a part of the page is not filled in")
	}
}

// folder writes what a run of choose-shared leaves: the values of repeats at points.
func folder(t *testing.T, rows ...string) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "choose-shared-more")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "run,repeat,seed,metric,of,unit,source,value,faults,cc,scheduler,tuning,where\n" + strings.Join(rows, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(at, "repeats.csv"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "results.json"), []byte(`{"tool": "v1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestFigures(t *testing.T) {
	var rows []string
	add := func(seed int, metric, of string, value float64, cc, faults string) {
		rows = append(rows, fmt.Sprintf("x,%d,%d,%s,%s,,,%g,%s,%s,default,default,both",
			seed, seed, metric, of, value, faults, cc))
	}
	for seed := range 10 {
		noise := 1 + 0.01*float64(seed%3-1)
		add(seed, "goodput", "user", 10*noise, "cubic", "")
		add(seed, "goodput", "user", 8, "lia", "")
		add(seed, "goodput", "others", 4, "cubic", "")
		add(seed, "goodput", "others", 6, "lia", "")
		add(seed, "goodput", "others", 8, "none", "")
		add(seed, "fairness", "user", 1, "lia", "")
	}
	add(10, "goodput", "user", 1000, "lia", "too busy")
	m := measured{}
	if err := m.read(folder(t, rows...)); err != nil {
		t.Fatal(err)
	}
	figures := m.figures()
	find := func(metric, cc string) choose.Figure {
		i := slices.IndexFunc(figures, func(f choose.Figure) bool { return f.Metric == metric && f.CC == cc })
		if i < 0 {
			t.Fatalf("no %s of %s", metric, cc)
		}
		return figures[i]
	}
	if len(figures) != 6 {
		t.Errorf("there are %d figures: %+v", len(figures), figures)
	}
	if f := find(choose.Goodput, "cubic"); f.Cell != "shared-both" || f.Ratio != 1 ||
		f.Low != 1 || f.High != 1 || f.Repeats != 10 {
		t.Errorf("the kernel's own is %+v", f)
	}
	// Student's t for 2.5 % and 9 degrees is 2.262; the spread of the logarithms is 0.00876.
	f := find(choose.Goodput, "lia")
	if math.Abs(f.Ratio-0.8008) > 1e-3 || math.Abs(math.Log(f.High/f.Ratio)-2.262*0.00876/math.Sqrt(10)) > 2e-4 ||
		math.Abs(f.Low*f.High-f.Ratio*f.Ratio) > 1e-9 {
		t.Errorf("LIA has %v, %v to %v", f.Ratio, f.Low, f.High)
	}
	if f := find(choose.Others, "lia"); math.Abs(f.Ratio-1.5) > 1e-9 {
		t.Errorf("others get %+v", f)
	}
	if f := find(choose.Harm, "lia"); math.Abs(f.Mean-25) > 1e-9 {
		t.Errorf("LIA harms by %+v", f)
	}
	if f := find(choose.Harm, "cubic"); math.Abs(f.Mean-50) > 1e-9 {
		t.Errorf("CUBIC harms by %+v", f)
	}
	if text := string(table(figures)); !strings.Contains(text,
		"\nshared-both,lia,default,default,others,10,6,1.5,1.5,1.5,v1\n") {
		t.Errorf("the table is\n%s", text)
	}
}

func TestWrongFolders(t *testing.T) {
	good := folder(t, "x,1,1,goodput,user,,,many,,lia,default,default,both")
	for _, path := range []string{filepath.Join(t.TempDir(), "nowhere"), folder(t), good} {
		if err := (measured{}).read(path); err == nil {
			t.Errorf("%s is taken", path)
		}
	}
}
