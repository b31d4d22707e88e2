// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Shape is what one direction of a link does to packets. The zero Shape is an
// unlimited link.
//
// A packet meets them in this order: loss, delay, queue, rate. (Delay and rate
// have a queue each: in a common one, packets in flight would count as waiting.)
// A packet whose delay would have it overtake others leaves right behind them,
// but for Reorder: where packets follow each other closely, delays are near the
// longest.
// At most one of Queue, QueueBytes and RED says what the queue is.
// Without netem the queue is the sending host's own, whose TCP then waits for
// room instead of filling it up (TCP small queues): put a router before a
// bottleneck that is to overflow.
type Shape struct {
	Rate       uint64        // bit/s of Ethernet frames (payload, headers and 14 bytes each); 0: unlimited
	Queue      int           // how many packets may wait (without netem: how many times 1514 bytes); 0: 100
	QueueBytes int           // or how many bytes, at least 1514
	Changes    bool          // the rate changes often: what a change gives at once is then little
	RED        *RED          // or random early detection
	AQM        string        // what manages Queue: "codel", "fq_codel" or "pie"; "": nothing, packets are dropped where it is full
	Delay      time.Duration // one way, 1 µs to 4 s
	Jitter     time.Duration // the delay varies evenly by ± this much
	Reorder    bool          // let packets overtake each other because of the jitter
	Loss       float64       // percent of packets lost at random, 0 to 100
}

// RED drops packets before the queue is full. The chance that it takes a packet
// follows the average queue: 0 up to Min, evenly up to Prob at Max, from there
// evenly up to 1 at End, and 1 beyond. RED spaces drops evenly rather than at
// random, so that up to twice as many packets are dropped as the chance says.
//
// The kernel's RED has one rise. For two, two of them follow each other: one
// that rises from Min, and one from Max. Together they are within 0.05 of the
// curve if Prob is 0.1 and Max halfway between Min and End.
type RED struct {
	Min, Max int     // packets of 1514 bytes
	Prob     float64 // above 0, at most 1
	End      int     // packets of 1514 bytes; 0: the same as Max
	ECN      bool    // mark what can be marked instead of dropping it
}

func (r *RED) check() error {
	switch {
	case r.Min < 1 || r.Max <= r.Min:
		return fmt.Errorf("RED from %d to %d packets: use at least 1, then more", r.Min, r.Max)
	case !(r.Prob > 0 && r.Prob <= 1):
		return fmt.Errorf("RED's chance %v: use more than 0, at most 1", r.Prob)
	case r.End != 0 && r.End < r.Max:
		return fmt.Errorf("RED's end %d: use 0, or at least its second threshold %d", r.End, r.Max)
	}
	return nil
}

// frame is a full Ethernet frame at the veth MTU of 1500 bytes.
const frame = 1514

const defaultQueue = 100

func (s Shape) check() error {
	switch {
	case s.Rate != 0 && s.Rate < 8000:
		return fmt.Errorf("rate %d bit/s: use 0 for unlimited, or at least 8000", s.Rate)
	case s.Queue < 0:
		return fmt.Errorf("queue %d: use 0 for the default, or at least 1", s.Queue)
	case s.QueueBytes != 0 && s.QueueBytes < frame:
		return fmt.Errorf("queue of %d bytes: use at least %d", s.QueueBytes, frame)
	case s.Rate == 0 && s.queues() > 0:
		return fmt.Errorf("queue %d without a rate: nothing would ever wait in it", max(s.Queue, s.QueueBytes))
	case s.queues() > 1:
		return errors.New("more than one of a queue in packets, a queue in bytes and RED")
	case s.AQM != "" && (managers[s.AQM] == "" || s.Queue == 0):
		return fmt.Errorf("a queue of %d packets managed by %q: use at least 1, and codel, fq_codel or pie", s.Queue, s.AQM)
	case s.Delay < 0 || s.Delay > 4*time.Second:
		return fmt.Errorf("delay %v: use 0 to 4s", s.Delay)
	case s.Jitter < 0 || s.Jitter > s.Delay:
		return fmt.Errorf("jitter %v: use 0 to the delay, %v", s.Jitter, s.Delay)
	case s.Reorder && s.Jitter == 0:
		return errors.New("reorder without jitter: no packet would overtake another")
	case !(s.Loss >= 0 && s.Loss <= 100):
		return fmt.Errorf("loss %v %%: use 0 to 100", s.Loss)
	case s.RED != nil:
		return s.RED.check()
	}
	return nil
}

// queues counts in how many of the three ways the queue is described.
func (s Shape) queues() (n int) {
	for _, given := range []bool{s.Queue > 0, s.QueueBytes > 0, s.RED != nil} {
		if given {
			n++
		}
	}
	return n
}

// needsNetem says whether s has parts that only netem can do.
func (s Shape) needsNetem() bool { return s.Delay > 0 || s.Jitter > 0 || s.Loss > 0 }

// Dir is a direction of a link.
type Dir int

// The directions of a link, by the order of the hosts given to Lab.Link.
const (
	AtoB Dir = iota
	BtoA
)

// LinkOpts describes a link. Name is what its interface is called on hosts (at
// most 15 characters). Without one, and on routers, it is eth0, eth1, … in the
// order of the host's links.
type LinkOpts struct {
	Name       string
	AtoB, BtoA Shape
}

// Link joins two hosts: a veth pair with a subnet of its own.
type Link struct {
	lab  *Lab
	ends [2]*end // a, b
}

// end is one host's side of a link.
type end struct {
	host   *Host
	link   *Link
	peer   *end
	dev    string
	nl     netlink.Link
	addr   netip.Addr
	more   []netip.Addr // from AddAddrs
	subnet netip.Prefix
	table  int   // number of this address's own routing table; 0 on routers
	shape  Shape // of what this end sends
	queues string
	routes []netlink.Route // to put back after the interface was down
}

// Link joins a and b. The n-th link of a lab is subnet 10.x.y.0/24 with
// n = 256·x + y, counted from 1; a has address 1 in it and b address 2, and
// AddAddrs gives them 64 to 127 and 128 to 191. Hosts reach addresses beyond
// their own links after Route.
func (l *Lab) Link(a, b *Host, o LinkOpts) (*Link, error) {
	link, err := l.link(a, b, o)
	if err != nil {
		return nil, fmt.Errorf("lab: link %s–%s: %w", a.name, b.name, err)
	}
	return link, nil
}

func (l *Lab) link(a, b *Host, o LinkOpts) (*Link, error) {
	n := len(l.links) + 1
	switch {
	case a == b:
		return nil, errors.New("needs two hosts")
	case n > 0xffff:
		return nil, errors.New("more than 65535 links")
	}
	if err := errors.Join(o.AtoB.check(), o.BtoA.check()); err != nil {
		return nil, err
	}
	link := l.newLink(n, a, b, o.Name)
	if err := link.makeVeth(); err != nil {
		return nil, err
	}
	a.ends, b.ends = append(a.ends, link.ends[0]), append(b.ends, link.ends[1])
	l.links = append(l.links, link)

	for _, e := range link.ends {
		if err := e.configure(); err != nil {
			return nil, fmt.Errorf("%s on %s: %w", e.dev, e.host.name, err)
		}
	}
	if err := link.up(); err != nil {
		return nil, err
	}
	for _, e := range link.ends {
		if err := errors.Join(e.peer.addNeighbour(e.addr), e.addOwnRoutes()); err != nil {
			return nil, fmt.Errorf("%s on %s: %w", e.dev, e.host.name, err)
		}
	}
	if err := link.Set(AtoB, o.AtoB); err != nil {
		return nil, err
	}
	return link, link.Set(BtoA, o.BtoA)
}

// newLink describes the n-th link of the lab.
func (l *Lab) newLink(n int, a, b *Host, name string) *Link {
	link := &Link{lab: l}
	for i, h := range []*Host{a, b} {
		e := &end{host: h, link: link, dev: name}
		if e.dev == "" || h.router {
			e.dev = fmt.Sprintf("eth%d", len(h.ends))
		}
		e.addr = netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), byte(1 + i)})
		e.subnet = netip.PrefixFrom(e.addr, 24).Masked()
		if !h.router {
			e.table = 1000 + len(h.ends)
		}
		link.ends[i] = e
	}
	link.ends[0].peer, link.ends[1].peer = link.ends[1], link.ends[0]
	return link
}

// makeVeth makes the link's devices, in the two namespaces at once: the
// machine's own never sees them.
func (k *Link) makeVeth() error {
	a, b := k.ends[0], k.ends[1]
	err := a.host.nl.LinkAdd(&netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: a.dev},
		PeerName:      b.dev,
		PeerNamespace: netlink.NsFd(b.host.ns.Fd()),
	})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return errors.New("this kernel has no veth")
	case err != nil:
		return fmt.Errorf("make the veth pair %s: %w", a.dev, err)
	}
	return nil
}

func (e *end) configure() (err error) {
	h := e.host
	if e.nl, err = h.nl.LinkByName(e.dev); err != nil {
		return err
	}
	ip := &net.IPNet{IP: e.addr.AsSlice(), Mask: net.CIDRMask(24, 32)}
	if err := h.nl.AddrAdd(e.nl, &netlink.Addr{IPNet: ip}); err != nil {
		return fmt.Errorf("add address %v: %w", e.addr, err)
	}
	if h.forwards || e.peer.host.forwards {
		if err := e.sendFrames(); err != nil {
			return err
		}
	}
	return nil
}

// addNeighbour gives e a permanent neighbour entry for an address of its peer.
// ARP's requests and replies would have to pass full queues, and the kernel
// keeps 1024 entries of ARP for all namespaces together.
func (e *end) addNeighbour(addr netip.Addr) error {
	err := e.host.nl.NeighSet(&netlink.Neigh{
		LinkIndex:    e.nl.Attrs().Index,
		IP:           addr.AsSlice(),
		HardwareAddr: e.peer.nl.Attrs().HardwareAddr,
		State:        netlink.NUD_PERMANENT,
	})
	if err != nil {
		return fmt.Errorf("add the neighbour entry of %v on %s: %w", addr, e.host.name, err)
	}
	return nil
}

// up sets both ends up and returns when packets pass: some time after the second
// end is up the kernel starts the first one's queue, and drops what comes before.
func (k *Link) up() error {
	for _, e := range k.ends {
		if err := e.host.nl.LinkSetUp(e.nl); err != nil {
			return fmt.Errorf("set %s on %s up: %w", e.dev, e.host.name, err)
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for _, e := range k.ends {
		for {
			l, err := e.host.nl.LinkByIndex(e.nl.Attrs().Index)
			if err != nil {
				return fmt.Errorf("look at %s on %s: %w", e.dev, e.host.name, err)
			}
			if l.Attrs().OperState == netlink.OperUp {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s on %s is %v 5 s after it was set up", e.dev, e.host.name, l.Attrs().OperState)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// sendFrames has TCP hand over single frames. Left alone it hands over up to
// 64 kB at once, which a queue counts, delays and loses as one packet. Switching
// the device's offloads off would not help: TCP would build large packets all
// the same, and have them cut after the queue. It is done for links to routers
// too, because a later link on the path may have a queue.
func (e *end) sendFrames() error {
	if err := e.host.nl.LinkSetGSOMaxSegs(e.nl, 1); err != nil {
		return fmt.Errorf("limit packets to one frame: %w", err)
	}
	return nil
}

// Addr returns h's address on the link; h must be one of its hosts.
func (k *Link) Addr(h *Host) netip.Addr { return k.end(h).addr }

// Index returns the number of the link's interface on h, one of its hosts.
func (k *Link) Index(h *Host) int { return k.end(h).nl.Attrs().Index }

// Interface returns the name of the link's interface on h, one of its hosts.
func (k *Link) Interface(h *Host) string { return k.end(h).dev }

// moreBits is the length of the prefix of an end's further addresses.
const moreBits = 26

// AddAddrs gives h, one of the link's hosts, n further addresses on it, up to 64
// in all, and returns them. Where several shortest paths lead from h or to it,
// subflows with different addresses spread over them. Call it before Route.
func (k *Link) AddAddrs(h *Host, n int) ([]netip.Addr, error) {
	e := k.end(h)
	if len(e.more)+n > 64 {
		return nil, fmt.Errorf("lab: %s on %s: %d further addresses: it can have 64", e.dev, h.name, len(e.more)+n)
	}
	next := e.morePrefix().Addr()
	if len(e.more) > 0 {
		next = e.more[len(e.more)-1].Next()
	}
	for range n {
		ip := &net.IPNet{IP: next.AsSlice(), Mask: net.CIDRMask(24, 32)}
		if err := h.nl.AddrAdd(e.nl, &netlink.Addr{IPNet: ip}); err != nil {
			return nil, fmt.Errorf("lab: %s on %s: add address %v: %w", e.dev, h.name, next, err)
		}
		if err := errors.Join(e.addRule(next), e.peer.addNeighbour(next)); err != nil {
			return nil, fmt.Errorf("lab: %s on %s: %w", e.dev, h.name, err)
		}
		e.more = append(e.more, next)
		next = next.Next()
	}
	return e.more[len(e.more)-n:], nil
}

// morePrefix has room for the addresses that AddAddrs gives.
func (e *end) morePrefix() netip.Prefix {
	b := e.subnet.Addr().As4()
	b[3] = 64
	if e == e.link.ends[1] {
		b[3] = 128
	}
	return netip.PrefixFrom(netip.AddrFrom4(b), moreBits)
}

// QueueStats counts the packets of one direction of a link since it was made,
// or since its queue was last replaced by one of another kind.
type QueueStats struct {
	Sent    uint64 // those that left the queue
	Dropped uint64 // those for which it was full, or that RED dropped
	Marked  uint64 // those that RED marked by ECN
	Backlog uint64 // those that wait now
}

// Stats returns the counts of one direction, which must have a rate.
func (k *Link) Stats(d Dir) (QueueStats, error) {
	var q QueueStats
	e := k.ends[d]
	qdiscs, err := e.host.nl.QdiscList(e.nl)
	if err != nil {
		return q, fmt.Errorf("lab: read the queues of %s on %s: %w", e.dev, e.host.name, err)
	}
	type counts struct{ dropped, overlimit uint64 }
	red := map[uint16]counts{}
	found := false
	for _, qdisc := range qdiscs {
		a := qdisc.Attrs()
		if a.Statistics == nil || a.Statistics.Basic == nil || a.Statistics.Queue == nil {
			continue
		}
		major, _ := netlink.MajorMinor(a.Handle)
		if major == queueHandle {
			found = true
			q.Sent, q.Dropped, q.Backlog = uint64(a.Statistics.Basic.Packets), uint64(a.Statistics.Queue.Drops), uint64(a.Statistics.Queue.Qlen)
		}
		if qdisc.Type() == "red" {
			red[major] = counts{uint64(a.Statistics.Queue.Drops), uint64(a.Statistics.Queue.Overlimits)}
		}
	}
	if !found {
		return q, fmt.Errorf("lab: %s on %s has no queue: give it a rate", e.dev, e.host.name)
	}
	// A RED's overlimits are what it dropped or marked early. Its drops include
	// those of the RED below it.
	for major, c := range red {
		if early := c.dropped - red[major+1].dropped; c.overlimit > early {
			q.Marked += c.overlimit - early
		}
	}
	return q, nil
}

// Received returns how many bytes of Ethernet frames have come by one direction.
func (k *Link) Received(d Dir) (uint64, error) {
	e := k.ends[1-d]
	l, err := e.host.nl.LinkByIndex(e.nl.Attrs().Index)
	if err != nil {
		return 0, fmt.Errorf("lab: look at %s on %s: %w", e.dev, e.host.name, err)
	}
	return l.Attrs().Statistics.RxBytes, nil
}

// Qdiscs returns what tc shows of one direction's queues.
func (k *Link) Qdiscs(d Dir) (string, error) {
	e := k.ends[d]
	out, err := e.host.Command(e.link.lab.ctx, "tc", "qdisc", "show", "dev", e.dev).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("lab: %s: %w", e.host.name, toolError("tc", "qdisc show dev "+e.dev, out, err))
	}
	return strings.TrimSpace(string(out)), nil
}

func (k *Link) end(h *Host) *end {
	for _, e := range k.ends {
		if e.host == h {
			return e
		}
	}
	panic("lab: " + h.name + " is not on this link")
}

// Set changes one direction of the link while traffic runs. Packets waiting in
// the queue stay, except where a rate is first given or taken away. The parts
// of s that need netem are left out on kernels without it: see Has.
func (k *Link) Set(d Dir, s Shape) error {
	e := k.ends[d]
	if err := e.set(s); err != nil {
		return fmt.Errorf("lab: %s on %s: %w", e.dev, e.host.name, err)
	}
	return nil
}

func (e *end) set(s Shape) error {
	if err := s.check(); err != nil {
		return err
	}
	queues, script := s.tc(e.dev, e.link.lab.netem() == nil)
	if e.queues != queues && e.queues != "" {
		script = append([]string{"qdisc del dev " + e.dev + " root"}, script...)
	}
	if queues != "" {
		for _, side := range e.link.ends {
			if err := side.sendFrames(); err != nil {
				return err
			}
		}
	}
	if e.link.lab.together {
		e.host.queues = append(e.host.queues, script...)
	} else if err := e.host.batch("tc", script); err != nil {
		return err
	}
	e.queues, e.shape = queues, s
	return nil
}

// Down takes the link away at both ends: nothing passes, and connections that
// use its addresses have no route. Addresses stay. For a link that loses all
// packets without anybody being told, set its loss to 100 instead.
func (k *Link) Down() error {
	for _, e := range k.ends {
		if err := e.host.nl.LinkSetDown(e.nl); err != nil {
			return fmt.Errorf("lab: set %s on %s down: %w", e.dev, e.host.name, err)
		}
	}
	return nil
}

// Up brings a link back after Down, with its routes.
func (k *Link) Up() error {
	if err := k.up(); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	for _, e := range k.ends {
		for _, addr := range append([]netip.Addr{e.addr}, e.more...) {
			if err := e.peer.addNeighbour(addr); err != nil {
				return fmt.Errorf("lab: %w", err)
			}
		}
		for _, r := range e.routes {
			if err := e.host.nl.RouteReplace(&r); err != nil {
				return fmt.Errorf("lab: put back route %v of %s: %w", r.Dst, e.host.name, err)
			}
		}
	}
	return nil
}
