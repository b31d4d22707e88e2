// SPDX-License-Identifier: Apache-2.0

// Package watch is what mpcc watch shows: connections with their subflows, what these did since the refresh before,
// in which order, and which of them are in the window. It knows neither a terminal nor the maps; package screen
// has the terminal.
package watch

import (
	"slices"
	"time"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

// historyLength is how many refreshes a sparkline goes back.
const historyLength = 60

// Reading is what is there at one time.
type Reading struct {
	Loaded   []string            // the algorithms, as mpcc list names them
	Snapshot *telemetry.Snapshot // nil where there are no maps
}

// Subflow is a subflow as of a refresh, and what it did since the one before. What it did is null at the first
// sight of it.
type Subflow struct {
	telemetry.Subflow
	Rate      *float64 `json:"rate_bytes_per_second"`         // acknowledged
	Receiving *float64 `json:"receive_rate_bytes_per_second"` // received
	Power     *float64 `json:"power_watts"`                   // modelled; null without a profile for the interface
	history   []float64
}

// Watch is what is shown of the last reading. Its methods are for one goroutine at a time.
type Watch struct {
	Netns string // by ip netns: shows this namespace only; "" for all

	loaded   []string
	lost     telemetry.Lost
	subflows []*Subflow // all in Netns, by namespace and token
	byID     map[uint64]*Subflow

	order   int // in orders
	reverse bool
	filter  []string

	connections []*Connection // what the filter lets through, in order
	list
}

// Refresh takes the next reading.
func (w *Watch) Refresh(r Reading) {
	before := w.byID
	w.loaded, w.lost, w.subflows, w.byID = r.Loaded, telemetry.Lost{}, nil, map[uint64]*Subflow{}
	if r.Snapshot != nil {
		w.lost = r.Snapshot.Lost
		for _, now := range r.Snapshot.Subflows {
			if w.Netns != "" && now.NetnsName != w.Netns {
				continue
			}
			f := &Subflow{Subflow: now}
			if last := before[f.ID]; last != nil {
				f.since(last)
			}
			w.subflows = append(w.subflows, f)
			w.byID[f.ID] = f
		}
	}
	w.arrange()
}

// since fills in what the subflow did after it was in the state before. Where the maps have nothing new, that is what
// it did before.
func (f *Subflow) since(before *Subflow) {
	f.Rate, f.Receiving, f.Power, f.history = before.Rate, before.Receiving, before.Power, before.history
	if elapsed := (f.recorded() - before.recorded()).Seconds(); elapsed > 0 {
		f.Rate = new(float64(f.BytesAcked-before.BytesAcked) / elapsed)
		f.Receiving = new(float64(f.BytesReceived-before.BytesReceived) / elapsed)
		f.Power = nil
		if f.Energy != nil {
			start := 0.0
			if before.Energy != nil {
				start = *before.Energy
			}
			f.Power = new((*f.Energy - start) / elapsed)
		}
	}
	if f.Rate != nil {
		f.history = append(f.history, *f.Rate)
		f.history = f.history[max(0, len(f.history)-historyLength):]
	}
}

// recorded is the age that the subflow had when its state was as the maps have it. They get each change within an RTT
// or 100 ms, whichever is longer: after that, no news means that there is none.
func (f *Subflow) recorded() time.Duration {
	latest := max(time.Duration(f.SRTT), 100*time.Millisecond)
	return time.Duration(f.Age) - min(time.Duration(f.Updated), latest)
}

// Subflows are those of the last reading, in the order that it had.
func (w *Watch) Subflows() []*Subflow { return w.subflows }

// Filter shows only subflows that have all these words in their token, algorithm, interface, addresses or namespace.
func (w *Watch) Filter(words []string) {
	w.filter = words
	w.arrange()
}

// arrange decides anew what is shown, after a reading or a change of filter or order.
func (w *Watch) arrange() {
	w.connections = nil
	byKey := map[key]*Connection{}
	for _, f := range w.subflows {
		if !f.has(w.filter) {
			continue
		}
		k := keyOf(f)
		c := byKey[k]
		if c == nil {
			c = &Connection{key: k}
			byKey[k] = c
			w.connections = append(w.connections, c)
		}
		c.add(f)
	}
	slices.SortStableFunc(w.connections, w.compare)
	w.fill(w.connections)
}
