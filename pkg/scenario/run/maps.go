// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/netlab"
	"github.com/mpcc/mpcc/pkg/scenario"
	"github.com/mpcc/mpcc/pkg/scenario/result"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// mapped is a user whose sockets another program has: what they do is in the
// maps of the algorithms, by the host's namespace, so that such a user has his
// host for himself.
type mapped struct {
	netns, cc string
	now, from []telemetry.Total // by interface, now and when the measured phase began
	live      []telemetry.Subflow
	rows      map[netip.Addr]*mappedRow // by the user's address
}

// mappedRow sums up samples of the measured phase.
type mappedRow struct {
	cwnd, srtt float64
	samples    int
	retrans    uint64 // of connections that are over
	last       map[uint64]uint64
}

func newMapped(h *netlab.Host, class *scenario.User) (*mapped, error) {
	if class.Count > 1 {
		return nil, errors.New(class.Kind + " users have a host for themselves: give the class count 1, and its host a count")
	}
	return &mapped{netns: h.Namespace(), cc: ccName(class), rows: map[netip.Addr]*mappedRow{}}, nil
}

// readMaps reads the maps for those users who need them.
func (m *measurement) readMaps() error {
	if !slices.ContainsFunc(m.users, func(u *user) bool { return u.maps != nil }) {
		return nil
	}
	source, err := telemetry.Open()
	if errors.Is(err, loader.ErrNotLoaded) {
		return nil // they run the kernel's own congestion control
	}
	if err != nil {
		return err
	}
	defer source.Close()
	snap, err := source.Read()
	if err != nil {
		return err
	}
	for _, u := range m.users {
		if u.maps != nil {
			u.maps.see(u, &snap)
		}
	}
	return nil
}

// see takes what is the user's from a snapshot. A subflow is in it twice, as
// each of its ends has it: the sender knows the window, the user the interface.
func (p *mapped) see(u *user, snap *telemetry.Snapshot) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p.now, p.live = nil, nil
	for _, t := range snap.Totals {
		if t.NetnsName == p.netns && t.CC == p.cc {
			p.now = append(p.now, t)
		}
	}
	for _, f := range snap.Subflows {
		own := f.Local.Addr()
		if !u.up() {
			own = f.Remote.Addr()
		}
		if _, ok := u.interfaces[own]; ok && (f.NetnsName == p.netns) == u.up() {
			p.live = append(p.live, f)
		}
	}
}

func (p *mapped) begin() { p.from = p.now }

// sample writes the state of the user's subflows.
func (p *mapped) sample(u *user, at time.Duration, write func(result.Sample) error) error {
	for _, f := range p.live {
		own := f.Local.Addr()
		if !u.up() {
			own = f.Remote.Addr()
		}
		row := p.rows[own]
		if row == nil {
			row = &mappedRow{last: map[uint64]uint64{}}
			p.rows[own] = row
		}
		srtt := milliseconds(time.Duration(f.SRTT))
		if at >= 0 {
			row.cwnd += float64(f.Cwnd)
			row.srtt += srtt
			row.samples++
			row.retrans += uint64(f.Retrans) - row.last[f.ID]
		}
		row.last[f.ID] = uint64(f.Retrans)
		err := write(result.Sample{
			Time: at.Seconds(), Class: string(u.class.Name), User: u.number, Subflow: int(f.SubflowID) + 1,
			Interface: u.interfaces[own].name, Cwnd: f.Cwnd, Ssthresh: f.Ssthresh, SRTT: srtt,
			Rate: float64(f.DeliveryRate) * 8, Bytes: f.BytesAcked, Retrans: uint64(f.Retrans),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// result is what the user's interfaces did in the measured phase.
func (p *mapped) result(u *user) (subflows []result.Subflow, spent *result.Energy) {
	joules, priced := 0.0, false
	for _, t := range p.now {
		var before telemetry.Total
		if i := slices.IndexFunc(p.from, func(o telemetry.Total) bool { return o.Ifindex == t.Ifindex }); i >= 0 {
			before = p.from[i]
		}
		joules += t.Energy - before.Energy
		row := result.Subflow{ID: len(subflows) + 1, Interface: t.Interface, Bytes: t.BytesAcked - before.BytesAcked}
		if !u.up() {
			row.Bytes = t.BytesReceived - before.BytesReceived
		}
		for addr, on := range u.interfaces {
			if on.name != t.Interface {
				continue
			}
			priced = priced || on.profile != nil
			if r := p.rows[addr]; r != nil && r.samples > 0 {
				row.Cwnd, row.SRTT = r.cwnd/float64(r.samples), r.srtt/float64(r.samples)
				row.Retrans += r.retrans
			}
		}
		subflows = append(subflows, row)
	}
	if priced {
		spent = &result.Energy{Joules: joules, Source: result.SourceModel}
	}
	return subflows, spent
}
