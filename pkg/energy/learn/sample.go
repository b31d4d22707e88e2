// SPDX-License-Identifier: Apache-2.0

// Package learn fits the power profile of an interface to what a meter measured while the interface was used:
//
//	power = rest + base while active + uplink × rate sent + downlink × rate received
//
// by least squares with base, uplink and downlink not below 0. The rest is what else the meter measures: the machine
// with the interface idle. Record watches an interface and a meter of this machine, ReadCSV reads what another meter
// has logged, Fit gives the figures with their errors.
package learn

import (
	"slices"
	"time"
)

// Sample is what was measured in a stretch of time.
type Sample struct {
	Duration       time.Duration
	Watts          float64       // mean
	Sent, Received float64       // mean rates, Mbit/s
	Active         float64       // part of the time in which the interface was active, 0 to 1
	Idle           time.Duration // at the end, since data last moved; since the beginning where none has; 0 while it moves
}

// Reading is what an interface had carried at a time.
type Reading struct {
	At             time.Time
	Sent, Received uint64 // bytes
}

// Traffic is successive readings.
type Traffic []Reading

// Point is the energy that a meter had counted at a time.
type Point struct {
	At     time.Time
	Joules float64
}

// Power is successive points of a meter. Between two of them the power was even.
type Power []Point

// mean returns the mean power from one time to another; not ok outside of what was measured.
func (p Power) mean(from, to time.Time) (watts float64, ok bool) {
	begin, ok1 := p.at(from)
	end, ok2 := p.at(to)
	if !ok1 || !ok2 || !to.After(from) {
		return 0, false
	}
	return (end - begin) / to.Sub(from).Seconds(), true
}

func (p Power) at(t time.Time) (joules float64, ok bool) {
	i, exact := slices.BinarySearchFunc(p, t, func(p Point, t time.Time) int { return p.At.Compare(t) })
	if exact {
		return p[i].Joules, true
	}
	if i == 0 || i == len(p) {
		return 0, false
	}
	a, b := p[i-1], p[i]
	return a.Joules + (b.Joules-a.Joules)*t.Sub(a.At).Seconds()/b.At.Sub(a.At).Seconds(), true
}

const (
	// A pause of this length ends the activity of an interface, as in mpcc's programs.
	pause = 200 * time.Millisecond
	// Less between two readings is no data: address resolution, keepalives.
	chatter = 500 // bytes
	// Less on average over a row of a CSV is no data.
	chatterRate = 0.01 // Mbit/s
)

// beat tells when an interval is over. None is shorter than that, also after a late one: over a short time, what a meter
// has not yet counted would be much power.
type beat struct {
	next  time.Time
	every time.Duration
}

func newBeat(begin time.Time, every time.Duration) beat { return beat{begin.Add(every), every} }

func (b *beat) over(at time.Time) bool {
	if at.Before(b.next) {
		return false
	}
	b.next = at.Add(b.every)
	return true
}

// Samples makes a sample of each interval of the readings that the meter covers.
func (t Traffic) Samples(power Power, interval time.Duration) []Sample {
	if len(t) == 0 {
		return nil
	}
	var samples []Sample
	active := t.active()
	begin, quiet := 0, t[0].At // quiet is since when no data moved
	var activeTime float64     // s
	for b, i := newBeat(t[0].At, interval), 1; i < len(t); i++ {
		if active[i] > 0 {
			activeTime += active[i] * t[i].At.Sub(t[i-1].At).Seconds()
			quiet = t[i].At
		}
		if !b.over(t[i].At) {
			continue
		}
		from, to := t[begin], t[i]
		if watts, ok := power.mean(from.At, to.At); ok {
			d := to.At.Sub(from.At)
			samples = append(samples, Sample{
				Duration: d, Watts: watts,
				Sent: mbps(to.Sent-from.Sent, d), Received: mbps(to.Received-from.Received, d),
				Active: activeTime / d.Seconds(), Idle: to.At.Sub(quiet),
			})
		}
		begin, activeTime = i, 0
	}
	return samples
}

// active tells of each reading for which part of the time since the one before the interface was active: data moved, or
// no pause was long enough. Somewhere between two readings the activity began, and so it ended: half on average.
func (t Traffic) active() []float64 {
	active := make([]float64, len(t))
	var first, last int // readings before which data moved, without a long pause between them
	fill := func() {
		for i := first; i <= last; i++ {
			active[i] = 1
		}
		active[first], active[last] = 0.5, 0.5
	}
	for i := 1; i < len(t); i++ {
		if moved := t[i].Sent - t[i-1].Sent + t[i].Received - t[i-1].Received; moved < chatter {
			continue
		}
		if last == 0 || t[i-1].At.Sub(t[last].At) >= pause {
			if last > 0 {
				fill()
			}
			first = i
		}
		last = i
	}
	if last > 0 {
		fill()
	}
	return active
}

func mbps(bytes uint64, d time.Duration) float64 { return float64(bytes) * 8 / 1e6 / d.Seconds() }

// WithoutTails leaves out what was measured in the time after the last data in which the radio may not yet be at
// rest: the profile has no such state.
func WithoutTails(samples []Sample, tail time.Duration) []Sample {
	if tail == 0 {
		return samples
	}
	return slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool {
		return s.Idle > 0 && s.Idle < tail+s.Duration
	})
}
