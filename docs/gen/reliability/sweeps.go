// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/test/verified"
)

// writeSweep writes the goodputs of a sweep: a row for each network, a column for each congestion control or scheduler.
// Where the paths share nothing, a cell shows the user's goodput over that in the column s.Apart. Where the paths share a
// line with other users, a cell shows the user's goodput and the others', both over those in the column s.Shared.
func (p part) writeSweep(w *strings.Builder, root string, s verified.Sweep) error {
	if len(p.table) == 0 {
		w.WriteString("Not yet.\n\n")
		return nil
	}
	capacities, err := capacities(root, s)
	if err != nil {
		return err
	}
	var apart, shared []string
	for _, c := range p.cells {
		networks := &apart
		if p.goodput(c.Row, c.Column, verified.GoodputOthers) > 0 {
			networks = &shared
		}
		if p.goodput(c.Row, c.Column, verified.GoodputOwn) > 0 && !slices.Contains(*networks, c.Row) {
			*networks = append(*networks, c.Row)
		}
	}
	p.writeRatios(w, s, "nothing shared, own", s.Apart, apart, capacities, verified.GoodputOwn)
	p.writeRatios(w, s, "shared, own : others'", s.Shared, shared, nil, verified.GoodputOwn, verified.GoodputOthers)
	p.writeWhen(w)
	return nil
}

// writeWhen says how much of a table was measured, when and on what.
func (p part) writeWhen(w *strings.Builder) {
	var kernels, dates, commits []string
	for _, r := range p.table {
		kernels, dates, commits = append(kernels, r.Kernel), append(dates, r.Date), append(commits, r.Commit)
	}
	on := distinct(kernels)
	if on == result.Simulated {
		on = "in the simulator"
	} else {
		on = "on Linux " + on
	}
	fmt.Fprintf(w, "%d of %d measured, %s, %s, at commit %s.\n\n",
		len(p.table), len(p.cells), span(dates), on, distinct(commits))
}

// capacities returns what all links of the user carry, in Mbit/s of content, in each network whose links do not change.
func capacities(root string, s verified.Sweep) (map[string]float64, error) {
	const content = 1420. / 1514 // its part of a full frame
	file, err := scenario.Load(filepath.Join(root, s.File))
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for _, run := range file.Runs(false) {
		sum, user := 0., &run.Scenario.Users[0]
		for i := range run.Scenario.Links {
			l := &run.Scenario.Links[i]
			if l.Between[1] != user.From {
				continue
			}
			shape := &l.Shape
			if user.Direction == "up" && l.Back != nil {
				shape = l.Back
			}
			sum += float64(shape.Rate) / 1e6 * content
		}
		changes := slices.ContainsFunc(run.Scenario.Events, func(e scenario.Event) bool { return e.Rate != nil || e.Loss != nil })
		if network := run.Point[s.Rows]; !changes {
			found[network] = sum
		}
	}
	return found, nil
}

// goodput is in Mbit/s; 0 if not measured.
func (p part) goodput(row, column, whose string) float64 {
	r, _ := p.table.Find(verified.Cell{Row: row, Column: column})
	return r.Figures[whose]
}

// writeRatios writes a table with a row for each network: what all links carry, where capacities are given; the goodputs in
// the reference column; and the goodputs in every other column, as ratios to those.
func (p part) writeRatios(w *strings.Builder, s verified.Sweep, title, reference string, networks []string,
	capacities map[string]float64, goodputs ...string) {
	if len(networks) == 0 {
		return
	}
	columns := slices.DeleteFunc(s.Columns(), func(name string) bool { return name == reference })
	fmt.Fprintf(w, "| %s | ", title)
	if capacities != nil {
		w.WriteString("all links, Mbit/s | ")
	}
	fmt.Fprintf(w, "`%s`, Mbit/s | `%s` |\n|---|", reference, strings.Join(columns, "` | `"))
	if capacities != nil {
		w.WriteString("---:|")
	}
	fmt.Fprintf(w, "%s\n", strings.Repeat("---:|", len(columns)+1))
	for _, network := range networks {
		fmt.Fprintf(w, "| %s", network)
		if p.isOlder(func(c verified.Cell) bool { return c.Row == network }) {
			w.WriteString(older)
		}
		if capacities != nil {
			name, _ := verified.Setup(network)
			shown := ""
			if capacity := capacities[name]; capacity > 0 {
				shown = fmt.Sprintf("%.1f", capacity)
			}
			fmt.Fprintf(w, " | %s", shown)
		}
		for _, name := range append([]string{reference}, columns...) {
			var shown []string
			for _, whose := range goodputs {
				switch value, compared := p.goodput(network, name, whose), p.goodput(network, reference, whose); {
				case value == 0 || compared == 0:
				case name == reference:
					shown = append(shown, fmt.Sprintf("%.1f", value))
				default:
					shown = append(shown, fmt.Sprintf("%.2f", value/compared))
				}
			}
			fmt.Fprintf(w, " | %s", strings.Join(shown, " : "))
		}
		w.WriteString(" |\n")
	}
	w.WriteString("\n")
}

// isOlder says whether one of some cells was measured with an algorithm or a scenario that has changed since.
func (p part) isOlder(chosen func(verified.Cell) bool) bool {
	return slices.ContainsFunc(p.cells, func(c verified.Cell) bool {
		r, found := p.table.Find(c)
		return chosen(c) && found && !r.Of(c)
	})
}
