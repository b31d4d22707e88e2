// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/test/verified"
)

// writeSweep writes two tables of ratios of goodputs. In networks whose paths share nothing, the user's goodput is divided by the
// goodput in the column s.Apart. In networks with a shared line, the user's goodput and the goodput of the others on the line are
// divided by those in the column s.Shared.
func (p part) writeSweep(w *strings.Builder, s verified.Sweep) {
	if len(p.table) == 0 {
		w.WriteString("Not yet.\n\n")
		return
	}
	var apart, shared []string
	for _, c := range p.cells {
		networks := &apart
		if p.carried(c.Row, c.Column, verified.GoodputOthers) > 0 {
			networks = &shared
		}
		if p.carried(c.Row, c.Column, verified.GoodputOwn) > 0 && !slices.Contains(*networks, c.Row) {
			*networks = append(*networks, c.Row)
		}
	}
	p.writeRatios(w, s, "nothing shared, own", s.Apart, apart, verified.GoodputOwn)
	p.writeRatios(w, s, "shared, own : others'", s.Shared, shared, verified.GoodputOwn, verified.GoodputOthers)
	var kernels, dates, commits []string
	for _, r := range p.table {
		kernels, dates, commits = append(kernels, r.Kernel), append(dates, r.Date), append(commits, r.Commit)
	}
	fmt.Fprintf(w, "%d of %d measured, %s, on Linux %s, at commit %s.\n\n", len(p.table), len(p.cells), span(dates), distinct(kernels), distinct(commits))
}

// carried is a goodput in Mbit/s; 0 if it has not been measured.
func (p part) carried(row, column, whose string) float64 {
	r, _ := p.table.Find(verified.Cell{Row: row, Column: column})
	return r.Figures[whose]
}

// writeRatios writes a row for each network: the goodputs with the column to compare with, and those with every other column over
// them.
func (p part) writeRatios(w *strings.Builder, s verified.Sweep, what, over string, networks []string, goodputs ...string) {
	if len(networks) == 0 {
		return
	}
	columns := slices.DeleteFunc(s.Columns(), func(name string) bool { return name == over })
	fmt.Fprintf(w, "| %s | `%s`, Mbit/s | `%s` |\n|---|%s\n", what, over, strings.Join(columns, "` | `"), strings.Repeat("---:|", len(columns)+1))
	for _, network := range networks {
		fmt.Fprintf(w, "| %s", network)
		if p.isOlder(network) {
			w.WriteString(older)
		}
		for _, name := range append([]string{over}, columns...) {
			var shown []string
			for _, whose := range goodputs {
				switch value, whole := p.carried(network, name, whose), p.carried(network, over, whose); {
				case value == 0 || whole == 0:
				case name == over:
					shown = append(shown, fmt.Sprintf("%.1f", value))
				default:
					shown = append(shown, fmt.Sprintf("%.2f", value/whole))
				}
			}
			fmt.Fprintf(w, " | %s", strings.Join(shown, " : "))
		}
		w.WriteString(" |\n")
	}
	w.WriteString("\n")
}

// isOlder says whether something in a row was measured with an algorithm or a scenario that has changed since.
func (p part) isOlder(row string) bool {
	return slices.ContainsFunc(p.cells, func(c verified.Cell) bool {
		r, found := p.table.Find(c)
		return c.Row == row && found && !r.Of(c)
	})
}
