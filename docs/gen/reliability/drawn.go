// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/test/verified"
)

// A household is told as worse for a ratio below this: ten runs of the same thing differ by less, mostly.
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
	w.WriteString("\n")
	if err := p.writeHouseholds(w, root, s); err != nil {
		return err
	}
	p.writeWhen(w)
	return nil
}

// ratio is a goodput in one column over that in another.
func (p part) ratio(row, column, reference, whose string) (ratio float64, measured bool) {
	over, under := p.goodput(row, column, whose), p.goodput(row, reference, whose)
	return over / under, over > 0 && under > 0
}

// writeHouseholds writes a row for each household: its ways, the goodput under the kernel's control, and over that those under
// shownShares with each scheduler.
func (p part) writeHouseholds(w *strings.Builder, root string, s verified.Sweep) error {
	file, err := scenario.Load(filepath.Join(root, s.File))
	if err != nil {
		return err
	}
	columns := []string{"tcp", shownShares, verified.Under(shownShares, s.Scheduler)}
	fmt.Fprintf(w, "| ways | the user | `%s`, Mbit/s | `%s` |\n|---|---|---:|---:|---:|---:|\n", s.Apart, strings.Join(columns, "` | `"))
	for _, run := range file.Runs(false) {
		home := run.Point[s.Rows]
		own := p.goodput(home, s.Apart, verified.GoodputOwn)
		if run.Point["cc"] != s.Apart || run.Repeat > 0 || own == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s | %.1f", describeHousehold(run.Scenario), own)
		for _, column := range columns {
			shown := ""
			if ratio, ok := p.ratio(home, column, s.Apart, verified.GoodputOwn); ok {
				shown = fmt.Sprintf("%.2f", ratio)
			}
			w.WriteString(" | " + shown)
		}
		w.WriteString(" |\n")
	}
	w.WriteString("\n")
	return nil
}

// describeHousehold tells of each way rate, RTT, jitter, losses and queue, and what the user does there.
func describeHousehold(s *scenario.Scenario) string {
	milliseconds := func(d scenario.Duration) float64 { return time.Duration(d).Seconds() * 1000 }
	user := &s.Users[0]
	rest := s.Links
	var line *scenario.Link
	if i := slices.IndexFunc(rest, func(l scenario.Link) bool { return l.Name == "line" }); i >= 0 {
		line = &rest[i]
	}
	var ways []string
	for i := range rest {
		l := &rest[i]
		if l.Between[1] != user.From {
			continue
		}
		behind := l
		if l.Rate == 0 {
			behind = line
		}
		way := fmt.Sprintf("%.0f Mbit/s, %.0f ms", float64(behind.Rate)/1e6, 2*milliseconds(l.Delay))
		if l.Jitter > 0 {
			way += fmt.Sprintf(" ± %.0f", milliseconds(l.Jitter))
		}
		if l.Loss > 0 {
			way += fmt.Sprintf(", %.2f %% lost", float64(l.Loss))
		}
		ways = append(ways, fmt.Sprintf("%s, %d packets", way, behind.Queue.Packets))
	}
	does := "downloads"
	switch {
	case user.Traffic.Kind == "file":
		does = "fetches files"
	case line != nil:
		does = "downloads, as somebody else does by the first way"
	}
	return strings.Join(ways, "; ") + " | " + does
}
