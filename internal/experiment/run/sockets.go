// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// socketObserver observes a user whose sockets are this process's: it asks the kernel for the subflows of the
// present connection.
type socketObserver struct {
	up, multipath bool
	interfaces    map[netip.Addr]iface // of the user's host

	mu       sync.Mutex
	flow     *traffic.Flow // nil until it starts
	conn     *net.TCPConn  // the one that was looked at last
	subflows map[place]*subflow
	order    []*subflow // the same, in the order in which they were first seen
	meters   map[string]*meter
	looked   time.Time
	begun    bool // the measured phase has

	again      uint64 // bytes that were sent again on another subflow, of all connections
	lastAgain  uint64 // the same of the present connection, at the last look
	againBegan uint64 // what again was when the measured phase began
}

// place identifies a user's subflow. One of a later connection between the same
// addresses counts as the same subflow: it goes on where the former ended.
type place struct {
	own, other netip.Addr // the user's and the peer's
	nth        int        // among the connection's subflows with these addresses, from 0
}

// subflow sums up what a subflow has done.
type subflow struct {
	id    int
	iface string
	sum   tally // of all connections
	last  tally // of the present connection, at the last look
	began tally // what sum was when the measured phase began
	state unix.TCPInfo
	live  bool // at the last look
	means
}

// tally holds the sender's counters of a subflow.
type tally struct {
	sent, acked, delivered, retrans uint64 // bytes, bytes, packets, packets
}

func tallyOf(i unix.TCPInfo) tally {
	return tally{i.Bytes_sent, i.Bytes_acked, uint64(i.Delivered), uint64(i.Total_retrans)}
}

func (t tally) minus(o tally) tally {
	return tally{t.sent - o.sent, t.acked - o.acked, t.delivered - o.delivered, t.retrans - o.retrans}
}

func (t tally) plus(o tally) tally {
	return tally{t.sent + o.sent, t.acked + o.acked, t.delivered + o.delivered, t.retrans + o.retrans}
}

func newSocketObserver(n *network, u *user) *socketObserver {
	return &socketObserver{
		up: u.up(), multipath: u.class.Transport == scenario.OverMPTCP, interfaces: n.interfacesOf(u.member.From),
		subflows: map[place]*subflow{}, meters: map[string]*meter{},
	}
}

func (o *socketObserver) connection(f *traffic.Flow) {
	o.mu.Lock()
	o.flow = f
	o.mu.Unlock()
	_ = o.look() // never fails
}

func (o *socketObserver) look() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	since := now.Sub(o.looked)
	o.looked = now
	for _, s := range o.order {
		s.live = false
	}
	if o.flow == nil {
		return nil
	}
	conn := o.flow.Sender()
	if conn == nil {
		return nil
	}
	if conn != o.conn {
		o.conn, o.lastAgain = conn, 0
		for _, s := range o.order {
			s.last = tally{}
		}
	}
	info, err := read(conn)
	if err != nil {
		return nil // the connection has just been closed
	}
	o.again += info.BytesRetrans - o.lastAgain
	o.lastAgain = info.BytesRetrans
	moved := o.count(info.Subflows)
	if !o.begun {
		return nil
	}
	for name, m := range o.meters {
		m.add(moved[name], since)
	}
	return nil
}

// count adds what the present connection's subflows have done since the last look, and returns how many bytes
// they moved over each of the user's interfaces.
func (o *socketObserver) count(subflows []mptcp.Subflow) (moved map[string]uint64) {
	moved = map[string]uint64{}
	seen := map[place]int{}
	for _, at := range subflows {
		s := o.find(at, seen)
		now := tallyOf(at.TCP)
		delta := now.minus(s.last)
		s.sum, s.last, s.state, s.live = s.sum.plus(delta), now, at.TCP, true
		if o.up {
			moved[s.iface] += delta.sent
		} else {
			moved[s.iface] += delta.acked // what was lost cost the receiver nothing
		}
	}
	return moved
}

// find returns the subflow between these addresses. seen counts, by addresses, those of the connection that
// have been found already.
func (o *socketObserver) find(at mptcp.Subflow, seen map[place]int) *subflow {
	p := place{own: at.Local.Addr(), other: at.Remote.Addr()}
	if !o.up {
		p.own, p.other = p.other, p.own
	}
	between := p
	p.nth = seen[between]
	seen[between]++
	s := o.subflows[p]
	if s == nil {
		on := o.interfaces[p.own]
		s = &subflow{id: len(o.order) + 1, iface: on.name}
		o.subflows[p] = s
		o.order = append(o.order, s)
		if on.profile != nil && o.meters[on.name] == nil {
			o.meters[on.name] = &meter{profile: on.profile}
		}
	}
	return s
}

// read returns a connection's subflows. A TCP connection counts as one.
func read(conn *net.TCPConn) (mptcp.Info, error) {
	is, err := conn.MultipathTCP()
	if err != nil {
		return mptcp.Info{}, err
	}
	if is {
		return mptcp.ReadInfo(conn)
	}
	info, err := mptcp.ReadTCPInfo(conn)
	return mptcp.Info{Subflows: []mptcp.Subflow{{
		Local:  conn.LocalAddr().(*net.TCPAddr).AddrPort(),
		Remote: conn.RemoteAddr().(*net.TCPAddr).AddrPort(),
		TCP:    info,
	}}}, err
}

func (o *socketObserver) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun, o.againBegan = true, o.again
	for _, s := range o.order {
		s.began = s.sum
	}
}

// infinite is the slow start threshold of a subflow that has not lost anything yet.
const infinite = 0x7fffffff

func (o *socketObserver) samples() (rows []result.Sample) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.order {
		if !s.live {
			continue
		}
		row := result.Sample{
			Subflow: s.id, Interface: s.iface,
			Cwnd: s.state.Snd_cwnd, SRTT: float64(s.state.Rtt) / 1000, Rate: float64(s.state.Delivery_rate) * 8,
			Bytes: s.sum.acked, Retrans: s.sum.retrans,
		}
		if s.state.Snd_ssthresh < infinite {
			row.Ssthresh = pointer(s.state.Snd_ssthresh)
		}
		if o.begun {
			s.add(row)
		}
		rows = append(rows, row)
	}
	return rows
}

func (o *socketObserver) report(r *result.User) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delivered, mss := uint64(0), uint64(0)
	for _, s := range o.order {
		d := s.sum.minus(s.began)
		delivered += d.delivered
		mss = max(mss, uint64(s.state.Snd_mss))
		row := result.Subflow{ID: s.id, Interface: s.iface, Bytes: d.acked, Retrans: d.retrans}
		s.fill(&row)
		r.Subflows = append(r.Subflows, row)
	}
	if delivered > 0 {
		r.Received = &delivered
		if o.multipath && mss > 0 {
			r.Reinjected = pointer((o.again - o.againBegan + mss - 1) / mss)
		}
	}
	r.Energy = spent(slices.Collect(maps.Values(o.meters)), o.up)
}
