// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/test/verified"
)

// writeHouseholds writes two tables of ratios of goodputs. In homes whose ways share nothing, a congestion control's goodput is
// over that of the kernel's cubic. In homes behind a shared line, the user's goodput under a congestion control is over the
// user's goodput with a single TCP connection, and the goodput of the others on the line is over theirs in that same case.
func writeHouseholds(w *strings.Builder, p part) {
	if len(p.table) == 0 {
		w.WriteString("Not yet.\n\n")
		return
	}
	var apart, shared []string
	for _, c := range p.cells {
		homes := &apart
		if p.carried(c.Row, c.Column, verified.HouseholdOthers) > 0 {
			homes = &shared
		}
		if p.carried(c.Row, c.Column, verified.HouseholdOwn) > 0 && !slices.Contains(*homes, c.Row) {
			*homes = append(*homes, c.Row)
		}
	}
	p.writeRatios(w, "nothing shared, own", "cubic", apart, verified.HouseholdOwn)
	p.writeRatios(w, "shared, own : others'", "tcp", shared, verified.HouseholdOwn, verified.HouseholdOthers)
	var kernels, dates, commits []string
	for _, r := range p.table {
		kernels, dates, commits = append(kernels, r.Kernel), append(dates, r.Date), append(commits, r.Commit)
	}
	fmt.Fprintf(w, "%d of %d measured, %s, on Linux %s, at commit %s.\n\n", len(p.table), len(p.cells), span(dates), distinct(kernels), distinct(commits))
}

// carried is a goodput in Mbit/s; 0 if it has not been measured.
func (p part) carried(home, cc, whose string) float64 {
	r, _ := p.table.Find(verified.Cell{Row: home, Column: cc})
	return r.Figures[whose]
}

// writeRatios writes a row for each home: the goodputs with one of the columns of Households, and those with every other
// column over them.
func (p part) writeRatios(w *strings.Builder, what, over string, homes []string, goodputs ...string) {
	if len(homes) == 0 {
		return
	}
	columns := slices.DeleteFunc(verified.HouseholdControls(), func(cc string) bool { return cc == over })
	fmt.Fprintf(w, "| %s | `%s`, Mbit/s | `%s` |\n|---|%s\n", what, over, strings.Join(columns, "` | `"), strings.Repeat("---:|", len(columns)+1))
	for _, home := range homes {
		fmt.Fprintf(w, "| %s", home)
		if p.isOlder(home) {
			w.WriteString(older)
		}
		for _, cc := range append([]string{over}, columns...) {
			var shown []string
			for _, whose := range goodputs {
				switch value, whole := p.carried(home, cc, whose), p.carried(home, over, whose); {
				case value == 0 || whole == 0:
				case cc == over:
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
