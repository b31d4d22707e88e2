// SPDX-License-Identifier: Apache-2.0

package run

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// iface is an interface of a user's host.
type iface struct {
	name    string
	profile *energy.Profile // nil where it has none
}

// user is one user while it runs. The kernel is asked for its subflows at every
// sample, and at the end of each connection.
type user struct {
	class      *scenario.User
	number     int // in its class
	interfaces map[netip.Addr]iface
	maps       *mapped // of a user whose sockets another program has

	mu       sync.Mutex
	flow     *traffic.Flow // nil until it starts
	conn     *net.TCPConn  // that the subflows' last counters are of
	subflows map[place]*subflow
	order    []*subflow // in which they were first seen
	meters   map[string]*meter
	again    uint64 // bytes sent again on another subflow
	lastSent uint64 // of again, by the present connection
	looked   time.Time
	mark     mark
}

// mark is what a user had done when the measured phase began.
type mark struct {
	set   bool
	count traffic.Count
	again uint64
}

// place tells a user's subflows apart: those of a later connection between the
// same addresses go on where the former ended.
type place struct {
	own, other netip.Addr // of the user and of the peer
	nth        int        // of a connection's subflows with these addresses
}

// tally are counters of a subflow, as the sender has them.
type tally struct {
	sent, acked, delivered, retrans uint64 // bytes, bytes, packets, packets
}

func (t tally) minus(o tally) tally {
	return tally{t.sent - o.sent, t.acked - o.acked, t.delivered - o.delivered, t.retrans - o.retrans}
}

func (t tally) plus(o tally) tally {
	return tally{t.sent + o.sent, t.acked + o.acked, t.delivered + o.delivered, t.retrans + o.retrans}
}

// subflow sums up what a subflow has done.
type subflow struct {
	id         int
	iface      string
	sum        tally // of all connections
	last       tally // of the present one, at the last look
	mark       tally // of sum, when the measured phase began
	state      unix.TCPInfo
	live       bool    // at the last look
	cwnd, srtt float64 // sums over the samples of the measured phase
	samples    int
}

// meter models the energy that a user spends on an interface.
type meter struct {
	profile *energy.Profile
	bytes   uint64        // moved in the measured phase
	active  time.Duration // in which some were
}

// joules is P = b·x + θ, in which x over the active time is what was moved.
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
	const joulesPerBit = 1e-9 // at 1 mW/Mbps
	return value(slope)*joulesPerBit*8*float64(m.bytes) + value(m.profile.Base)/1000*m.active.Seconds()
}

func (u *user) up() bool { return u.class.Direction == "up" }

// watch reads the counters of a flow's connection while both ends are open.
func (u *user) watch(f *traffic.Flow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.flow = f
	u.update()
}

// ended says whether the user's traffic has come to its end.
func (u *user) ended() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.flow == nil {
		return false
	}
	select {
	case <-u.flow.Done():
		return true
	default:
		return false
	}
}

// update looks at the user's present connection.
func (u *user) update() {
	now := time.Now()
	since := now.Sub(u.looked)
	u.looked = now
	for _, s := range u.order {
		s.live = false
	}
	if u.flow == nil || u.maps != nil {
		return
	}
	conn := u.flow.Sender()
	if conn == nil {
		return
	}
	if conn != u.conn {
		u.conn, u.lastSent = conn, 0
		for _, s := range u.order {
			s.last = tally{}
		}
	}
	info, err := read(conn)
	if err != nil {
		return // it has just been closed
	}
	u.again += info.BytesRetrans - u.lastSent
	u.lastSent = info.BytesRetrans
	moved := map[string]uint64{}
	seen := map[place]int{}
	for _, at := range info.Subflows {
		s := u.find(at, seen)
		t := at.TCP
		now := tally{t.Bytes_sent, t.Bytes_acked, uint64(t.Delivered), uint64(t.Total_retrans)}
		delta := now.minus(s.last)
		s.sum, s.last, s.state, s.live = s.sum.plus(delta), now, t, true
		if u.up() {
			moved[s.iface] += delta.sent
		} else {
			moved[s.iface] += delta.acked // what was lost cost the receiver nothing
		}
	}
	if !u.mark.set {
		return
	}
	for name, bytes := range moved {
		if m := u.meters[name]; m != nil && bytes > 0 {
			m.bytes += bytes
			m.active += since
		}
	}
}

// find is the subflow at these addresses.
func (u *user) find(at mptcp.Subflow, seen map[place]int) *subflow {
	p := place{own: at.Local.Addr(), other: at.Remote.Addr()}
	if !u.up() {
		p.own, p.other = p.other, p.own
	}
	p.nth = seen[p]
	seen[place{own: p.own, other: p.other}]++
	s := u.subflows[p]
	if s == nil {
		on := u.interfaces[p.own]
		s = &subflow{id: len(u.order) + 1, iface: on.name}
		u.subflows[p] = s
		u.order = append(u.order, s)
		if on.profile != nil && u.meters[on.name] == nil {
			u.meters[on.name] = &meter{profile: on.profile}
		}
	}
	return s
}

// read lists a connection's subflows; a TCP connection is one.
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

// infinite is the slow start threshold that the kernel begins with.
const infinite = 0x7fffffff

// sample looks at the user and writes down each subflow's state; at is since
// the measured phase began.
func (u *user) sample(at time.Duration, write func(result.Sample) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.maps != nil {
		return u.maps.sample(u, at, write)
	}
	u.update()
	for _, s := range u.order {
		if !s.live {
			continue
		}
		srtt := float64(s.state.Rtt) / 1000
		if at >= 0 {
			s.cwnd += float64(s.state.Snd_cwnd)
			s.srtt += srtt
			s.samples++
		}
		row := result.Sample{
			Time: at.Seconds(), Class: string(u.class.Name), User: u.number, Subflow: s.id, Interface: s.iface,
			Cwnd: s.state.Snd_cwnd, SRTT: srtt, Rate: float64(s.state.Delivery_rate) * 8,
			Bytes: s.sum.acked, Retrans: s.sum.retrans,
		}
		if s.state.Snd_ssthresh < infinite {
			row.Ssthresh = &s.state.Snd_ssthresh
		}
		if err := write(row); err != nil {
			return err
		}
	}
	return nil
}

// begin marks the beginning of the measured phase.
func (u *user) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.update()
	u.mark = mark{set: true, again: u.again}
	if u.flow != nil {
		u.mark.count = u.flow.Count()
	}
	for _, s := range u.order {
		s.mark = s.sum
	}
}

// result is what the user did in the measured phase, which began at start.
func (u *user) result(start time.Time) result.User {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.update()
	var r result.User
	if u.flow == nil {
		return r
	}
	count := u.flow.Count()
	r.Bytes = count.Bytes - u.mark.count.Bytes
	r.Active = (count.Active - u.mark.count.Active).Seconds()
	for _, t := range u.flow.Transfers() {
		row := result.Transfer{Start: t.Start.Sub(start).Seconds(), Bytes: t.Bytes}
		if t.Took > 0 {
			row.Seconds = pointer(t.Took.Seconds())
		}
		if row.Start >= 0 {
			r.Transfers = append(r.Transfers, row)
		}
	}
	if u.maps != nil {
		r.Subflows, r.Energy = u.maps.result(u)
		return r
	}
	delivered, mss := uint64(0), uint64(0)
	for _, s := range u.order {
		d := s.sum.minus(s.mark)
		delivered += d.delivered
		mss = max(mss, uint64(s.state.Snd_mss))
		row := result.Subflow{ID: s.id, Interface: s.iface, Bytes: d.acked, Retrans: d.retrans}
		if s.samples > 0 {
			row.Cwnd, row.SRTT = s.cwnd/float64(s.samples), s.srtt/float64(s.samples)
		}
		r.Subflows = append(r.Subflows, row)
	}
	if delivered > 0 {
		r.Received = &delivered
		if u.class.Transport == scenario.OverMPTCP && mss > 0 {
			r.Reinjected = pointer((u.again - u.mark.again + mss - 1) / mss)
		}
	}
	if len(u.meters) > 0 {
		joules := 0.0
		for _, m := range u.meters {
			joules += m.joules(u.up())
		}
		r.Energy = &result.Energy{Joules: joules, Source: result.SourceModel}
	}
	return r
}
