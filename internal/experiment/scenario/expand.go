// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"math/rand/v2"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/pkg/energy"
)

// Network is what a run builds, and who uses it: every single host, link and user.
type Network struct {
	Hosts   []Host // single ones, all with MPTCP limits and endpoints
	Routers []Name
	Links   []Link // single ones; Interface is the name on hosts
	Classes []Class
}

// Class is a class with its users.
type Class struct {
	*User
	Members []Member // Count of them or, on hosts of a kind, Count on each host
}

// Member is one user: the hosts that open and that accept its connections.
type Member struct{ From, To Name }

// Network returns the network of the run's scenario.
func (r Run) Network() *Network {
	b := build(r.Scenario)
	random := rand.New(rand.NewPCG(r.Seed, 0))
	for i := range r.Scenario.Users {
		b.Classes = append(b.Classes, b.class(&r.Scenario.Users[i], random))
	}
	return &b.Network
}

// HostPower returns the power of the hosts of a class; nil if they have no profile.
func (n *Network) HostPower(c *Class) *result.HostPower {
	for i := range n.Hosts {
		h := &n.Hosts[i]
		if len(c.Members) == 0 || h.Name != c.Members[0].From || h.Energy == nil {
			continue
		}
		p, err := energy.FindHost(h.Energy.Host)
		if err != nil {
			panic("scenario: what Parse took is not there: " + err.Error())
		}
		return &result.HostPower{Profile: p.Name, Base: p.Base, Slope: p.Slope, Scale: h.Energy.Scale}
	}
	return nil
}

// For returns r with the thresholds for a link of that rate.
func (r RED) For(rate Rate) RED {
	if r.Per > 0 {
		factor := float64(rate) / float64(r.Per)
		r.Min, r.Max, r.End, r.Per = r.Min*factor, r.Max*factor, r.End*factor, 0
	}
	return r
}

// builder makes a network. kinds has the hosts that each name in the file stands for.
type builder struct {
	Network
	kinds map[Name][]Name
}

func build(s *Scenario) *builder {
	b := &builder{kinds: map[Name][]Name{}}
	b.Routers = append(b.Routers, s.Routers...)
	for _, h := range s.Hosts {
		name, count := h.Name, h.Count
		h.Count, h.When = nil, nil
		if count == nil {
			b.host(h, name)
			continue
		}
		for i := range *count {
			h.Name = numbered(name, i)
			b.host(h, name)
		}
	}
	for _, g := range s.Generate {
		b.generate(g)
	}
	for _, l := range s.Links {
		b.links(l)
	}
	for i := range b.Hosts {
		b.endpoints(&b.Hosts[i])
	}
	return b
}

func numbered[T ~string](name T, i int) T { return T(fmt.Sprintf("%s-%d", name, i)) }

func (b *builder) host(h Host, kind Name) {
	b.Hosts = append(b.Hosts, h)
	b.kinds[kind] = append(b.kinds[kind], h.Name)
}

// links adds a link or, if one end is a kind of hosts, one for each of these.
func (b *builder) links(l Link) {
	l.Interface, l.When = string(l.Name), nil
	name := l.Name
	for side, end := range l.Between {
		hosts := b.kinds[end]
		if len(hosts) == 0 || hosts[0] == end {
			continue
		}
		for i, h := range hosts {
			l.Name, l.Between = numbered(name, i), []Name{h, l.Between[1-side]}
			if side == 1 {
				l.Between[0], l.Between[1] = l.Between[1], l.Between[0]
			}
			b.Links = append(b.Links, l)
		}
		return
	}
	b.Links = append(b.Links, l)
}

// The kernel's limits.
const (
	maxEndpoints = 8
	maxSubflows  = 8
)

// endpoints fills in what a host without the key mptcp has.
func (b *builder) endpoints(h *Host) {
	if h.MPTCP != nil {
		return
	}
	h.MPTCP = &MPTCP{Subflows: maxSubflows}
	for _, l := range b.Links {
		if l.has(h.Name) && len(h.MPTCP.Endpoints) < maxEndpoints {
			e := Endpoint{Link: Name(l.Interface), Addresses: 1, Flags: []string{"subflow"}}
			h.MPTCP.Endpoints = append(h.MPTCP.Endpoints, e)
		}
	}
}

func (l *Link) has(n Name) bool { return l.Between[0] == n || l.Between[1] == n }

// class puts a class's users on hosts. If they connect to hosts of a kind, these are shuffled into a circle, and
// each user has the next one as its peer: all are used alike, and nobody connects to itself.
func (b *builder) class(u *User, random *rand.Rand) Class {
	c := Class{User: u}
	from, to := b.kinds[u.From], b.kinds[u.To]
	for range u.Count {
		circle := random.Perm(len(to))
		place := make([]int, len(to))
		for i, host := range circle {
			place[host] = i
		}
		for i := range from {
			next := circle[i%len(to)]
			if u.From == u.To {
				next = circle[(place[i]+1)%len(to)]
			}
			c.Members = append(c.Members, Member{from[i], to[next]})
		}
	}
	return c
}

// generate adds one of the data centre networks.
func (b *builder) generate(g Generate) {
	switch {
	case g.FatTree != nil:
		b.fatTree(g, g.FatTree.Ports)
	case g.VL2 != nil:
		b.vl2(g, *g.VL2)
	case g.BCube != nil:
		b.bcube(g, g.BCube.Ports)
	}
}

func (b *builder) switches(g Generate, layer string, count int) []Name {
	names := make([]Name, count)
	for i := range names {
		names[i] = numbered(g.Name+"-"+Name(layer), i)
	}
	b.Routers = append(b.Routers, names...)
	return names
}

// access adds a host and its links to switches.
func (b *builder) access(g Generate, i int, forwards bool, switches ...Name) {
	h := Host{Name: numbered(g.Name, i), Forwards: forwards, MPTCP: g.MPTCP}
	b.host(h, g.Name)
	for port, s := range switches {
		b.Links = append(b.Links, Link{
			Name:      LinkName(fmt.Sprintf("%s-eth%d", h.Name, port)),
			Between:   []Name{h.Name, s},
			Shape:     g.Access,
			Energy:    g.Energy,
			Interface: fmt.Sprintf("eth%d", port),
			Place:     g.Place,
		})
	}
}

func (b *builder) fabric(g Generate, from, to Name) {
	b.Links = append(b.Links, Link{
		Name: LinkName(from + "-" + to), Between: []Name{from, to}, Shape: g.Fabric, Place: g.Place,
	})
}

// fatTree adds k pods of k/2 edge and k/2 aggregation switches, and (k/2)² core switches in k/2 groups. The i-th
// aggregation switch of each pod is linked to the i-th group.
func (b *builder) fatTree(g Generate, k int) {
	half := k / 2
	edge := b.switches(g, "edge", k*half)
	aggregation := b.switches(g, "agg", k*half)
	core := b.switches(g, "core", half*half)
	for e := range edge {
		for i := range half {
			b.access(g, e*half+i, false, edge[e])
			b.fabric(g, edge[e], aggregation[e/half*half+i])
		}
	}
	for a := range aggregation {
		for i := range half {
			b.fabric(g, aggregation[a], core[a%half*half+i])
		}
	}
}

// vl2 links each rack to two aggregation switches, which have equally many racks.
func (b *builder) vl2(g Generate, v VL2) {
	racks := b.switches(g, "tor", v.Racks)
	aggregation := b.switches(g, "agg", v.Aggregations)
	intermediate := b.switches(g, "int", v.Intermediates)
	for r := range racks {
		for i := range v.Hosts {
			b.access(g, r*v.Hosts+i, false, racks[r])
		}
		for i := range 2 {
			b.fabric(g, racks[r], aggregation[(2*r+i)%len(aggregation)])
		}
	}
	for a := range aggregation {
		for i := range intermediate {
			b.fabric(g, aggregation[a], intermediate[i])
		}
	}
}

// bcube numbers hosts with a digit for each level, whose base is the level's number of ports. Hosts that differ
// in no other digit share a switch of that level.
func (b *builder) bcube(g Generate, ports []int) {
	hosts := product(ports)
	levels := make([][]Name, len(ports))
	for level, n := range ports {
		levels[level] = b.switches(g, fmt.Sprintf("level%d", level), hosts/n)
	}
	for h := range hosts {
		var switches []Name
		below := 1 // the value of the level's digit
		for level, n := range ports {
			without := h/(below*n)*below + h%below
			switches = append(switches, levels[level][without])
			below *= n
		}
		b.access(g, h, true, switches...)
	}
}

func product(numbers []int) int {
	p := 1
	for _, n := range numbers {
		p *= n
	}
	return p
}
