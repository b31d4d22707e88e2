// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/test/benched"
	"github.com/mpcc/mpcc/test/verified"
)

//go:embed performance.md
var performanceHead string

// acks are those in a second at 10 Gbit/s, one for two segments of 1448 bytes.
const acks = 10e9 / 8 / 1448 / 2

func performance(w *strings.Builder, root string) error {
	p, err := read(root, verified.Cost)
	if err != nil {
		return err
	}
	b, err := benched.Read(filepath.Join(root, benched.TimesFile))
	if err != nil {
		return err
	}
	w.WriteString(performanceHead)
	fmt.Fprintf(w, "\n## Congestion controls\n\nLinux %s, %s, %d CPUs; %s.\n\n",
		b.Kernel, b.Machine, b.CPUs, p.measured(verified.CostControls))
	w.WriteString("| | 1 subflow | 2 subflows | 4 subflows | 8 subflows | of a core at 10 Gbit/s, 2 subflows | " +
		"goodput of reno's | CPU s/GB, all of the kernel |\n|---|---|---|---|---|---|---|---|\n")
	var names []string
	for _, c := range b.Cost {
		if !slices.Contains(names, c.Control) {
			names = append(names, c.Control)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "| `%s` |", name)
		for _, subflows := range []int{1, 2, 4, 8} {
			c, found := b.CostOf(benched.Queued, name, subflows)
			if !found {
				w.WriteString(" – |")
				continue
			}
			fmt.Fprintf(w, " %.0f ns (%.0f–%.0f) |", c.Net.Median, c.Net.Low, c.Net.High)
		}
		share, goodput, cpu := "–", "–", "–"
		if c, found := b.CostOf(benched.Queued, name, 2); found {
			share = fmt.Sprintf("%.1f %%", 100*c.Net.Median*1e-9*acks)
		}
		if g, found := b.GoodputOf(name); found {
			goodput, cpu = fmt.Sprintf("%.3f", g.OfReno.Median), fmt.Sprintf("%.2f", g.CPU.Median)
		}
		fmt.Fprintf(w, " %s | %s | %s |\n", share, goodput, cpu)
	}
	for _, section := range []struct{ title, row, unit string }{
		{"The exporter, with 100,000 subflows in the maps", verified.CostExporter, ""},
		{"Commands", verified.CostCommands, " ms"},
	} {
		fmt.Fprintf(w, "\n## %s\n\n", section.title)
		r, found := p.table.Find(verified.Cell{Row: section.row})
		if !found {
			w.WriteString("Not measured yet.\n")
			continue
		}
		fmt.Fprintf(w, "Linux %s; %s.\n\n| | |\n|---|---|\n", r.Kernel, p.measured(section.row))
		for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
			fmt.Fprintf(w, "| `%s` | %.4g%s |\n", name, r.Figures[name], section.unit)
		}
	}
	return nil
}

// measured says when a row was measured.
func (p part) measured(row string) string {
	r, found := p.table.Find(verified.Cell{Row: row})
	if !found {
		return "measured before commits were noted"
	}
	return fmt.Sprintf("measured on %s at commit %s", r.Date, r.Commit)
}
