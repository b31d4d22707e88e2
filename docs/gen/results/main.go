// SPDX-License-Identifier: Apache-2.0

// Command results writes docs/results.md, with its plots, from the reports in docs/results: NAME.json, of
// mpcc report -j. Beside one, NAME.md holds remarks on it.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/report"
)

const kept = "docs/results"

func main() {
	log.SetFlags(0)
	out := flag.String("out", "docs", "the folder to write results.md and results/plots to")
	flag.Parse()
	if err := write(*out); err != nil {
		log.Fatal(err)
	}
}

func write(out string) error {
	files, err := filepath.Glob(filepath.Join(kept, "*.json"))
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
	var page, sections strings.Builder
	page.WriteString(`<!-- Written by docs/gen/results from docs/results; do not edit. -->
# Results

Published experiments, repeated with ` + "`mpcc run`" + ` ([scenarios](scenarios.md)). Figures are means over repeats ± half of
the 95 % confidence interval (Student's t). A claim is reproduced when the whole interval meets its
condition, not reproduced when none of it does, and else undecided. Goodput is payload: a link filled with frames
of 1500 bytes carries 0.956 of its rate. Energy is modelled from the bytes that each interface moved.

| experiment | what it shows | reproduced | not reproduced | undecided |
|---|---|---:|---:|---:|
`)
	for _, file := range files {
		r, err := report.Read(file)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		remarks, err := os.ReadFile(filepath.Join(kept, name+".md"))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		for i := range r.Experiments {
			e := &r.Experiments[i]
			outcomes := map[string]int{}
			for _, c := range e.Claims {
				outcomes[c.Outcome]++
			}
			fmt.Fprintf(&page, "| [%[1]s](#%[1]s) | %s | %d | %d | %d |\n", e.Scenario.Name, e.Scenario.Title,
				outcomes[report.Reproduced], outcomes[report.NotReproduced], outcomes[report.Undecided])
			for j := range e.Plots {
				svg, err := e.Plots[j].SVG()
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(plots, e.Scenario.Name+"-"+e.Plots[j].File(j)), svg, 0o644); err != nil {
					return err
				}
			}
			sections.WriteString("\n" + e.Markdown(string(remarks), func(plot int) string {
				return "results/plots/" + e.Scenario.Name + "-" + e.Plots[plot].File(plot)
			}))
		}
	}
	return os.WriteFile(filepath.Join(out, "results.md"), []byte(page.String()+sections.String()), 0o644)
}
