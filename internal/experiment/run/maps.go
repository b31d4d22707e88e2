// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// mapped is a user whose sockets another program has: what they do is in the
// maps of the algorithms and in the counters of the host's interfaces, so that
// such a user has his host for himself.
type mapped struct {
	netns string
	live  []telemetry.Subflow
	rows  map[netip.Addr]*mappedRow // by the user's address
	ports []*port
	read  time.Time // when the ports' counters were
}

// mappedRow sums up samples of the measured phase.
type mappedRow struct {
	cwnd, srtt float64
	samples    int
	retrans    uint64 // of connections that are over
	last       map[uint64]uint64
}

// port is an interface of the user's, and what came over it in his direction.
type port struct {
	meter
	address
	last uint64
}

func newMapped(n *network, host scenario.Name, class *scenario.User) (*mapped, error) {
	if class.Count > 1 {
		return nil, errors.New(class.Kind + " users have a host for themselves: give the class count 1, and its host a count")
	}
	p := &mapped{netns: n.hosts[host].Namespace(), rows: map[netip.Addr]*mappedRow{}}
	for _, at := range n.interfaces[host] {
		p.ports = append(p.ports, &port{meter: meter{profile: at.profile}, address: at})
	}
	return p, nil
}

// readMaps reads maps and counters for those users who need them.
func (m *measurement) readMaps() error {
	if !slices.ContainsFunc(m.users, func(u *user) bool { return u.maps != nil }) {
		return nil
	}
	var snap telemetry.Snapshot
	source, err := telemetry.Open()
	switch {
	case err == nil:
		defer source.Close()
		if snap, err = source.Read(context.Background()); err != nil {
			return err
		}
	case !errors.Is(err, loader.ErrNotLoaded): // else they run the kernel's own congestion control
		return err
	}
	for _, u := range m.users {
		if u.maps != nil {
			if err := u.maps.see(u, &snap); err != nil {
				return err
			}
		}
	}
	return nil
}

// see takes what is the user's from a snapshot, and from the counters. A subflow
// is in the snapshot twice, as each of its ends has it: the sender knows the
// window, the user the interface.
func (p *mapped) see(u *user, snap *telemetry.Snapshot) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	p.live = nil
	for _, f := range snap.Subflows {
		own := f.Local.Addr()
		if !u.up() {
			own = f.Remote.Addr()
		}
		if _, ok := u.interfaces[own]; ok && (f.NetnsName == p.netns) == u.up() {
			p.live = append(p.live, f)
		}
	}
	now := time.Now()
	since := now.Sub(p.read)
	p.read = now
	for _, at := range p.ports {
		way := at.away
		if !u.up() {
			way = 1 - way
		}
		bytes, err := at.link.Received(way)
		if err != nil {
			return err
		}
		if u.mark.set && bytes > at.last {
			at.bytes += bytes - at.last
			at.active += since
		}
		at.last = bytes
	}
	return nil
}

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
	for _, at := range p.ports {
		if at.profile != nil {
			priced = true
			joules += at.joules(u.up())
		}
		row := result.Subflow{ID: len(subflows) + 1, Interface: at.name, Bytes: at.bytes}
		for _, addr := range at.addrs {
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
