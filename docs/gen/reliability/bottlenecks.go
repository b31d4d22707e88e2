// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/test/verified"
)

// writeVerdicts writes how often verdicts were right: a row for each condition, and below what all conditions have together.
func (p part) writeVerdicts(w *strings.Builder) {
	var rights []string
	w.WriteString("| condition |")
	for _, at := range verified.LooksAt {
		rights = append(rights, verified.RightAt(at))
		fmt.Fprintf(w, " %d s |", at)
	}
	rights = append(rights, verified.RightFrom10s, verified.Paused+verified.RightFrom10s)
	w.WriteString(" from 10 s on | with pauses | last subflow right, s | with pauses | Mbit/s |\n|---|" +
		strings.Repeat("---:|", len(verified.LooksAt)+5) + "\n")
	for _, c := range verified.Conditions {
		fmt.Fprintf(w, "| %v", c)
		if p.isOlder(func(cell verified.Cell) bool { return cell.Row == c.Name() }) {
			w.WriteString(older)
		}
		r, _ := p.table.Find(verified.Cell{Row: c.Name()})
		for _, name := range rights {
			w.WriteString(" | " + shown(r, name, "%.0f", "–"))
		}
		for _, name := range []string{verified.LastRight, verified.Paused + verified.LastRight} {
			w.WriteString(" | " + shown(r, name, "%.1f", "never"))
		}
		fmt.Fprintf(w, " | %s |\n", shown(r, verified.Carried, "%.1f", "–"))
	}
	w.WriteString("\n| | looks right from 10 s on, % | last subflow right, s, median |\n|---|---:|---:|\n")
	for _, run := range []string{"", verified.Paused} {
		for _, shared := range []bool{true, false} {
			p.writeSum(w, run, shared)
		}
	}
	w.WriteString("\n")
	p.writeWhen(w)
}

// shown is a figure of a record, or what stands for one that is missing from a record that is there.
func shown(r verified.Record, name, format, missing string) string {
	value, found := r.Figures[name]
	switch {
	case r.State == "":
		return ""
	case !found:
		return missing
	}
	return fmt.Sprintf(format, value)
}

// writeSum writes what the conditions have together in which one queue is shared, or the others, in a run.
func (p part) writeSum(w *strings.Builder, run string, shared bool) {
	right, n, name := 0., 0, map[bool]string{true: "one queue", false: "several queues"}[shared]
	var last []float64
	for _, c := range verified.Conditions {
		r, found := p.table.Find(verified.Cell{Row: c.Name()})
		if !found || c.Shared() != shared {
			continue
		}
		n++
		right += r.Figures[run+verified.RightFrom10s]
		if at, ever := r.Figures[run+verified.LastRight]; ever {
			last = append(last, at)
		}
	}
	if n == 0 {
		return
	}
	if run != "" {
		name += ", with pauses"
	}
	median := "never"
	if slices.Sort(last); n/2 < len(last) { // what never was right sorts behind
		median = fmt.Sprintf("%.1f", last[n/2])
	}
	fmt.Fprintf(w, "| %s | %.1f | %s |\n", name, right/float64(n), median)
}

// writePrices writes what connections carry: a row for each control, a column for each condition. Where paths share
// nothing a cell is over what the kernel's cubic carries there, and else over what the TCP connection beside it does.
func (p part) writePrices(w *strings.Builder) {
	w.WriteString("| control |")
	for _, c := range verified.PriceConditions {
		fmt.Fprintf(w, " %v |", c)
	}
	w.WriteString("\n|---|" + strings.Repeat("---:|", len(verified.PriceConditions)) + "\n")
	for _, column := range verified.PriceColumns() {
		name, always := strings.CutSuffix(column, verified.Always)
		if always {
			name += ", couple=always"
		}
		w.WriteString("| " + name)
		if p.isOlder(func(cell verified.Cell) bool { return cell.Column == column }) {
			w.WriteString(older)
		}
		for _, c := range verified.PriceConditions {
			own, over := p.goodput(c.Name(), column, verified.GoodputOwn), p.goodput(c.Name(), column, verified.GoodputOthers)
			if over == 0 {
				over = p.goodput(c.Name(), "cubic", verified.GoodputOwn)
			}
			w.WriteString(" | ")
			if own > 0 && over > 0 {
				fmt.Fprintf(w, "%.2f", own/over)
			}
		}
		w.WriteString(" |\n")
	}
	w.WriteString("\n")
	p.writeWhen(w)
}
