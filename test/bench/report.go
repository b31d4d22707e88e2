// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

const (
	aimGoodput = 0.98 // of reno's, at least
	aimCost    = 0.75 // of the yardstick's, at most, at 2 subflows
)

// figure is one number over all rounds.
type figure struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

type goodput struct {
	Condition string `json:"condition"`
	Subflows  int    `json:"subflows"`
	Control   string `json:"control"`
	Rate      figure `json:"bits_per_second"`
	OfReno    figure `json:"of_reno"`
}

type cost struct {
	Condition string `json:"condition"`
	Subflows  int    `json:"subflows"`
	Control   string `json:"control"`
	// All callbacks together, by the calls of cong_avoid.
	PerACK      figure `json:"ns_per_ack"`
	OfYardstick figure `json:"of_bpf_cubic"`
	// The same, after taking away what an empty callback shows.
	Net       figure             `json:"net_ns_per_ack"`
	Calls     figure             `json:"cong_avoid_per_second"`
	Callbacks map[string]callout `json:"callbacks"`
}

// callout is one callback over all rounds.
type callout struct {
	Calls uint64  `json:"calls"`
	Mean  float64 `json:"ns_per_call"`
}

type report struct {
	Kernel  string    `json:"kernel"`
	Machine string    `json:"machine"`
	CPUs    int       `json:"cpus"`
	Rounds  int       `json:"rounds"`
	Seconds float64   `json:"seconds"`
	Goodput []goodput `json:"goodput"`
	Cost    []cost    `json:"cost"`
}

func (b *bench) report() (*report, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	r := &report{
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
func (c *cell) over(f func(map[string]sample) float64) figure {
	var all []float64
	for _, round := range c.rounds {
		all = append(all, f(round))
	}
	slices.Sort(all)
	n := len(all)
	return figure{Median: (all[(n-1)/2] + all[n/2]) / 2, Low: all[0], High: all[n-1]}
}

func (c *cell) goodput(cc string) goodput {
	return goodput{
		Condition: c.condition, Subflows: c.subflows, Control: cc,
		Rate:   c.over(func(r map[string]sample) float64 { return r[cc].rate }),
		OfReno: c.over(func(r map[string]sample) float64 { return r[cc].rate / r[reno].rate }),
	}
}

func (c *cell) cost(cc string) cost {
	own := c.over(func(r map[string]sample) float64 { return r[empty].emptyCall() }).Median
	k := cost{
		Condition: c.condition, Subflows: c.subflows, Control: cc,
		PerACK: c.over(func(r map[string]sample) float64 { return r[cc].perACK(0) }),
		OfYardstick: c.over(func(r map[string]sample) float64 {
			return r[cc].perACK(0) / r[yardstick].perACK(0)
		}),
		Net:       c.over(func(r map[string]sample) float64 { return r[cc].perACK(own) }),
		Calls:     c.over(func(r map[string]sample) float64 { return float64(r[cc].callbacks[perACK].Calls) / r[cc].seconds }),
		Callbacks: map[string]callout{},
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
			k.Callbacks[name] = callout{u.Calls, float64(u.Nanoseconds) / float64(u.Calls)}
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

// emptyCall returns the time in ns that the kernel measures for a callback that does nothing.
func (s sample) emptyCall() float64 {
	u := s.callbacks["pkts_acked"]
	return float64(u.Nanoseconds) / float64(u.Calls)
}

func (f figure) text(format string, unit float64) string {
	return fmt.Sprintf(format+"\t"+format+" .. "+format, f.Median/unit, f.Low/unit, f.High/unit)
}

func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "Linux %s, %s, %d CPUs; %d rounds of %g s; median and lowest .. highest round\n",
		r.Kernel, r.Machine, r.CPUs, r.Rounds, r.Seconds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	title := ""
	for _, g := range r.Goodput {
		if g.Condition != title {
			title = g.Condition
			fmt.Fprintf(t, "\nGoodput, %d subflows, %s; aim: at least %.2f of reno's\n", g.Subflows, title, aimGoodput)
			fmt.Fprintf(t, "control\tGbit/s\t\tof reno\t\t\n")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", g.Control, g.Rate.text("%.3f", 1e9), g.OfReno.text("%.2f", 1), g.verdict())
	}
	title = ""
	for _, c := range r.Cost {
		if c.Condition != title {
			title = c.Condition
			fmt.Fprintf(t, "\nTime per ACK in all callbacks, %s; aim: at most %.2f of %s at 2 subflows, and no more per subflow at 8\n",
				title, aimCost, yardstick)
			fmt.Fprintf(t, "subflows\tcontrol\tns\t\tof %s\t\t\tns by subflow\tnet ns\tACK/s\n", yardstick)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%.0f\t%.0f\t%.0f\n", c.Subflows, c.Control,
			c.PerACK.text("%.0f", 1), c.OfYardstick.text("%.2f", 1), c.verdict(),
			c.PerACK.Median/float64(c.Subflows), c.Net.Median, c.Calls.Median)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nEach call's time includes what the kernel takes to measure it. Net times do not: the time of the empty\n"+
		"callback of %s is subtracted for each call. Calls at opening and closing are left out.\n", empty)
	return err
}

func (g goodput) verdict() string {
	switch {
	case isReference(g.Control):
		return ""
	case g.OfReno.Median >= aimGoodput:
		return "reached"
	}
	return "short of it"
}

func (c cost) verdict() string {
	switch {
	case isReference(c.Control) || c.Subflows != 2:
		return ""
	case c.OfYardstick.Median <= aimCost:
		return "reached"
	}
	return "short of it"
}

func (r *report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
