// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/test/verified"
)

// worse is the ratio below which a household counts as worse: most means of ten runs of the same thing differ by less.
const worse = 0.95

// writeDrawn writes what the households have together, a row for each congestion control under each scheduler; and below that,
// each household under shownShares.
func (p part) writeDrawn(w *strings.Builder, root string, s verified.Sweep) error {
	if len(p.table) == 0 {
		w.WriteString("Not yet.\n\n")
		return nil
	}
	fmt.Fprintf(w, "| | households | own | below %.2f of `%s` | below %.2f of `tcp` | others' |\n|---|---:|---:|---:|---:|---:|\n",
		worse, s.Apart, worse)
	for _, column := range s.Columns() {
		var own, others []float64
		var belowApart, belowTCP int
		for _, c := range p.cells {
			if c.Column != column {
				continue
			}
			ratio, measured := p.ratio(c.Row, column, s.Apart, verified.GoodputOwn)
			if !measured {
				continue
			}
			own = append(own, ratio)
			if ratio < worse {
				belowApart++
			}
			if ratio, measured := p.ratio(c.Row, column, "tcp", verified.GoodputOwn); measured && ratio < worse {
				belowTCP++
			}
			if ratio, measured := p.ratio(c.Row, column, s.Apart, verified.GoodputOthers); measured {
				others = append(others, ratio)
			}
		}
		if len(own) == 0 || len(others) == 0 {
			continue
		}
		w.WriteString("| " + column)
		if p.isOlder(func(c verified.Cell) bool { return c.Column == column || c.Column == s.Apart }) {
			w.WriteString(older)
		}
		fmt.Fprintf(w, " | %d | %s | %d | %d | %s |\n", len(own), spread(own), belowApart, belowTCP, spread(others))
	}
	columns := []string{"tcp", shownShares, verified.Under(shownShares, s.Scheduler)}
	fmt.Fprintf(w, "\n| ways | the user | `%s`, Mbit/s | `%s` |\n|---|---|---:|---:|---:|---:|\n", s.Apart, strings.Join(columns, "` | `"))
	return p.writeNetworks(w, root, s, func(home *scenario.Scenario, name string) string {
		row := fmt.Sprintf("%s | %.1f", describeHousehold(home), p.goodput(name, s.Apart, verified.GoodputOwn))
		for _, column := range columns {
			row += " | "
			if ratio, ok := p.ratio(name, column, s.Apart, verified.GoodputOwn); ok {
				row += fmt.Sprintf("%.2f", ratio)
			}
		}
		return row
	})
}

// ratio is a goodput in one column over that in another.
func (p part) ratio(row, column, reference, whose string) (ratio float64, measured bool) {
	over, under := p.goodput(row, column, whose), p.goodput(row, reference, whose)
	return over / under, over > 0 && under > 0
}

// describeHousehold tells of each way rate, RTT, jitter, losses and queue, and what the user does there.
func describeHousehold(s *scenario.Scenario) string {
	milliseconds := func(d scenario.Duration) float64 { return time.Duration(d).Seconds() * 1000 }
	user := &s.Users[0]
	line := slices.IndexFunc(s.Links, func(l scenario.Link) bool { return l.Name == "line" })
	var ways []string
	for i := range s.Links {
		l := &s.Links[i]
		if l.Between[1] != user.From {
			continue
		}
		queue := l
		if l.Rate == 0 {
			queue = &s.Links[line]
		}
		way := fmt.Sprintf("%.0f Mbit/s, %.0f ms", float64(queue.Rate)/1e6, 2*milliseconds(l.Delay))
		if l.Jitter > 0 {
			way += fmt.Sprintf(" ± %.1f", milliseconds(l.Jitter))
		}
		if l.Loss > 0 {
			way += fmt.Sprintf(", %.2f %% lost", float64(l.Loss))
		}
		ways = append(ways, fmt.Sprintf("%s, %d packets", way, queue.Queue.Packets))
	}
	does := "downloads"
	switch {
	case user.Traffic.Kind == "file":
		does = "fetches files"
	case line >= 0:
		does = "downloads, as somebody else does by the first way"
	}
	return strings.Join(ways, "; ") + " | " + does
}
