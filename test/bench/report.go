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
	aimCost    = 2.1  // of the yardstick's net time, at most
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
	// Seconds that the machine's CPUs were busy, sending and receiving, for each 10^9 bytes.
	CPU figure `json:"cpu_seconds_per_gb"`
}

type cost struct {
	Condition string `json:"condition"`
	Subflows  int    `json:"subflows"`
	Control   string `json:"control"`
	// All callbacks together, by the calls of cong_avoid.
	PerACK      figure `json:"ns_per_ack"`
	OfYardstick figure `json:"of_bpf_cubic"`
	// The same, after taking away what an empty callback shows.
	Net figure `json:"net_ns_per_ack"`
	// The medians' ratio; 0 where the yardstick is none.
	NetOfYardstick float64            `json:"net_of_bpf_cubic"`
	Calls          figure             `json:"cong_avoid_per_second"`
	Callbacks      map[string]callout `json:"callbacks"`
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
		CPU:    c.over(func(r map[string]sample) float64 { return r[cc].cpu / (r[cc].rate * r[cc].seconds / 8e9) }),
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
		Calls:     c.over(func(r map[string]sample) float64 { return r[cc].calls() }),
		Callbacks: map[string]callout{},
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

// calls returns the ACKs per second.
func (s sample) calls() float64 { return float64(s.callbacks[perACK].Calls) / s.seconds }

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
			fmt.Fprintf(t, "control\tGbit/s\t\tof reno\t\t\tCPU s/GB\t\n")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", g.Control, g.Rate.text("%.3f", 1e9), g.OfReno.text("%.2f", 1), g.verdict(),
			g.CPU.text("%.2f", 1))
	}
	title = ""
	for _, c := range r.Cost {
		if c.Condition != title {
			title = c.Condition
			fmt.Fprintf(t, "\nTime per ACK in all callbacks, %s; aim: net at most %.1f of %s\n", title, aimCost, yardstick)
			fmt.Fprintf(t, "subflows\tcontrol\tns\t\tof %s\t\tnet ns\t\tof %s\t\tACK/s\n", yardstick, yardstick)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f\n", c.Subflows, c.Control,
			c.PerACK.text("%.0f", 1), c.OfYardstick.text("%.2f", 1), c.Net.text("%.0f", 1), c.netRatio(), c.verdict(),
			c.Calls.Median)
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

func (c cost) netRatio() string {
	if c.NetOfYardstick == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", c.NetOfYardstick)
}

func (c cost) verdict() string {
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

func (r *report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
