// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/test/benched"
)

const (
	aimGoodput = 0.98 // of reno's, at least
	aimCost    = 2.1  // of the yardstick's net time, at most
)

func (b *bench) report() (*benched.Report, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	r := &benched.Report{
		Kernel:  unix.ByteSliceToString(uts.Release[:]),
		Machine: unix.ByteSliceToString(uts.Machine[:]),
		CPUs:    runtime.NumCPU(),
		Rounds:  b.rounds,
		Seconds: b.span.Seconds(),
	}
	for _, c := range b.cells {
		for _, cc := range c.controls {
			if c.timed {
				r.Cost = append(r.Cost, c.cost(cc))
			} else {
				r.Goodput = append(r.Goodput, c.goodput(cc))
			}
		}
	}
	return r, nil
}

// over returns the median and the range of f over the rounds.
func (c *cell) over(f func(map[string]sample) float64) benched.Figure {
	var all []float64
	for _, round := range c.rounds {
		all = append(all, f(round))
	}
	slices.Sort(all)
	n := len(all)
	return benched.Figure{Median: (all[(n-1)/2] + all[n/2]) / 2, Low: all[0], High: all[n-1]}
}

func (c *cell) goodput(cc string) benched.Goodput {
	return benched.Goodput{
		Condition: c.condition, Subflows: c.subflows, Control: cc,
		Rate:   c.over(func(r map[string]sample) float64 { return r[cc].rate }),
		OfReno: c.over(func(r map[string]sample) float64 { return r[cc].rate / r[reno].rate }),
		CPU:    c.over(func(r map[string]sample) float64 { return r[cc].cpu / (r[cc].rate * r[cc].seconds / 8e9) }),
	}
}

func (c *cell) cost(cc string) benched.Cost {
	own := c.over(func(r map[string]sample) float64 { return r[empty].emptyCall() }).Median
	k := benched.Cost{
		Condition: c.condition, Subflows: c.subflows, Control: cc,
		PerACK: c.over(func(r map[string]sample) float64 { return r[cc].perACK(0) }),
		OfYardstick: c.over(func(r map[string]sample) float64 {
			return r[cc].perACK(0) / r[yardstick].perACK(0)
		}),
		Net:       c.over(func(r map[string]sample) float64 { return r[cc].perACK(own) }),
		Calls:     c.over(func(r map[string]sample) float64 { return r[cc].calls() }),
		Callbacks: map[string]benched.Callback{},
	}
	// Where it gives up slow start at once, it sees a hundredth of the others' ACKs, each of which costs more; where
	// ACKs find warm caches, it costs less than the measuring varies.
	theirs := c.over(func(r map[string]sample) float64 { return r[yardstick].perACK(own) }).Median
	share := c.over(func(r map[string]sample) float64 { return r[yardstick].calls() / r[cc].calls() }).Median
	if share > 0.5 && theirs > 0 {
		k.NetOfYardstick = k.Net.Median / theirs
	}
	total := map[string]usage{}
	for _, round := range c.rounds {
		for name, u := range round[cc].callbacks {
			t := total[name]
			total[name] = usage{t.Calls + u.Calls, t.Nanoseconds + u.Nanoseconds}
		}
	}
	for name, u := range total {
		if u.Calls > 0 {
			k.Callbacks[name] = benched.Callback{Calls: u.Calls, Mean: float64(u.Nanoseconds) / float64(u.Calls)}
		}
	}
	return k
}

// perACK is the callback that the kernel calls for each ACK outside recovery.
const perACK = "cong_avoid"

// perACK returns the time in all callbacks per ACK, in ns. own, the part of each measured call that the measuring
// itself took, is subtracted.
func (s sample) perACK(own float64) float64 {
	var ns float64
	for _, u := range s.callbacks {
		ns += float64(u.Nanoseconds) - float64(u.Calls)*own
	}
	return ns / float64(s.callbacks[perACK].Calls)
}

// calls returns the ACKs per second.
func (s sample) calls() float64 { return float64(s.callbacks[perACK].Calls) / s.seconds }

// emptyCall returns the time in ns that the kernel measures for a callback that does nothing.
func (s sample) emptyCall() float64 {
	u := s.callbacks["pkts_acked"]
	return float64(u.Nanoseconds) / float64(u.Calls)
}

// spread writes a figure with its range, in a unit.
func spread(f benched.Figure, format string, unit float64) string {
	return fmt.Sprintf(format+"\t"+format+" .. "+format, f.Median/unit, f.Low/unit, f.High/unit)
}

// printReport writes a report as tables.
func printReport(w io.Writer, r *benched.Report) error {
	fmt.Fprintf(w, "Linux %s, %s, %d CPUs; %d rounds of %g s; median and lowest .. highest round\n",
		r.Kernel, r.Machine, r.CPUs, r.Rounds, r.Seconds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	title := ""
	for _, g := range r.Goodput {
		if g.Condition != title {
			title = g.Condition
			fmt.Fprintf(t, "\nGoodput, %d subflows, %s; aim: at least %.2f of reno's\n", g.Subflows, title, aimGoodput)
			fmt.Fprintf(t, "control\tGbit/s\t\tof reno\t\t\tCPU s/GB\t\n")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", g.Control, spread(g.Rate, "%.3f", 1e9), spread(g.OfReno, "%.2f", 1), ofGoodput(g),
			spread(g.CPU, "%.2f", 1))
	}
	title = ""
	for _, c := range r.Cost {
		if c.Condition != title {
			title = c.Condition
			fmt.Fprintf(t, "\nTime per ACK in all callbacks, %s; aim: net at most %.1f of %s\n", title, aimCost, yardstick)
			fmt.Fprintf(t, "subflows\tcontrol\tns\t\tof %s\t\tnet ns\t\tof %s\t\tACK/s\n", yardstick, yardstick)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f\n", c.Subflows, c.Control,
			spread(c.PerACK, "%.0f", 1), spread(c.OfYardstick, "%.2f", 1), spread(c.Net, "%.0f", 1), netRatio(c), ofCost(c),
			c.Calls.Median)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nEach call's time includes what the kernel takes to measure it. Net times do not: the time of the empty\n"+
		"callback of %s is subtracted for each call. Calls at opening and closing are left out.\n", empty)
	return err
}

// ofGoodput says whether the aim is reached.
func ofGoodput(g benched.Goodput) string {
	switch {
	case isReference(g.Control):
		return ""
	case g.OfReno.Median >= aimGoodput:
		return "reached"
	}
	return "short of it"
}

func netRatio(c benched.Cost) string {
	if c.NetOfYardstick == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", c.NetOfYardstick)
}

// ofCost says whether the aim is reached.
func ofCost(c benched.Cost) string {
	switch {
	case isReference(c.Control):
		return ""
	case c.NetOfYardstick == 0:
		return "not comparable"
	case c.NetOfYardstick <= aimCost:
		return "reached"
	}
	return "short of it"
}
