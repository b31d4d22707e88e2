// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/choose"
)

// What is said before the tables, between them and after them.
//
//go:embed page.md
var words string

//go:embed kernel.csv
var beside []byte

// fill puts generated parts in place of their names in page.md.
func fill() string {
	page := "<!-- Written by docs/gen/choose from its page.md and internal/choose; do not edit. -->\n" + words
	for name, part := range map[string]func() string{
		"recommendations": recommendations, "table": controls, "asides": asides, "extremes": extremes,
		"schedulers": schedulers, "paper": paper,
		"couple": couple, "kernel": kernel, "versions": versions,
	} {
		page = strings.ReplaceAll(page, "{{"+name+"}}\n", part())
	}
	return page
}

// asItComes are the controls of the kernel and of mpcc, with what a host has that sets nothing else.
func asItComes() (all []choose.Contestant) {
	names := []string{"cubic", "reno"}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			names = append(names, e.Name)
		}
	}
	for _, n := range names {
		all = append(all, choose.Contestant{CC: n, Scheduler: "default", Tuning: "default"})
	}
	return all
}

func recommendations() string {
	var b strings.Builder
	for i := range choose.Rows {
		r := &choose.Rows[i]
		a := r.Advice()
		fmt.Fprintf(&b, "- **%s** (row `%s`; %s): ", r.Title, r.Name, r.Who)
		if a.Nothing() {
			b.WriteString("load nothing.")
		} else {
			fmt.Fprintf(&b, "`%s`. It gains: %s.", a.Load, list(a.Gains))
		}
		for _, t := range a.Trades {
			cost := "nothing that is certain"
			if t.Cost != nil {
				cost = says(t.Cost)
			}
			fmt.Fprintf(&b, "\n  To trade: `%s` has %s; it costs %s.", t.Load, says(t.Gain), cost)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func says(f *choose.Figure) string {
	return fmt.Sprintf("%s of %s (%s)", f.Change(), choose.Noun(f.Metric), choose.FindCell(f.Cell).Says)
}

func list(all []*choose.Figure) string {
	parts := make([]string, len(all))
	for i, f := range all {
		parts[i] = says(f)
	}
	return strings.Join(parts, "; ")
}

// change is a table's entry: what a figure is more or less than the kernel's, in percent.
func change(f *choose.Figure) string {
	if f == nil || math.IsNaN(f.Ratio) {
		return ""
	}
	if f.Ratio == 0 {
		return "**none**"
	}
	if f.Low <= 1 && f.High >= 1 {
		return "·"
	}
	text := fmt.Sprintf("%+.0f", 100*(f.Ratio-1))
	if math.Abs(f.Ratio-1) < 0.1 {
		text = fmt.Sprintf("%+.1f", 100*(f.Ratio-1))
	}
	text = strings.Replace(text, "-", "−", 1)
	if f.Gain().Better() {
		return "**" + text + "**"
	}
	return text
}

func value(f *choose.Figure) string {
	units := map[string]string{
		choose.Goodput: "Mbit/s", choose.Others: "Mbit/s", choose.Completion: "s", choose.RTT: "ms",
		choose.Energy: "nJ/bit", choose.Metered: "MB", choose.Harm: "%",
	}
	return fmt.Sprintf("%.3g %s", f.Mean, units[f.Metric])
}

func header(b *strings.Builder, first string, names []choose.Contestant, last ...string) {
	cells := []string{first, "metric", "`cubic`"}
	for _, c := range names {
		c.Tuning = "default" // the heading says it
		cells = append(cells, "`"+c.String()+"`")
	}
	cells = append(cells, last...)
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(cells, " | "), strings.Repeat("---|", len(cells)))
}

func line(b *strings.Builder, first string, metric string, cell string, of []choose.Contestant, last ...string) {
	kernel := choose.Find(cell, metric, choose.Kernel)
	if kernel == nil {
		return
	}
	parts := []string{first, choose.Noun(metric), value(kernel)}
	measured := false
	for _, c := range of {
		f := choose.Find(cell, metric, c)
		measured = measured || f != nil
		parts = append(parts, change(f))
	}
	if !measured {
		return
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(append(parts, last...), " | "))
}

// controls is the table.
func controls() string {
	var b strings.Builder
	of := asItComes()[1:]
	header(&b, "row, condition", of, "best", "what that costs")
	for _, r := range choose.Rows {
		for i := range r.Cells {
			c := &r.Cells[i]
			best, cost := bestOf(c)
			line(&b, "`"+r.Name+"`: "+c.Says, c.Metric, c.Name, of, best, cost)
		}
	}
	return b.String()
}

// bestOf says what is best in a cell, and what that costs whom.
func bestOf(c *choose.Cell) (best, cost string) {
	top := c.Top()
	if len(top) == 0 {
		return "", ""
	}
	if slices.ContainsFunc(top, func(f choose.Figure) bool { return f.Contestant == choose.Kernel }) {
		return "none is told from `cubic`", ""
	}
	if !top[0].Gain().Better() {
		return fmt.Sprintf("`%s`, by less than 2 %%", top[0].Contestant), ""
	}
	var names, costs []string
	for _, f := range top {
		names = append(names, "`"+f.String()+"`")
	}
	for _, metric := range append([]string{choose.Goodput}, choose.Asides...) {
		if f := choose.Find(c.Name, metric, top[0].Contestant); f != nil && f.Gain().Worse() {
			costs = append(costs, choose.Noun(metric)+" "+f.Change())
		}
	}
	if len(costs) == 0 {
		costs = []string{"nothing that is certain"}
	}
	return strings.Join(names, ", "), strings.Join(costs, ", ")
}

// asides are what controls cost or spare beside what the user looks at first.
func asides() string {
	var b strings.Builder
	of := asItComes()[1:]
	header(&b, "condition", of)
	for _, metric := range append(slices.Clone(choose.Asides), choose.Goodput) {
		for _, r := range choose.Rows {
			for _, c := range r.Cells {
				if metric != c.Metric {
					line(&b, c.Says, metric, c.Name, of)
				}
			}
		}
	}
	for _, r := range choose.Rows {
		for _, c := range r.Cells {
			kernel := choose.Find(c.Name, choose.Harm, choose.Kernel)
			if kernel == nil {
				continue
			}
			fmt.Fprintf(&b, "| %s | harm: what others lose to the user | %s |", c.Says, value(kernel))
			for _, o := range of {
				if f := choose.Find(c.Name, choose.Harm, o); f != nil {
					fmt.Fprintf(&b, " %.0f %%", f.Mean)
				}
				b.WriteString(" |")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// extremes names the best and the worst of each control.
func extremes() string {
	var b strings.Builder
	b.WriteString("| control | best | worst | `mpcc list` |\n|---|---|---|---|\n")
	for _, c := range asItComes()[1:] {
		best, worst := choose.Extremes(c)
		said := func(f *choose.Figure, none string) string {
			if f == nil {
				return none
			}
			return says(f)
		}
		word := "the kernel's"
		if !c.Kernels() {
			word = choose.Word(func(o choose.Contestant) bool { return o.CC == c.CC })
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c, said(best, "nowhere better than `cubic` by 2 %"),
			said(worst, "nowhere worse than `cubic` by 2 %"), word)
	}
	return b.String()
}

// with returns the contestants of some kind that were measured anywhere, in an order.
func with(is func(choose.Contestant) bool) (all []choose.Contestant) {
	for _, f := range choose.Figures() {
		if is(f.Contestant) && !slices.Contains(all, f.Contestant) {
			all = append(all, f.Contestant)
		}
	}
	slices.SortFunc(all, func(a, b choose.Contestant) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func schedulers() string {
	of := with(func(c choose.Contestant) bool { return c.Scheduler != "default" })
	var b strings.Builder
	header(&b, "condition", of)
	for _, r := range choose.Rows {
		for _, c := range r.Cells {
			for _, metric := range append([]string{c.Metric}, choose.Asides...) {
				line(&b, c.Says, metric, c.Name, of)
			}
		}
	}
	return b.String()
}

// paper compares the papers' choices with mpcc's defaults.
func paper() string { return tuned("paper") }

// couple shows what controls are that couple all subflows.
func couple() string { return tuned("couple=always") }

func tuned(how string) string {
	of := with(func(c choose.Contestant) bool { return c.Tuning == how })
	var b strings.Builder
	header(&b, "condition", of)
	for _, r := range choose.Rows {
		for _, c := range r.Cells {
			for _, metric := range append([]string{c.Metric}, choose.Asides[:2]...) {
				line(&b, c.Says, metric, c.Name, of)
			}
		}
	}
	return b.String()
}

// kernel sets what was measured on a kernel beside what was simulated.
func kernel() string {
	figures, err := choose.Parse(beside)
	if err != nil {
		panic(onKernel + ": " + err.Error())
	}
	var b strings.Builder
	b.WriteString("| condition | metric | contestant | repeats | kernel | simulated | difference |\n" +
		"|---|---|---|---|---|---|---|\n")
	for i := range figures {
		f := &figures[i]
		s := choose.Find(f.Cell, f.Metric, f.Contestant)
		if s == nil || f.Metric == choose.Harm {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %d | %s | %s | %+.1f %% |\n",
			choose.FindCell(f.Cell).Says, choose.Noun(f.Metric), f.Contestant, f.Repeats,
			value(f), value(s), 100*(s.Mean/f.Mean-1))
	}
	return b.String()
}

// versions names those of mpcc that the figures are of.
func versions() string {
	var all []string
	for _, f := range choose.Figures() {
		if v := "`" + f.Mpcc + "`"; !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return "- Versions of mpcc that measured it: " + strings.Join(all, ", ") + ".\n"
}
