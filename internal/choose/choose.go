// SPDX-License-Identifier: Apache-2.0

// Package choose has what was measured of all congestion controls and packet schedulers in the conditions of
// internal/experiment/conditions, and says which of them is to be recommended to whom. docs/choose.md is made of it.
package choose

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Cell is a condition: a network, and what is done over it.
type Cell struct {
	Name   string // the scenario without choose-, and the values of its variables
	Says   string
	Metric string // what whoever has this condition looks at first
}

// Row is a kind of user, with the conditions that such a user meets.
type Row struct {
	Name  string
	Title string
	Who   string
	Cells []Cell
}

// Metrics of figures. Harm is what others on the way lose, in percent of what they have without the user.
const (
	Goodput    = "goodput"
	Completion = "completion"
	RTT        = "srtt_95"
	Others     = "others"
	Harm       = "harm"
	Energy     = "energy_per_bit"
	Metered    = "path_data"
)

// Rows are in the order of the page.
var Rows = []Row{
	{"line", "One line, plain TCP", "a server or a desktop with one way out", []Cell{
		{"plain-dsl", "download, DSL 16 Mbit/s", Goodput},
		{"plain-fibre", "download, fibre 200 Mbit/s", Goodput},
		{"plain-long", "download, 100 Mbit/s, RTT 150 ms", Goodput},
		{"plain-deep", "download, DSL 16 Mbit/s, deep queue", Goodput},
	}},
	{"home", "DSL or fibre, and LTE", "a household or small office with a line and a mobile one", []Cell{
		{"home-dsl-down", "download, DSL and LTE", Goodput},
		{"home-dsl-up", "upload, DSL and LTE", Goodput},
		{"home-dsl-web", "web objects, DSL and LTE", Completion},
		{"home-fibre-down", "download, fibre and LTE", Goodput},
		{"home-fibre-up", "upload, fibre and LTE", Goodput},
		{"home-fibre-web", "web objects, fibre and LTE", Completion},
		{"bloat", "download, DSL and LTE, deep queues", Goodput},
		{"shared-one", "upload, the line shared with others", Goodput},
	}},
	{"phone", "WLAN and LTE", "a phone or laptop", []Cell{
		{"wifi-down", "download, WLAN with loss and jitter", Goodput},
		{"wifi-web", "web objects, WLAN with loss and jitter", Completion},
		{"handover", "download, from one WLAN to another", Goodput},
		{"leaving", "download, out of a WLAN that slows down", Goodput},
	}},
	{"train", "Two mobile operators", "a vehicle", []Cell{
		{"train", "download, in a train", Goodput},
	}},
	{"own", "Several equal lines", "an office with two lines, a host with several NICs in a rack", []Cell{
		{"fibres-nobody", "download, two equal fibres", Goodput},
		{"fibres-others", "download, two fibres, others on one", Goodput},
		{"rack", "upload, four NICs, bursts on one", Goodput},
	}},
	{"shared", "Several paths through one uplink", "two interfaces at one router, or addresses at one line, with others on it", []Cell{
		{"shared-both", "upload, both paths through it", Goodput},
	}},
	{"metered", "A path that is paid by the byte", "whoever has a line that would do, and LTE by the gigabyte", []Cell{
		{"metered", "6 Mbit/s upwards, DSL would do", Metered},
	}},
}

// Contestant is what runs in a cell.
type Contestant struct {
	CC, Scheduler, Tuning string
}

// Kernel is what a host has that loads nothing.
var Kernel = Contestant{"cubic", "default", "default"}

func (c Contestant) String() string {
	text := c.CC
	if c.Scheduler != "default" {
		text += " + " + c.Scheduler
	}
	if c.Tuning != "default" {
		text += " --set " + c.Tuning
	}
	return text
}

// Kernels says whether nothing of mpcc's is loaded for it.
func (c Contestant) Kernels() bool {
	return (c.CC == "cubic" || c.CC == "reno") && c.Scheduler == "default"
}

// Figure is what was measured of a contestant in a cell: a mean over repeats and, where there is something to compare,
// the ratio to Kernel's value in each repeat, with an interval that is right for all contestants of the cell together.
type Figure struct {
	Cell, Metric string
	Contestant
	Repeats          int
	Mean             float64
	Ratio, Low, High float64
	Mpcc             string // the version that measured it
}

// Gain is a ratio that is above 1 where a contestant is better than Kernel, and its interval.
type Gain struct{ Ratio, Low, High float64 }

// Gain returns by how much the figure is better than Kernel's.
func (f *Figure) Gain() Gain {
	switch f.Metric {
	case Goodput, Others:
		return Gain{f.Ratio, f.Low, f.High}
	}
	return Gain{1 / f.Ratio, 1 / f.High, 1 / f.Low}
}

// Margin is the difference that matters: a control that is to be recommended loses no more anywhere in its row.
const Margin = 0.02

// Better says that the gain is certain, and matters.
func (g Gain) Better() bool { return g.Low > 1+Margin }

// Loses says that there certainly is a loss, be it small.
func (g Gain) Loses() bool { return g.High < 1 }

// Worse says that the loss is certain, and matters.
func (g Gain) Worse() bool { return g.High < 1-Margin }

// Safe says that a loss that matters is certainly not there.
func (g Gain) Safe() bool { return g.Low >= 1-Margin }

//go:embed cells.csv
var cells []byte

// Columns are those of cells.csv.
var Columns = []string{"cell", "cc", "scheduler", "tuning", "metric", "repeats", "mean", "ratio", "low", "high", "mpcc"}

// Figures returns all that was measured.
var Figures = sync.OnceValue(func() []Figure {
	all, err := Parse(cells)
	if err != nil {
		panic("choose: cells.csv: " + err.Error())
	}
	return all
})

// Parse reads figures as cells.csv has them.
func Parse(text []byte) ([]Figure, error) {
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], Columns) {
		return nil, fmt.Errorf("its columns are not %s", strings.Join(Columns, ","))
	}
	var all []Figure
	for _, r := range rows[1:] {
		f := Figure{Cell: r[0], Contestant: Contestant{r[1], r[2], r[3]}, Metric: r[4], Mpcc: r[10]}
		if f.Repeats, err = strconv.Atoi(r[5]); err != nil {
			return nil, err
		}
		for i, to := range []*float64{&f.Mean, &f.Ratio, &f.Low, &f.High} {
			if *to, err = strconv.ParseFloat(r[6+i], 64); err != nil {
				return nil, err
			}
		}
		all = append(all, f)
	}
	return all, nil
}

// subject is what a figure is of.
type subject struct {
	cell, metric string
	Contestant
}

var bySubject = sync.OnceValue(func() map[subject]*Figure {
	all := Figures()
	found := make(map[subject]*Figure, len(all))
	for i := range all {
		f := &all[i]
		found[subject{f.Cell, f.Metric, f.Contestant}] = f
	}
	return found
})

// Find returns a figure; nil where it was not measured.
func Find(cell, metric string, c Contestant) *Figure { return bySubject()[subject{cell, metric, c}] }

// In returns the figures of a cell and metric, in the order of the file.
func In(cell, metric string) (all []Figure) {
	for _, f := range Figures() {
		if f.Cell == cell && f.Metric == metric {
			all = append(all, f)
		}
	}
	return all
}

// FindCell returns the cell of that name. There is one for each figure that this package gives.
func FindCell(name string) *Cell {
	for i := range Rows {
		for j := range Rows[i].Cells {
			if c := &Rows[i].Cells[j]; c.Name == name {
				return c
			}
		}
	}
	panic("choose: no cell " + name)
}

// Noun is what a metric is called in a sentence.
func Noun(metric string) string {
	switch metric {
	case Completion:
		return "time to complete"
	case RTT:
		return "RTT under load"
	case Others:
		return "what others get"
	case Energy:
		return "energy per bit"
	case Metered:
		return "bytes on the metered path"
	}
	return metric
}
