// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/paths"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Options say what to observe, and for how long.
type Options struct {
	Netns    string        // as ip netns names it; "" for the caller's
	Token    uint32        // the connection; 0 for all
	Interval time.Duration // DefaultInterval unless it is longer
}

// Intervals of observation.
const (
	DefaultInterval  = 2 * time.Second
	ShortestInterval = 500 * time.Millisecond
)

// ErrNoConnection is wrapped where no connection has the token.
var ErrNoConnection = errors.New("no MPTCP connection has this token")

// A look is taken so often, and as seldom as it takes the machine little time.
const (
	lookEvery = 50 * time.Millisecond
	lookCost  = 3 // of the time is spent between looks, for one in a look
)

// Observe watches a network namespace for the interval, and judges what it saw. It takes root, or CAP_NET_ADMIN; of
// what mpcc's programs record it sees what it may.
func Observe(ctx context.Context, o Options) (Report, error) {
	e, err := Gather(ctx, o)
	if err != nil {
		return Report{}, err
	}
	return Judge(e), nil
}

// Gather watches a network namespace for the interval.
func Gather(ctx context.Context, o Options) (*Evidence, error) {
	ns, err := netns.Current()
	if o.Netns != "" {
		ns, err = netns.Named(o.Netns)
	}
	if err != nil {
		return nil, err
	}
	g := gatherer{Evidence: &Evidence{Netns: o.Netns}, token: o.Token, ns: ns}
	err = ns.Do(func() error {
		err := g.watch(ctx, max(o.Interval, ShortestInterval))
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; it takes root, or the capability CAP_NET_ADMIN", err)
		}
		return err
	})
	return g.Evidence, err
}

// gatherer works in the namespace.
type gatherer struct {
	*Evidence
	token uint32
	ns    netns.NS
}

// sighting is what a look shows.
type sighting struct {
	at          time.Time // when it was over: the first one may load modules of the kernel
	took        time.Duration
	connections []mptcp.Connection
	sockets     []mptcp.TCPSocket
}

func look() (s sighting, err error) {
	begin := time.Now()
	defer func() { s.at, s.took = time.Now(), time.Since(begin) }()
	if s.connections, err = mptcp.Connections(); err != nil {
		return s, err
	}
	s.sockets, err = mptcp.TCPSockets()
	return s, err
}

func (g *gatherer) watch(ctx context.Context, interval time.Duration) error {
	if err := g.settings(); err != nil {
		return err
	}
	maps := readMaps(ctx)
	first, err := look()
	if err != nil {
		return err
	}
	if err := g.check(first); err != nil {
		return err
	}
	looks := []sighting{first}
	for last := first; len(first.connections) > 0 && last.at.Sub(first.at) < interval; {
		pause := max(lookEvery, lookCost*last.took)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(pause, interval)):
		}
		if last, err = look(); err != nil {
			return err
		}
		looks = append(looks, last)
	}
	g.Interval = looks[len(looks)-1].at.Sub(first.at)
	if g.Counters, err = mptcp.Counters(); err != nil {
		return err
	}
	if g.Addresses, err = addresses(); err != nil {
		return err
	}
	g.others(looks[len(looks)-1])
	for _, c := range looks[len(looks)-1].connections {
		if g.token == 0 || c.Token == g.token {
			if err := g.connection(c, looks); err != nil {
				return err
			}
		}
	}
	if g.token != 0 && len(g.Connections) == 0 {
		return fmt.Errorf("%08x has closed: %w any more", g.token, ErrNoConnection)
	}
	return g.addMaps(maps, readMaps(ctx))
}

// check makes sure that a connection is there, and that its subflows can be told.
func (g *gatherer) check(s sighting) error {
	if g.token != 0 && !slices.ContainsFunc(s.connections, func(c mptcp.Connection) bool { return c.Token == g.token }) {
		return fmt.Errorf("%08x in %s: %w; ss -M shows those there are", g.token, g.ns, ErrNoConnection)
	}
	isSubflow := func(k mptcp.TCPSocket) bool { return k.Subflow != nil }
	if len(s.connections) > 0 && !slices.ContainsFunc(s.sockets, isSubflow) {
		fallen := func(c mptcp.Connection) bool { return !c.Fallback }
		if slices.ContainsFunc(s.connections, fallen) {
			return errors.New("the kernel shows no subflows; that takes root, or the capability CAP_NET_ADMIN")
		}
	}
	return nil
}

// settings reads what holds for all connections of the namespace.
func (g *gatherer) settings() (err error) {
	enabled, err := os.ReadFile("/proc/sys/net/mptcp/enabled")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it has no MPTCP (CONFIG_MPTCP)", loader.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	g.Enabled = strings.TrimSpace(string(enabled)) != "0"
	if g.UserspacePM, err = mptcp.UserspacePM(); err != nil {
		return err
	}
	if g.Limits, err = mptcp.ReadLimits(); err != nil {
		return err
	}
	g.Endpoints, err = mptcp.Endpoints()
	return err
}

// addresses are those of the thread's namespace that can be a path's.
func addresses() (all []Address, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		list, err := i.Addrs()
		if err != nil || i.Flags&net.FlagLoopback != 0 {
			continue // it may have gone
		}
		for _, a := range list {
			prefix, err := netip.ParsePrefix(a.String())
			if err == nil && prefix.Addr().IsGlobalUnicast() {
				all = append(all, Address{Addr: prefix.Addr(), Interface: i.Name, Up: i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0})
			}
		}
	}
	return all, nil
}

// others finds the connections that are TCP.
func (g *gatherer) others(s sighting) {
	multipath := map[uint16]bool{} // ports that MPTCP sockets listen at
	for _, k := range s.sockets {
		if k.Listens && k.Subflow != nil {
			multipath[k.Local.Port()] = true
		}
	}
	for _, k := range s.sockets {
		switch {
		case k.Listens || k.Subflow != nil || k.Local.Addr().IsLoopback() || g.token != 0 || fallback(s, k):
		case multipath[k.Local.Port()]:
			g.FellBack = append(g.FellBack, k.Ends)
		default:
			g.PlainTCP = append(g.PlainTCP, k.Ends)
		}
	}
}

// fallback tells whether a TCP socket is what an MPTCP connection goes on with.
func fallback(s sighting, k mptcp.TCPSocket) bool {
	return slices.ContainsFunc(s.connections, func(c mptcp.Connection) bool { return c.Local == k.Local && c.Remote == k.Remote })
}

// connection adds a connection as it was in the looks.
func (g *gatherer) connection(last mptcp.Connection, looks []sighting) error {
	c := Connection{Connection: last, Devices: map[netip.Addr]string{}}
	counts := last.BytesSent+last.BytesReceived > 0
	for _, k := range looks[len(looks)-1].sockets {
		if k.Subflow == nil || k.Listens || k.Subflow.Token != c.Token {
			continue
		}
		s, err := g.subflow(k, looks)
		if err != nil {
			return err
		}
		if s.Local == c.Local && s.Flags&mptcp.SubflowAskedCapable != 0 {
			c.Opener = true
		}
		c.Subflows = append(c.Subflows, s)
		if !counts { // before Linux 6.5 the kernel counts content on subflows only
			c.Acked, c.Received = c.Acked+s.Acked, c.Received+s.Received
			c.BytesAcked += k.TCP.Bytes_acked - min(1, k.TCP.Bytes_acked) // less the SYN
			c.BytesReceived += k.TCP.Bytes_received
		}
	}
	// In the order in which they came, as far as the kernel tells.
	slices.SortStableFunc(c.Subflows, func(a, b Subflow) int {
		return slices.Index([]bool{true, false}, a.Local == c.Local) - slices.Index([]bool{true, false}, b.Local == c.Local)
	})
	first := last
	for _, l := range slices.Backward(looks) {
		if i := slices.IndexFunc(l.connections, func(m mptcp.Connection) bool { return m.Token == c.Token }); i >= 0 {
			first = l.connections[i]
			c.Looks = append(c.Looks, c.lookAt(first, l))
		}
	}
	slices.Reverse(c.Looks)
	if counts {
		c.Acked, c.Received = last.BytesAcked-first.BytesAcked, last.BytesReceived-first.BytesReceived
	}
	for _, a := range g.Addresses {
		if a.Addr.Is4() != c.Remote.Addr().Is4() {
			continue
		}
		bound := uint32(0)
		for _, e := range g.Endpoints {
			if e.Addr == a.Addr {
				bound = e.Ifindex
			}
		}
		device, err := deviceOf(a.Addr, c.Remote.Addr(), bound)
		if err != nil {
			return err
		}
		c.Devices[a.Addr] = device
	}
	g.Connections = append(g.Connections, c)
	return nil
}

// subflow is what was seen of a socket that is there at the end.
func (g *gatherer) subflow(k mptcp.TCPSocket, looks []sighting) (Subflow, error) {
	const established, synSent = 1, 2
	t := &k.TCP
	s := Subflow{
		Ends: k.Ends, SubflowState: *k.Subflow, CC: catalog.Short(catalog.CC, k.CC),
		Joining: t.State == synSent, Established: t.State == established,
		RTT: micros(t.Rtt), MinRTT: micros(t.Min_rtt),
		Timeouts: int(max(t.Retransmits, t.Backoff)), SinceAck: time.Duration(t.Last_ack_recv) * time.Millisecond,
	}
	if a, ok := g.address(k.Local.Addr()); ok {
		s.Interface, s.Up = a.Interface, a.Up
	}
	var err error
	if s.Device, err = deviceOf(k.Local.Addr(), k.Remote.Addr(), 0); err != nil {
		return s, err
	}
	for _, l := range looks {
		if i := slices.IndexFunc(l.sockets, func(m mptcp.TCPSocket) bool { return m.Ends == k.Ends && !m.Listens }); i >= 0 {
			was := &l.sockets[i].TCP
			s.Acked, s.Received = t.Bytes_acked-was.Bytes_acked, t.Bytes_received-was.Bytes_received
			s.Segments = uint64(t.Data_segs_out - was.Data_segs_out)
			s.Retransmitted = uint64(t.Total_retrans - was.Total_retrans)
			break
		}
	}
	return s, nil
}

// deviceOf names the interface by which packets leave; "" for none.
func deviceOf(from, to netip.Addr, bound uint32) (string, error) {
	index, err := mptcp.Device(from, to, bound)
	if errors.Is(err, mptcp.ErrNoRoute) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	i, err := net.InterfaceByIndex(int(index))
	if err != nil {
		return "", nil // it has just gone
	}
	return i.Name, nil
}

// lookAt is the connection at a moment.
func (c *Connection) lookAt(m mptcp.Connection, s sighting) Look {
	l := Look{Flight: m.BytesSent - min(m.BytesAcked, m.BytesSent), Memory: m.Memory}
	flights := uint64(0)
	for _, f := range c.Subflows {
		var one SubflowLook
		i := slices.IndexFunc(s.sockets, func(k mptcp.TCPSocket) bool { return k.Ends == f.Ends && !k.Listens })
		if i >= 0 {
			t := &s.sockets[i].TCP
			one = SubflowLook{
				There: true, Window: uint64(t.Snd_wnd), SinceAck: time.Duration(t.Last_ack_recv) * time.Millisecond, Cwnd: int(t.Snd_cwnd), Flight: int(t.Unacked),
				Unsent: uint64(t.Notsent_bytes), SegBytes: int(t.Snd_mss), RTT: micros(t.Rtt),
			}
		}
		l.Subflows = append(l.Subflows, one)
		flights += uint64(one.Flight * one.SegBytes)
	}
	if m.BytesSent == 0 { // as before Linux 6.5
		l.Flight = min(m.WriteSeq-m.SendUna, flights)
	}
	if pending := m.WriteSeq - m.SendUna; pending > l.Flight+1 { // the end of the stream counts as a byte
		l.Unsent = pending - l.Flight
	}
	return l
}

func micros(us uint32) time.Duration { return time.Duration(us) * time.Microsecond }

// mapsRead are mpcc's maps at a time; nil where nothing is loaded, or this process may not read them.
type mapsRead struct {
	*telemetry.Snapshot
	rules []paths.Live
}

func readMaps(ctx context.Context) mapsRead {
	snap, err := telemetry.Take(ctx)
	if err != nil || snap == nil {
		return mapsRead{}
	}
	rules, err := paths.List()
	if err != nil {
		rules = nil
	}
	return mapsRead{snap, rules}
}

// addMaps adds what mpcc's maps tell of the connections. Nobody needs them for a verdict: where they cannot be read it
// is less exact.
func (g *gatherer) addMaps(before, after mapsRead) error {
	if after.Snapshot == nil {
		return nil
	}
	for i := range g.Connections {
		c := &g.Connections[i]
		for j := range c.Subflows {
			g.addSubflow(&c.Subflows[j], after)
		}
		g.addScheduler(c, before, after)
	}
	return nil
}

func (g *gatherer) addSubflow(s *Subflow, maps mapsRead) {
	for k := range maps.Subflows {
		f := &maps.Subflows[k]
		if f.Netns != g.ns.Inode || f.Local != s.Local || f.Remote != s.Remote {
			continue
		}
		s.Coupling = &f.Coupling
		if e, err := catalog.Find(string(catalog.CC) + "/" + f.CC); err == nil && e.Priced && f.Priced {
			s.Priced = true
		}
		if carried := f.BytesAcked + f.BytesReceived; f.Energy != nil && carried > 0 {
			perMB := *f.Energy / float64(carried) * 1e6
			s.PerMB = &perMB
		}
	}
}

func (g *gatherer) addScheduler(c *Connection, before, after mapsRead) {
	now := g.scheduled(c, after)
	if now == nil {
		return
	}
	c.Scheduler = catalog.Short(catalog.Sched, now.Scheduler)
	was := g.scheduled(c, before)
	for j := range c.Subflows {
		s := &c.Subflows[j]
		refused := func(t *telemetry.Connection) uint64 {
			if t == nil {
				return 0
			}
			i := slices.IndexFunc(t.Subflows, func(f telemetry.Scheduled) bool {
				return f.LocalID == s.LocalID && f.RemoteID == s.RemoteID
			})
			if i < 0 {
				return 0
			}
			return t.Subflows[i].Refused
		}
		s.Refused = refused(now) - min(refused(was), refused(now))
		if c.Scheduler == "prefer" {
			s.Rule, s.RulePath = g.rule(s, after.rules)
		}
	}
}

// scheduled is the connection as a scheduler of mpcc's knows it.
func (g *gatherer) scheduled(c *Connection, maps mapsRead) *telemetry.Connection {
	if maps.Snapshot == nil {
		return nil
	}
	i := slices.IndexFunc(maps.Connections, func(t telemetry.Connection) bool {
		return t.Netns == g.ns.Inode && uint32(t.Token) == c.Token
	})
	if i < 0 {
		return nil
	}
	return &maps.Connections[i]
}

// rule is what keeps traffic off a path, by the rule that wins there.
func (g *gatherer) rule(s *Subflow, rules []paths.Live) (says, path string) {
	var winner *paths.Live
	for i := range rules {
		r := &rules[i]
		if applies, local := r.Local(s.Interface, s.Local.Addr(), s.LocalID); !applies || !local || r.Inode != g.ns.Inode {
			continue
		}
		if winner == nil || r.Before(*winner) {
			winner = r
		}
	}
	if winner == nil {
		return "", ""
	}
	var parts []string
	if winner.Excluded {
		parts = append(parts, "excluded")
	}
	if winner.Rank > 1 {
		parts = append(parts, fmt.Sprintf("rank %d", winner.Rank))
	}
	if winner.Cap > 0 {
		parts = append(parts, "cap "+winner.Cap.String())
	}
	if winner.Spent {
		parts = append(parts, "quota used up")
	}
	return strings.Join(parts, ", "), winner.Path.String()
}
