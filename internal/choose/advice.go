// SPDX-License-Identifier: Apache-2.0

package choose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Asides are the metrics beside a cell's own: what a contestant costs or spares, and whom.
var Asides = []string{RTT, Others, Energy}

// Advice is what is recommended to a kind of user.
type Advice struct {
	// Load is what to load, the zero value where nothing is better than what the kernel has.
	Load Contestant
	// Gains are where Load is certainly better than the kernel's own.
	Gains []*Figure
	// Trades are what is certainly better in one thing, at a cost.
	Trades []Trade
}

// Nothing says that nothing is to be loaded.
func (a *Advice) Nothing() bool { return a.Load == Contestant{} }

// mostGain is what nothing at all counts for, in place of something.
const mostGain = 100

// Trade is what somebody may want to load in spite of its cost.
type Trade struct {
	Load Contestant
	Gain *Figure
	Cost *Figure // the worst that comes with it in the row
}

// FindRow returns the row of that name. There is one for each name that this package gives.
func FindRow(name string) *Row {
	i := slices.IndexFunc(Rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		panic("choose: no row " + name)
	}
	return &Rows[i]
}

// loadable are the contestants that were measured in the whole row as they come, and that are mpcc's.
func (r *Row) loadable() (all []Contestant) {
	for _, f := range In(r.Cells[0].Name, r.Cells[0].Metric) {
		if f.Kernels() || f.Tuning != "default" {
			continue
		}
		if !slices.ContainsFunc(r.Cells, func(c Cell) bool { return Find(c.Name, c.Metric, f.Contestant) == nil }) {
			all = append(all, f.Contestant)
		}
	}
	return all
}

// figures are all of a contestant in the row that can be compared.
func (r *Row) figures(c Contestant) (all []*Figure) {
	for _, cell := range r.Cells {
		for _, metric := range append([]string{cell.Metric}, Asides...) {
			if f := Find(cell.Name, metric, c); f != nil && !math.IsNaN(f.Ratio) {
				all = append(all, f)
			}
		}
		if cell.Metric != Goodput {
			if f := Find(cell.Name, Goodput, c); f != nil {
				all = append(all, f)
			}
		}
	}
	return all
}

// own says whether a figure is of what the user has of the connection.
func own(f *Figure) bool { return f.Metric == Goodput || f.Metric == Completion }

// Advice returns the algorithm that a row recommends. A candidate is certainly not worse by the margin in goodput and
// completion, nor in any other figure of the row. The candidate with the largest gain wins, and of equal candidates the
// last one, such as prefer: it obeys the user's path rules, and without rules sends on the fastest path.
func (r *Row) Advice() Advice { return advice()[r.Name] }

// advice is what each row recommends, by its name.
var advice = sync.OnceValue(func() map[string]Advice {
	all := map[string]Advice{}
	for i := range Rows {
		all[Rows[i].Name] = Rows[i].advise()
	}
	return all
})

func (r *Row) advise() Advice {
	var a Advice
	best := 0.0
	for _, c := range r.loadable() {
		figures := r.figures(c)
		fit, sum := true, 0.0
		var gains []*Figure
		for _, f := range figures {
			g := f.Gain()
			if own(f) && !g.Safe() || g.Loses() && g.Ratio < 1-Margin {
				fit = false
			}
			if g.Better() {
				gains = append(gains, f)
				sum += math.Log(min(g.Ratio, mostGain))
			}
		}
		if fit && sum > 0 && sum >= best {
			best, a.Load, a.Gains = sum, c, gains
		}
	}
	for _, metric := range append([]string{Goodput, Completion, Metered}, Asides...) {
		if t := r.trade(metric); t != nil && t.Load != a.Load {
			a.Trades = append(a.Trades, *t)
		}
	}
	return a
}

// trade returns what gains most by a metric for what it costs; nil if nothing certainly gains a tenth. Of equals it is the
// last: cdd and emreno are lia where they know of no scheduler and no price.
func (r *Row) trade(metric string) *Trade {
	var t *Trade
	best := 0.0
	for _, c := range r.loadable() {
		var gain, cost *Figure
		for _, f := range r.figures(c) {
			g := f.Gain()
			if g.Loses() && (cost == nil || g.Ratio < cost.Gain().Ratio) {
				cost = f
			}
			if f.Metric == metric && g.Low > 1.1 && (gain == nil || g.Ratio > gain.Gain().Ratio) {
				gain = f
			}
		}
		if gain == nil {
			continue
		}
		price := Margin
		if cost != nil {
			price -= math.Log(cost.Gain().Ratio)
		}
		if worth := math.Log(min(gain.Gain().Ratio, mostGain)) / price; worth >= best {
			best, t = worth, &Trade{c, gain, cost}
		}
	}
	return t
}

// Extremes returns where a contestant gains most, and where it loses most, of what the user gets. Either is nil where
// nothing is certain.
func Extremes(c Contestant) (best, worst *Figure) {
	for i := range Rows {
		for _, f := range Rows[i].figures(c) {
			if !own(f) {
				continue
			}
			if g := f.Gain(); g.Better() && (best == nil || g.Ratio > best.Gain().Ratio) {
				best = f
			}
			if g := f.Gain(); g.Worse() && (worst == nil || g.Ratio < worst.Gain().Ratio) {
				worst = f
			}
		}
	}
	return best, worst
}

// Top returns the contestants of a cell as they come that nothing is certainly better than, the best first.
func (c *Cell) Top() []Figure {
	all := slices.DeleteFunc(In(c.Name, c.Metric), func(f Figure) bool { return f.Tuning != "default" })
	slices.SortStableFunc(all, func(a, b Figure) int { return cmp.Compare(b.Gain().Ratio, a.Gain().Ratio) })
	if len(all) == 0 {
		return nil
	}
	least := all[0].Gain().Low
	return slices.DeleteFunc(all, func(f Figure) bool { return f.Gain().High < least })
}

// Change is a gain as people read it: what the figure itself is more or less than the kernel's.
func (f *Figure) Change() string {
	if f.Ratio == 0 {
		return "none"
	}
	if f.Ratio >= 10 {
		return fmt.Sprintf("%.0f times", f.Ratio)
	}
	return fmt.Sprintf("%+.0f %%", 100*(f.Ratio-1))
}

// Words of Word, beside the names of rows.
const (
	WordTrade = "trade" // it gains in one thing and costs in another
	WordNever = "-"     // nothing that was measured speaks for it
)

// Word says in one word, or the names of rows, whom an algorithm is for, by the controls and schedulers that it is
// loaded with.
func Word(of func(Contestant) bool) string {
	var rows []string
	trades := false
	for i := range Rows {
		a := Rows[i].Advice()
		if !a.Nothing() && of(a.Load) {
			rows = append(rows, Rows[i].Name)
		}
		trades = trades || slices.ContainsFunc(a.Trades, func(t Trade) bool { return of(t.Load) })
	}
	switch {
	case len(rows) > 0:
		return strings.Join(rows, ",")
	case trades:
		return WordTrade
	}
	return WordNever
}
