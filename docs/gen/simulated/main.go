// SPDX-License-Identifier: Apache-2.0

// Command simulated writes into docs/simulator.md how near the simulator comes to the kernel: the goodputs of
// docs/results beside those of docs/results/simulated.csv, which -run writes by simulating the same scenarios.
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/report"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/run"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// experiment is a scenario, with what is changed of its sweep: axis=value,value.
type experiment struct {
	name string
	set  []string
}

var experiments = []experiment{
	{"scenario-a", nil}, {"scenario-b", nil}, {"scenario-c", nil}, {"mpcubic-fairness", nil},
	{"delay-difference", nil}, {"wlan-3g", []string{"kb=400,1000"}}, {"wlan-wlan", []string{"kb=400,1000"}}, {"wifi-4g", nil},
	{"household", nil}, {"plain", nil}, {"power", nil},
}

const (
	kept    = "docs/results"
	csvFile = kept + "/simulated.csv"
	page    = "docs/simulator.md"
	begin   = "<!-- Written by docs/gen/simulated; do not edit up to the next such mark. -->\n"
	end     = "<!-- End of what docs/gen/simulated writes. -->\n"
	goodput = "goodput"
	windows = "windows"
)

// figure is the estimate of a metric of a class at a point of a scenario's sweep. Of windows it is the distance of
// their distribution from the kernel's, and its interval that of the simulator's runs from each other.
type figure struct {
	scenario, metric, of, at string
	n                        int
	mean, low, high          float64
}

func main() {
	log.SetFlags(0)
	again := flag.Bool("run", false, "simulate the scenarios, and write "+csvFile)
	repeats := flag.Int("repeats", 10, "of each point, with -run")
	out := flag.String("out", page, "the file to write the page to")
	flag.Parse()
	if err := write(*again, *repeats, *out); err != nil {
		log.Fatal(err)
	}
}

func write(again bool, repeats int, out string) error {
	if again {
		var all []figure
		for _, e := range experiments {
			figures, err := e.simulate(repeats)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			all = append(all, figures...)
		}
		if err := keep(all); err != nil {
			return err
		}
	}
	simulated, err := readKept()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		return fmt.Errorf("%s lacks the marks between which its table is", page)
	}
	table, err := compare(simulated)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(before+begin+table+end+after), 0o644)
}

// simulate runs the experiment, and estimates what its users got.
func (e experiment) simulate(repeats int) (figures []figure, err error) {
	file, err := scenario.Load(e.name)
	if err != nil {
		return nil, err
	}
	for _, set := range e.set {
		name, values, _ := strings.Cut(set, "=")
		if file, err = file.Set(name, strings.Split(values, ",")...); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "simulated")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, e.name)
	folder, err := result.Create(path)
	if err != nil {
		return nil, err
	}
	done, err := run.Simulate(context.Background(), file, folder, run.Options{Repeats: repeats})
	if err := errors.Join(err, folder.Close()); err != nil {
		return nil, err
	}
	r, err := report.Load(path)
	if err != nil {
		return nil, err
	}
	for _, row := range r.Experiments[0].Rows {
		if o := row.Ours[0]; row.Metric == goodput && row.Of != "" && o.N > 1 {
			figures = append(figures, figure{e.name, goodput, row.Of, describe(row.Point), o.N, o.Mean, *o.Low, *o.High})
		}
	}
	distances, err := distances(e.name, path, done)
	return append(figures, distances...), err
}

// describe names a point by what differs between points.
func describe(p result.Point) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if value := p[name]; value != "default" {
			parts = append(parts, name+"="+value)
		}
	}
	return strings.Join(parts, " ")
}

func keep(all []figure) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	rows := [][]string{{"scenario", "metric", "of", "at", "n", "mean", "low", "high"}}
	for _, f := range all {
		rows = append(rows, []string{
			f.scenario, f.metric, f.of, f.at, strconv.Itoa(f.n), number(f.mean), number(f.low), number(f.high),
		})
	}
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return os.WriteFile(csvFile, b.Bytes(), 0o644)
}

func readKept() (all []figure, err error) {
	text, err := os.ReadFile(csvFile)
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", csvFile, err)
	}
	for _, row := range rows[1:] {
		f := figure{scenario: row[0], metric: row[1], of: row[2], at: row[3]}
		_, err := fmt.Sscan(strings.Join(row[4:], " "), &f.n, &f.mean, &f.low, &f.high)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", csvFile, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// kernelOf returns the kernel's goodputs of a scenario's classes, by class and point.
func kernelOf(name string) (rows []report.Row, err error) {
	r, err := report.Read(filepath.Join(kept, name+".json"))
	if err != nil {
		return nil, err
	}
	for _, e := range r.Experiments {
		for _, row := range e.Rows {
			if row.Metric == goodput && row.Of != "" && len(row.Ours) > 0 && row.Ours[0].N > 1 {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// within says whether all that a kernel's point says is what a simulated one is, whose sweep may have more axes.
func within(kernel result.Point, at string) bool {
	parts := strings.Fields(at)
	for name, value := range kernel {
		is := func(part string) bool { return strings.HasPrefix(part, name+"=") }
		if value == "default" && slices.ContainsFunc(parts, is) || value != "default" && !slices.Contains(parts, name+"="+value) {
			return false
		}
	}
	return true
}

// pair is a figure beside the kernel's.
type pair struct {
	figure
	kernel report.Estimate
}

func (p pair) off() float64   { return p.mean/p.kernel.Mean - 1 }
func (p pair) overlaps() bool { return p.low <= *p.kernel.High && p.high >= *p.kernel.Low }

// near says whether the figure is within 5 % of the kernel's, or within the kernel's own interval.
func (p pair) near() bool {
	return max(p.off(), -p.off()) <= 0.05 || p.mean >= *p.kernel.Low && p.mean <= *p.kernel.High
}

// pairs returns those figures that there are of the kernel too.
func pairs(simulated []figure) (all []pair, err error) {
	kernel := map[string][]report.Row{}
	for _, f := range simulated {
		if f.metric != goodput {
			continue
		}
		if kernel[f.scenario] == nil {
			if kernel[f.scenario], err = kernelOf(f.scenario); err != nil {
				return nil, err
			}
		}
		for _, row := range kernel[f.scenario] {
			if row.Of == f.of && within(row.Point, f.at) {
				all = append(all, pair{f, row.Ours[0]})
			}
		}
	}
	return all, nil
}

// compare writes the tables.
func compare(simulated []figure) (string, error) {
	all, err := pairs(simulated)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	near, overlap := 0, 0
	b.WriteString("| scenario | class | at | kernel | simulated | difference |\n|---|---|---|---:|---:|---:|\n")
	for _, p := range all {
		difference := fmt.Sprintf("%+.1f %%", 100*p.off())
		if p.near() {
			near++
		} else {
			difference = "**" + difference + "**"
		}
		if p.overlaps() {
			overlap++
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s ± %s | %s ± %s | %s |\n", p.scenario, p.of, strings.ReplaceAll(p.at, "=", " "),
			digits(p.kernel.Mean, 3), digits((*p.kernel.High-*p.kernel.Low)/2, 2),
			digits(p.mean, 3), digits((p.high-p.low)/2, 2), difference)
	}
	fmt.Fprintf(&b, "\n%d of the %d are within 5 %% of the kernel's or within the kernel's interval; the others are bold. "+
		"%d of the pairs of intervals overlap.\n",
		near, len(all), overlap)
	b.WriteString("\n| windows of | class | at | from the kernel's | from each other |\n|---|---|---|---:|---:|\n")
	for _, f := range simulated {
		if f.metric == windows {
			fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f to %.2f |\n",
				f.scenario, f.of, strings.ReplaceAll(f.at, "=", " "), f.mean, f.low, f.high)
		}
	}
	return b.String(), nil
}

func digits(v float64, n int) string { return strconv.FormatFloat(v, 'g', n, 64) }
