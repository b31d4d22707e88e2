// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// mapReader reads the algorithms' maps, once for all mapObservers.
type mapReader struct {
	wanted bool // there are mapObservers
	last   telemetry.Snapshot
}

func (r *mapReader) read(ctx context.Context) error {
	if !r.wanted {
		return nil
	}
	r.last = telemetry.Snapshot{}
	source, err := telemetry.Open()
	if errors.Is(err, loader.ErrNotLoaded) {
		return nil // the users run the kernel's own congestion control
	}
	if err != nil {
		return err
	}
	defer source.Close()
	r.last, err = source.Read(ctx)
	return err
}

// mapObserver observes a user whose sockets are another program's. It reads the
// subflows' state from the maps of the algorithms, and counts all that passes
// the host's interfaces as the user's: such a user has the host to itself.
type mapObserver struct {
	maps       *mapReader
	up         bool
	netns      string               // of the user's host
	interfaces map[netip.Addr]iface // of the user's host
	live       []telemetry.Subflow  // the user's, at the last look
	rows       map[netip.Addr]*mapRow
	ports      []*port
	looked     time.Time
	begun      bool // the measured phase has
}

// mapRow sums up, over the measured phase, the samples of subflows with one of the user's addresses.
type mapRow struct {
	means
	retrans uint64
	last    map[uint64]uint64 // retransmissions at the last sample, by the subflow's id in the maps
}

// port is an interface of the user's host; its meter counts what came over it in the user's direction.
type port struct {
	meter
	address
	last uint64 // bytes, at the last look
}

// observe returns the observer of a user. The class must have one user only: its host is the user's alone.
func (r *mapReader) observe(n *network, u *user) (*mapObserver, error) {
	if u.class.Count > 1 {
		return nil, errors.New(u.class.Kind + " users need a host each: give the class count 1, and its host the count")
	}
	r.wanted = true
	host := u.member.From
	o := &mapObserver{
		maps: r, up: u.up(), netns: n.hosts[host].Namespace(), interfaces: n.interfacesOf(host),
		rows: map[netip.Addr]*mapRow{},
	}
	for _, at := range n.interfaces[host] {
		o.ports = append(o.ports, &port{meter: meter{profile: at.profile}, address: at})
	}
	return o, nil
}

func (o *mapObserver) connection(*traffic.Flow) {}

// own returns the user's address of the subflow whose sending end has the entry f in the maps.
func (o *mapObserver) own(f telemetry.Subflow) netip.Addr {
	if o.up {
		return f.Local.Addr()
	}
	return f.Remote.Addr()
}

func (o *mapObserver) look() error {
	o.live = nil
	for _, f := range o.maps.last.Subflows {
		// The maps have an entry for each end of a subflow. The one to look at is the sending end's,
		// which has the window: it is in the user's namespace if the user sends.
		if _, ok := o.interfaces[o.own(f)]; ok && (f.NetnsName == o.netns) == o.up {
			o.live = append(o.live, f)
		}
	}
	now := time.Now()
	since := now.Sub(o.looked)
	o.looked = now
	for _, p := range o.ports {
		way := p.away
		if !o.up {
			way = 1 - way
		}
		bytes, err := p.link.Received(way)
		if err != nil {
			return err
		}
		if o.begun {
			p.add(bytes-min(p.last, bytes), since)
		}
		p.last = bytes
	}
	return nil
}

func (o *mapObserver) begin() { o.begun = true }

func (o *mapObserver) samples() (samples []result.Sample) {
	for _, f := range o.live {
		own := o.own(f)
		row := o.rows[own]
		if row == nil {
			row = &mapRow{last: map[uint64]uint64{}}
			o.rows[own] = row
		}
		s := result.Sample{
			Subflow: int(f.SubflowID) + 1, Interface: o.interfaces[own].name,
			Cwnd: f.Cwnd, Ssthresh: f.Ssthresh, SRTT: milliseconds(time.Duration(f.SRTT)),
			Rate: float64(f.DeliveryRate) * 8, Bytes: f.BytesAcked, Retrans: uint64(f.Retrans),
		}
		if o.begun {
			row.add(s)
			row.retrans += s.Retrans - row.last[f.ID]
		}
		row.last[f.ID] = s.Retrans
		samples = append(samples, s)
	}
	return samples
}

func (o *mapObserver) report(r *result.User) {
	var meters []*meter
	for _, p := range o.ports {
		if p.profile != nil {
			meters = append(meters, &p.meter)
		}
		s := result.Subflow{ID: len(r.Subflows) + 1, Interface: p.name, Bytes: p.bytes}
		for _, addr := range p.addrs {
			if row := o.rows[addr]; row != nil {
				row.fill(&s)
				s.Retrans += row.retrans
			}
		}
		r.Subflows = append(r.Subflows, s)
	}
	r.Energy = spent(meters, o.up)
}
