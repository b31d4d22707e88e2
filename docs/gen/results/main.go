// SPDX-License-Identifier: Apache-2.0

// Command results writes docs/results.md and a page for each experiment, with their plots, from the reports in
// docs/results: NAME.json, of mpcc report -j, and NAME.csv, of mpcc report --csv. What is to be remarked on an experiment is
// in remarks, beside this file.
package main

import (
	"cmp"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/report"
)

const kept = "docs/results"

//go:embed remarks
var remarks embed.FS

const written = "<!-- Written by docs/gen/results from docs/results; do not edit. -->\n"

func main() {
	log.SetFlags(0)
	out := flag.String("out", "docs", "the folder to write results.md, results/NAME.md and results/plots to")
	flag.Parse()
	if err := write(*out); err != nil {
		log.Fatal(err)
	}
}

func write(out string) error {
	experiments, err := read()
	if err != nil {
		return err
	}
	plots := filepath.Join(out, "results", "plots")
	if err := os.RemoveAll(plots); err != nil {
		return err
	}
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return err
	}
	for _, parts := range experiments {
		if err := page(parts, out); err != nil {
			return err
		}
	}
	var claims []report.Experiment
	for _, parts := range experiments {
		if published(parts) {
			claims = append(claims, parts...)
		}
	}
	forest, err := report.Forest(claims)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(plots, "claims.svg"), forest, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "results.md"), []byte(overview(experiments)), 0o644)
}

// read returns the experiments by name: each as the kernel ran it, as it was simulated, or both in this order.
func read() ([][]report.Experiment, error) {
	files, err := filepath.Glob(filepath.Join(kept, "*.json"))
	if err != nil {
		return nil, err
	}
	var all [][]report.Experiment
	for _, file := range files {
		r, err := report.Read(file)
		if err != nil {
			return nil, err
		}
		for i := range r.Experiments {
			e := r.Experiments[i]
			if want := base(&e) + ".json"; filepath.Base(file) != want {
				return nil, fmt.Errorf("%s is of %s: call it %s", file, e.Scenario.Name, want)
			}
			at := slices.IndexFunc(all, func(parts []report.Experiment) bool { return parts[0].Scenario.Name == e.Scenario.Name })
			if at < 0 {
				at, all = len(all), append(all, nil)
			}
			all[at] = append(all[at], e)
		}
	}
	for _, parts := range all {
		slices.SortFunc(parts, func(a, b report.Experiment) int { return cmp.Compare(base(&a), base(&b)) })
	}
	return all, nil
}

// base returns what the files of an experiment begin with.
func base(e *report.Experiment) string {
	if e.Simulated() {
		return e.Scenario.Name + "-simulated"
	}
	return e.Scenario.Name
}

// page writes the page of an experiment, and its plots.
func page(experiments []report.Experiment, out string) error {
	var parts []report.Part
	var sources strings.Builder
	for i := range experiments {
		e := &experiments[i]
		name := base(e)
		plot := func(i int) string { return "plots/" + name + "-" + e.Plots[i].File(i) }
		for j := range e.Plots {
			svg, err := e.Plots[j].SVG()
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(out, "results", plot(j)), svg, 0o644); err != nil {
				return err
			}
		}
		remark, err := remarks.ReadFile("remarks/" + name + ".md")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		parts = append(parts, report.Part{Experiment: e, Remarks: string(remark), Image: plot})
		sources.WriteString(source(e, len(experiments) > 1))
	}
	text := written + report.Markdown(parts...) + sources.String()
	return os.WriteFile(filepath.Join(out, "results", experiments[0].Scenario.Name+".md"), []byte(text), 0o644)
}

// source says where the figures of an experiment are.
func source(e *report.Experiment, of bool) string {
	name, whose := base(e), "Every run's figures"
	if of {
		whose = "Every run's figures, with the kernel"
		if e.Simulated() {
			whose = "Every run's figures, simulated"
		}
	}
	if repeatsAre(name) {
		return fmt.Sprintf("\n%[2]s: [%[1]s.csv](%[1]s.csv); means and verdicts: [%[1]s.json](%[1]s.json).\n", name, whose)
	}
	return fmt.Sprintf("\nMeans and verdicts: [%[1]s.json](%[1]s.json). The kernel's runs are older "+
		"than the CSV of repeats: their intervals cannot be computed again from single figures.\n", name)
}

// repeatsAre says whether the repeats of an experiment are kept.
func repeatsAre(name string) bool {
	_, err := os.Stat(filepath.Join(kept, name+".csv"))
	return err == nil
}

// published says whether an experiment repeats one of a paper.
func published(parts []report.Experiment) bool { return parts[0].Scenario.Setup.Published != "" }

func overview(experiments [][]report.Experiment) string {
	var page strings.Builder
	page.WriteString(written + `# Results

Published experiments, repeated with ` + "`mpcc run`" + `, and two of our own: household and plain. Each has a page with all
figures, plots and the commands that measure them again. Goodput is payload: a link filled with frames of 1500 bytes
carries 0.956 of its rate.

A claim is judged by tests over repeats, corrected for all claims of its experiment
([how](scenarios.md#how-claims-are-judged)): **reproduced**; **contradicted**; **no effect**, where the difference is
certainly too small to matter; **inconclusive**, where the repeats do not tell; **not testable**, where the paper does not
publish, or mpcc does not measure, what it would take. A claim may be reproduced by more or less than the paper says: the
pages say where the published value is outside of our interval.

Every claim has a verdict with the kernel, one by the [simulator](simulator.md), or both. The simulator carries the published
rates and sizes, and as many repeats as a claim needs. What the kernel ran is mostly older than the plans of how many those
are, and has fewer: the pages show how many there are of how many. A claim that a carrier has no runs for is "not
measured" there. The commands below run an experiment as it is; those for exactly what was run are on the pages.

| experiment | with the kernel | simulated | published set-up | ours | again |
|---|---|---|---|---|---|
`)
	kernel, simulated := tally{}, tally{}
	for _, parts := range experiments {
		cells := [2]tally{{}, {}}
		var again []string
		for i := range parts {
			e, carrier, all := &parts[i], 0, kernel
			if e.Simulated() {
				carrier, all = 1, simulated
			}
			cells[carrier].count(e)
			if published(parts) {
				all.count(e)
			}
			again = append(again, "`"+e.Command()+"`")
		}
		last := parts[len(parts)-1].Scenario
		ours := cmp.Or(last.Setup.Ours, last.Title)
		if last.Setup.Simulated != "" {
			ours += "<br>simulated: " + last.Setup.Simulated
		}
		fmt.Fprintf(&page, "| [%[1]s](results/%[1]s.md) | %s | %s | %s | %s | %s |\n", last.Name, cells[0], cells[1],
			cmp.Or(last.Setup.Published, "none: our own"), ours, strings.Join(again, "<br>"))
	}
	fmt.Fprintf(&page, "| papers' claims together | %s | %s | | | |\n", kernel, simulated)
	page.WriteString("\n![All claims of papers; the pages of the experiments have them as tables](results/plots/claims.svg)\n")
	return page.String()
}

// tally has how many claims have which verdict.
type tally map[string]int

const notMeasured = "not measured"

func (t tally) count(e *report.Experiment) {
	for _, c := range e.Claims {
		if len(c.Checks) == 0 && c.Outcome == judge.Inconclusive {
			t[notMeasured]++
		} else {
			t[c.Outcome]++
		}
	}
}

func (t tally) String() string {
	var parts []string
	for _, v := range append(slices.Clone(judge.Verdicts), notMeasured) {
		if t[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", t[v], v))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}
