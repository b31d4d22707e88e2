// SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
	"github.com/mpcc/mpcc/pkg/energy"
)

// observer observes what a user's subflows do. A socketObserver asks the kernel about the user's open sockets;
// where these are another program's, a mapObserver reads the maps of the algorithms.
type observer interface {
	// connection is called for each connection when it is there, and again before it is closed.
	connection(f *traffic.Flow)
	// look reads the counters. The methods below use what the last look has read.
	look() error
	// begin begins the measured phase.
	begin()
	// samples returns the state of each subflow that is live, without time and user. In the measured phase
	// the report has the means of all samples.
	samples() []result.Sample
	// report fills in what was seen since begin.
	report(r *result.User)
}

// iface is an interface of a user's host.
type iface struct {
	name    string
	profile *energy.Profile // nil if it has none
}

// interfacesOf returns a host's interfaces by address.
func (n *network) interfacesOf(host scenario.Name) map[netip.Addr]iface {
	found := map[netip.Addr]iface{}
	for _, at := range n.interfaces[host] {
		for _, addr := range at.addrs {
			found[addr] = at.iface
		}
	}
	return found
}

// means keeps what samples show, for their means and a percentile.
type means struct{ cwnd, srtt []float64 }

func (m *means) add(s result.Sample) {
	m.cwnd = append(m.cwnd, float64(s.Cwnd))
	m.srtt = append(m.srtt, s.SRTT)
}

func (m *means) fill(s *result.Subflow) {
	if len(m.srtt) > 0 {
		s.Cwnd, s.SRTT = stat.Mean(m.cwnd, nil), stat.Mean(m.srtt, nil)
		s.SRTT95 = stat.Quantile(0.95, stat.Empirical, slices.Sorted(slices.Values(m.srtt)), nil)
	}
}

// meter models the energy that a user spends on an interface.
type meter struct {
	profile *energy.Profile
	bytes   uint64        // moved in the measured phase
	active  time.Duration // time in which any were moved
	idle    time.Duration // since then
	tail    float64       // joules in the radio's tails
}

// add counts what was moved in a stretch of time or, if nothing was, the radio's tail.
func (m *meter) add(bytes uint64, since time.Duration) {
	switch {
	case bytes > 0:
		m.bytes += bytes
		m.active += since
		m.idle = 0
	case m.active > 0:
		m.tail += m.profile.TailJoules(m.idle, m.idle+since)
		m.idle += since
	}
}

// joules returns the energy by the model P = b·x + θ: b for each bit that was moved, θ over the active time; and that of
// the tails.
func (m *meter) joules(up bool) float64 {
	slope := m.profile.Downlink
	if up {
		slope = m.profile.Uplink
	}
	value := func(of *float64) float64 {
		if of == nil {
			return 0
		}
		return *of
	}
	const joulesPerBit = 1e-9 // at a slope of 1 mW per Mbit/s
	return value(slope)*joulesPerBit*8*float64(m.bytes) + value(m.profile.Base)/1000*m.active.Seconds() + m.tail
}

// spent returns the energy of all meters; nil if there are none.
func spent(meters []*meter, up bool) *result.Energy {
	if len(meters) == 0 {
		return nil
	}
	e := &result.Energy{Source: result.SourceModel}
	for _, m := range meters {
		e.Joules += m.joules(up)
	}
	return e
}
