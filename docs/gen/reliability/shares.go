// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/test/verified"
)

// shownShares is the control whose shares are told line by line.
const shownShares = "lia"

// share is a line's division in one column: the goodput of the connection with subflows, and that of each other connection,
// divided by the same two goodputs in the reference column, which has one TCP connection in place of the subflows.
type share struct {
	own, others float64
	aboveEqual  bool // the connection with subflows has more than each other connection has
}

func (s share) isLow() bool    { return s.own < 0.9 }
func (s share) isHigh() bool   { return s.own > 1.15 && s.aboveEqual }
func (s share) isHarmed() bool { return s.others < 0.9 && s.aboveEqual }

// shares are of the lines that have been measured under a column and its reference.
func (p part) shares(column, reference string) (all []share) {
	for _, c := range p.cells {
		if c.Column != column {
			continue
		}
		if s, ok := p.share(c.Row, column, reference); ok {
			all = append(all, s)
		}
	}
	return all
}

func (p part) share(line, column, reference string) (share, bool) {
	own, others := p.goodput(line, column, verified.GoodputOwn), p.goodput(line, column, verified.GoodputOthers)
	fairOwn, fairOthers := p.goodput(line, reference, verified.GoodputOwn), p.goodput(line, reference, verified.GoodputOthers)
	return share{own / fairOwn, others / fairOthers, own > others}, own > 0 && fairOwn > 0
}

// writeShares writes what the lines have together, a row for each congestion control under each scheduler; and below
// that, each line under shownShares.
func (p part) writeShares(w *strings.Builder, root string, s verified.Sweep) error {
	if len(p.table) == 0 {
		w.WriteString("Not yet.\n\n")
		return nil
	}
	w.WriteString("| | lines | own | others' | low | high | harmed |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for _, column := range s.Columns() {
		all := p.shares(column, s.Shared)
		if column == s.Shared || len(all) == 0 {
			continue
		}
		w.WriteString("| " + column)
		if p.isOlder(func(c verified.Cell) bool { return c.Column == column || c.Column == s.Shared }) {
			w.WriteString(older)
		}
		var own, others []float64
		var low, high, harmed int
		for _, one := range all {
			own, others = append(own, one.own), append(others, one.others)
			if one.isLow() {
				low++
			}
			if one.isHigh() {
				high++
			}
			if one.isHarmed() {
				harmed++
			}
		}
		fmt.Fprintf(w, " | %d | %s | %s | %d | %d | %d |\n", len(all), spread(own), spread(others), low, high, harmed)
	}
	w.WriteString("\n")
	columns := []string{shownShares, verified.Under(shownShares, s.Scheduler)}
	fmt.Fprintf(w, "| line | subflows' RTTs, ms | others | `%s`, Mbit/s | `%s` |\n|---|---|---|---:|---:|---:|\n",
		s.Shared, strings.Join(columns, "` | `"))
	return p.writeNetworks(w, root, s, func(line *scenario.Scenario, name string) string {
		row := fmt.Sprintf("%s | %.1f : %.1f", describe(line),
			p.goodput(name, s.Shared, verified.GoodputOwn), p.goodput(name, s.Shared, verified.GoodputOthers))
		for _, column := range columns {
			row += " | "
			if one, ok := p.share(name, column, s.Shared); ok {
				row += fmt.Sprintf("%.2f : %.2f", one.own, one.others)
			}
		}
		return row
	})
}

// spread is the geometric mean of ratios, and the tenths with the least and the most.
func spread(ratios []float64) string {
	slices.Sort(ratios)
	logs := 0.
	for _, r := range ratios {
		logs += math.Log(r)
	}
	n := len(ratios)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", math.Exp(logs/float64(n)), ratios[n/10], ratios[n-1-n/10])
}

// writeNetworks writes a row for each network of the scenario, as a scenario with subflows, and when all that was measured.
func (p part) writeNetworks(w *strings.Builder, root string, s verified.Sweep, row func(of *scenario.Scenario, name string) string) error {
	file, err := scenario.Load(filepath.Join(root, s.File))
	if err != nil {
		return err
	}
	for _, run := range file.Runs(false) {
		name := run.Point[s.Rows]
		if run.Point["cc"] == shownShares && run.Repeat == 0 && p.goodput(name, shownShares, verified.GoodputOwn) > 0 {
			fmt.Fprintf(w, "| %s |\n", row(run.Scenario, name))
		}
	}
	w.WriteString("\n")
	p.writeWhen(w)
	return nil
}

// describe tells of a line its rate and queue, the RTTs of the user's ways, and how many others there are with which RTT.
func describe(s *scenario.Scenario) string {
	var line, others string
	var rtts []string
	for i := range s.Links {
		l := &s.Links[i]
		rtt := fmt.Sprintf("%.0f", 2*time.Duration(l.Delay).Seconds()*1000)
		switch {
		case l.Name == "line":
			line = fmt.Sprintf("%.0f Mbit/s, %d packets", float64(l.Rate)/1e6, l.Queue.Packets)
		case l.Between[1] == s.Users[0].From:
			rtts = append(rtts, rtt)
		case l.Between[1] == s.Users[1].From:
			others = fmt.Sprintf("%d, %s ms", s.Users[1].Count, rtt)
		}
	}
	return line + " | " + strings.Join(rtts, " ") + " | " + others
}
