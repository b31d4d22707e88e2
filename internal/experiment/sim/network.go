// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/dchest/siphash"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/ways"
)

// What random numbers are for. Each purpose has generators of its own: of the run's seed, the purpose and the number
// of the link, algorithm or user that they are for.
const (
	forLink = 1 << 32 * (iota + 2) // 0 and 1 are what package scenario and users draw with
	forRED
	forAlgorithms
	forStarts
	forSources
	forPIE
)

// generator returns random numbers for one purpose.
func (s *Simulation) generator(purpose uint64, number int) *rand.PCG {
	return rand.NewPCG(s.seed, purpose+uint64(number))
}

// network is what the scenario describes, as paths are found through it.
type network struct {
	nodes  ways.Network
	places map[scenario.Name]int
	hosts  []node
	sides  [][]side // each node's ends
	to     map[ways.End]*ways.Ways
	paths  map[[2]address]int32
}

// node is a host or a router.
type node struct {
	name   scenario.Name
	router bool
	seed   uint64 // of the hash by which it chooses among equal ways
}

// side is a node's end of a link.
type side struct {
	link   scenario.LinkName
	iface  string
	subnet uint32  // the first address of the link's subnet
	last   byte    // of the end's own address in it: 1 or 2
	out    []int32 // what packets pass that leave by it: no link, where nothing happens to them, one or two
}

// address is an IPv4 address.
type address uint32

// place is an address, and the end that it is of.
type place struct {
	address
	at ways.End
}

func newNetwork() network {
	return network{places: map[scenario.Name]int{}, to: map[ways.End]*ways.Ways{}, paths: map[[2]address]int32{}}
}

// build makes the network, in the order in which the lab makes it: links, and so addresses, have the same numbers.
func (s *Simulation) build(plan *scenario.Network, events []scenario.Event) {
	n := &s.network
	for _, r := range plan.Routers {
		n.add(r, true, true)
	}
	for i := range plan.Hosts {
		n.add(plan.Hosts[i].Name, plan.Hosts[i].Forwards, false)
	}
	for i := range plan.Links {
		s.join(i, &plan.Links[i], events)
	}
}

func (n *network) add(name scenario.Name, forwards, router bool) {
	hash := fnv.New32a()
	hash.Write([]byte(name))
	seed := uint64(hash.Sum32())
	n.places[name] = len(n.nodes)
	n.nodes = append(n.nodes, ways.Node{Forwards: forwards})
	n.hosts = append(n.hosts, node{name, router, seed<<32 | seed})
	n.sides = append(n.sides, nil)
}

// join adds the i-th link.
func (s *Simulation) join(i int, l *scenario.Link, events []scenario.Event) {
	n := &s.network
	changes := slices.ContainsFunc(events, func(e scenario.Event) bool { return e.Link == l.Name })
	back := l.Shape
	if l.Back != nil {
		back = *l.Back
	}
	a, b := n.places[l.Between[0]], n.places[l.Between[1]]
	n.nodes.Link(a, b)
	for j, at := range []int{a, b} {
		name, shape := string(l.Name), l.Shape
		if j == 1 {
			name, shape = name+"-back", back
		}
		n.sides[at] = append(n.sides[at], side{
			link: l.Name, iface: l.Interface, subnet: 10<<24 | uint32(i+1)<<8, last: byte(1 + j),
			out: s.direction(name, l.Between[j], l.Between[1-j], shape, changes),
		})
	}
}

// direction makes one direction of a link: nothing where packets pass at once, else a link. It is two, the delay and
// then the queue, where what happens in the queue cannot be told when a packet enters the link: because others may
// overtake it before, or the rate change.
func (s *Simulation) direction(name string, from, to scenario.Name, shape scenario.Shape, changes bool) []int32 {
	d := Direction{Name: name, From: from, To: to, Shape: shape, queue: -1}
	delays := shape.Delay > 0 || shape.Loss > 0 || changes
	if shape.Rate == 0 && !delays {
		return nil
	}
	first := int32(len(s.links))
	if shape.Rate == 0 || !changes && !shape.Reorder {
		s.link(name, shape)
	} else {
		before, behind := shape, shape
		before.Rate = 0
		behind.Delay, behind.Jitter, behind.Loss = 0, 0, 0
		s.link(name, before)
		s.link(name, behind)
	}
	var out []int32
	for i := first; i < int32(len(s.links)); i++ {
		out = append(out, i)
		s.links[i].overtake = i == first && (shape.Reorder || changes && shape.Jitter == 0)
	}
	d.links = out
	if shape.Rate > 0 {
		d.queue = out[len(out)-1]
		node := s.network.hosts[s.network.places[from]]
		l := &s.links[d.queue]
		// netem takes a packet off its socket's account where it delays it, tbf does not.
		l.holds = !node.router && l.tokens && shape.Delay == 0 && len(out) == 1
	}
	s.Directions = append(s.Directions, d)
	return out
}

func (s *Simulation) link(name string, shape scenario.Shape) {
	number := len(s.links)
	l := link{name: name, timer: s.timer(leaving, number), random: s.generator(forLink, number)}
	l.reshape(shape)
	if shape.Rate > 0 {
		if shape.Queue.AQM != "" {
			l.manager = newManager(shape.Queue.AQM, s.generator(forPIE, number))
		}
		l.queue(shape)
	}
	if l.red != nil {
		l.red.random = s.generator(forRED, number)
	}
	s.links = append(s.links, l)
}

// Direction is one direction of a link that does anything to packets.
type Direction struct {
	Name     string
	From, To scenario.Name
	Shape    scenario.Shape // at the beginning
	links    []int32
	queue    int32 // -1: none
}

// Change changes a link as an event says.
func (s *Simulation) Change(e scenario.Event) error {
	found := false
	for i := range s.Directions {
		d := &s.Directions[i]
		there, back := d.Name == string(e.Link), d.Name == string(e.Link)+"-back"
		if !there && !back {
			continue
		}
		found = true
		if there && !e.Changes(scenario.There) || back && !e.Changes(scenario.Back) {
			continue
		}
		for j, number := range d.links {
			l := &s.links[number]
			switch e.State {
			case "down":
				s.takeDown(number)
			case "up":
				l.down = false
			}
			shape := l.shape
			if e.Rate != nil && number == d.queue {
				shape.Rate = *e.Rate
			}
			if e.Delay != nil && j == 0 {
				shape.Delay = *e.Delay
			}
			if e.Loss != nil && j == 0 {
				shape.Loss = *e.Loss
			}
			s.change(number, shape)
		}
	}
	if !found {
		return fmt.Errorf("there is no link %s", e.Link)
	}
	return nil
}

// address returns an end's i-th address: the lab gives further ones from 64 or 128 on.
func (d *side) address(i int) address {
	if i == 0 {
		return address(d.subnet | uint32(d.last))
	}
	return address(d.subnet | uint32(64*int(d.last)+i-1))
}

// path returns the links from one end's address to another's, as a place in hops; false if there is no way.
func (s *Simulation) path(from, to place) (int32, bool) {
	n := &s.network
	key := [2]address{from.address, to.address}
	if at, ok := n.paths[key]; ok {
		return at, at >= 0
	}
	hops, ok := n.hops(from, to)
	at := int32(-1)
	if ok {
		at = int32(len(s.hops))
		s.hops = append(append(s.hops, hops...), arrived)
	}
	n.paths[key] = at
	return at, ok
}

// slowest returns how long a full frame takes on the slowest link of a path.
func (s *Simulation) slowest(path int32) (most int64) {
	for ; s.hops[path] != arrived; path++ {
		if rate := s.links[s.hops[path]].rate; rate > 0 {
			most = max(most, frameTime(frame, rate))
		}
	}
	return most
}

// arrived is in hops where a path ends.
const arrived = -1

func (n *network) hops(from, to place) (hops []int32, ok bool) {
	w := n.ways(to.at)
	node, end := from.at.Node, from.at.End
	if !w.Direct(node, end) {
		if _, ok := w.Cost(node, end); !ok {
			return nil, false // a host sends by the address's own link, or not at all
		}
	}
	for range n.nodes {
		hops = append(hops, n.sides[node][end].out...)
		node = n.nodes[node].Ends[end].Node
		if node == to.at.Node {
			return hops, true
		}
		best := w.Best(node)
		if len(best) == 0 {
			return nil, false
		}
		end = best[n.choose(node, from.address, to.address, len(best))]
	}
	return nil, false
}

func (n *network) ways(to ways.End) *ways.Ways {
	if n.to[to] == nil {
		n.to[to] = n.nodes.To(to)
	}
	return n.to[to]
}

// choose returns which of several equal ways a node takes: as Linux's fib_multipath_hash by addresses, with the
// seed that the lab gives the node, and as its fib_select_multipath.
func (n *network) choose(node int, from, to address, among int) int {
	if among == 1 {
		return 0
	}
	// Both directions have the same hash: the lesser address, as the processor reads it, is first.
	var a, b [4]byte
	binary.BigEndian.PutUint32(a[:], uint32(from))
	binary.BigEndian.PutUint32(b[:], uint32(to))
	if binary.LittleEndian.Uint32(b[:]) < binary.LittleEndian.Uint32(a[:]) {
		a, b = b, a
	}
	var keys [48]byte // struct flow_keys from basic on, with nothing but the addresses
	copy(keys[36:], a[:])
	copy(keys[40:], b[:])
	seed := n.hosts[node].seed
	hash := uint64(uint32(siphash.Hash(seed, seed, keys[:]))) >> 1
	for i := range among {
		bound := (uint64(i+1)<<31+uint64(among)/2)/uint64(among) - 1
		if hash <= bound {
			return i
		}
	}
	return among - 1
}

// interfaceOf returns a host's end of a link, by the interface's name; of its first link without one.
func (n *network) interfaceOf(host, link scenario.Name) (ways.End, error) {
	at := n.places[host]
	for i := range n.sides[at] {
		if link == "" || n.sides[at][i].iface == string(link) {
			return ways.End{Node: at, End: i}, nil
		}
	}
	return ways.End{}, fmt.Errorf("host %s has no link %s", host, link)
}

// place returns the i-th address of an end.
func (n *network) place(at ways.End, i int) place {
	return place{n.sides[at.Node][at.End].address(i), at}
}

// Queue returns how many packets the queue of a direction has let pass, dropped and marked so far.
func (s *Simulation) Queue(d *Direction) (sent, dropped, marked uint64) {
	if d.queue < 0 {
		return 0, 0, 0
	}
	l := &s.links[d.queue]
	return l.left, l.dropped, l.marked
}
