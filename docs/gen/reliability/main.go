// SPDX-License-Identifier: Apache-2.0

// Command reliability writes docs/reliability.md and docs/performance.md from the records of make verify in
// docs/reliability, from docs/bench.json, and from texts beside this file.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/test/verified"
)

//go:embed head.md
var head string

//go:embed distributions.md
var distributions string

//go:embed others.md
var others string

func main() {
	log.SetFlags(0)
	out := flag.String("out", "docs", "the folder to write reliability.md and performance.md to")
	flag.Parse()
	for name, write := range map[string]func(*strings.Builder, string) error{
		"reliability.md": reliability, "performance.md": performance,
	} {
		var page strings.Builder
		page.WriteString("<!-- Written by docs/gen/reliability from docs/reliability and docs/bench.json; do not edit. -->\n")
		err := write(&page, ".")
		if err == nil {
			err = os.WriteFile(filepath.Join(*out, name), []byte(page.String()), 0o644)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

// part is a part's cells with their records.
type part struct {
	cells []verified.Cell
	table verified.Table
}

func read(root, name string) (p part, err error) {
	if p.cells, err = verified.Cells(root, name); err != nil {
		return p, err
	}
	p.table, err = verified.Read(root, name)
	return p, err
}

func reliability(w *strings.Builder, root string) error {
	parts := map[string]part{}
	for _, name := range verified.Parts {
		var err error
		if parts[name], err = read(root, name); err != nil {
			return err
		}
	}
	w.WriteString(head)
	writeKernels(w, parts[verified.Kernels])
	w.WriteString(distributions)
	for section := range strings.SplitSeq(others, "<!-- part ") {
		name, text, found := strings.Cut(section, " -->\n")
		if !found {
			w.WriteString(section)
			continue
		}
		sweep, is := verified.Sweeps[name]
		switch {
		case name == verified.Verdicts:
			parts[name].writeVerdicts(w)
		case name == verified.Prices:
			parts[name].writePrices(w)
		case name == verified.Shares:
			if err := parts[name].writeShares(w, root, sweep); err != nil {
				return err
			}
		case name == verified.Drawn:
			if err := parts[name].writeDrawn(w, root, sweep); err != nil {
				return err
			}
		case is:
			if err := parts[name].writeSweep(w, root, sweep); err != nil {
				return err
			}
		default:
			parts[name].writeRows(w)
		}
		w.WriteString(text)
	}
	return nil
}

// writeRows writes a part without columns: a row for each of its cells, with all that is known of it.
func (p part) writeRows(w *strings.Builder) {
	w.WriteString("| | | found | kernel | measured | at commit |\n|---|---|---|---|---|---|\n")
	for _, c := range p.cells {
		r, _ := p.table.Find(c)
		var found []string
		for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
			found = append(found, fmt.Sprintf("%s: %.0f", name, r.Figures[name]))
		}
		if r.Said != "" {
			found = append(found, r.Said)
		}
		fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s | %s |\n", c.Row, p.cell(c.Row, c.Column),
			strings.ReplaceAll(strings.Join(found, "; "), "|", `\|`), r.Kernel, r.Date, r.Commit)
	}
	w.WriteString("\n")
}

// older marks a record about something that has changed since. make check-generated takes no notice of it: else each
// change of the code would have to be verified at once.
const older = " (older)"

// cell returns what a table shows of a cell.
func (p part) cell(row, column string) string {
	i := slices.IndexFunc(p.cells, func(c verified.Cell) bool { return c.Row == row && c.Column == column })
	if i < 0 {
		return "–"
	}
	r, found := p.table.Find(p.cells[i])
	if !found {
		return "not yet"
	}
	state := map[verified.State]string{
		verified.Passed: "✓", verified.Refused: "refused", verified.NotRun: "not run", verified.Failed: "**failed**",
	}[r.State]
	if !r.Of(p.cells[i]) {
		state += older
	}
	return state
}

func writeKernels(w *strings.Builder, p part) {
	w.WriteString("| |")
	for _, row := range verified.KernelRows {
		fmt.Fprintf(w, " %s |", row)
	}
	w.WriteString(" instructions verified |\n|---|" + strings.Repeat("---|", len(verified.KernelRows)+1) + "\n")
	for _, id := range verified.Objects() {
		fmt.Fprintf(w, "| `%s` |", id)
		for _, row := range verified.KernelRows {
			fmt.Fprintf(w, " %s |", p.cell(row, id))
		}
		most := 0.0
		for _, r := range p.table {
			if r.Column == id {
				most = max(most, r.Figures["verified_instructions"])
			}
		}
		fmt.Fprintf(w, " %.0f |\n", most)
	}
	w.WriteString("\n| | release | first and last measured | at commit | remarks |\n|---|---|---|---|---|\n")
	for _, row := range verified.KernelRows {
		var releases, dates, commits, remarks []string
		for _, r := range p.table {
			if r.Row != row {
				continue
			}
			releases, dates, commits = append(releases, r.Kernel), append(dates, r.Date), append(commits, r.Commit)
			if r.Said != "" {
				remarks = append(remarks, r.Said)
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", row, distinct(releases), span(dates), distinct(commits), distinct(remarks))
	}
	w.WriteString("\n")
}

// distinct lists each text once.
func distinct(texts []string) string {
	slices.Sort(texts)
	return strings.ReplaceAll(strings.Join(slices.Compact(texts), ", "), "|", `\|`)
}

// span is from the first to the last of dates.
func span(dates []string) string {
	if len(dates) == 0 {
		return "–"
	}
	first, last := slices.Min(dates), slices.Max(dates)
	if first == last {
		return first
	}
	return first + " to " + last
}
