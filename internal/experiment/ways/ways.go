// SPDX-License-Identifier: Apache-2.0

// Package ways finds the shortest ways through a network of hosts and routers. The lab makes routes of them, the
// simulator paths: both send the same packets by the same links.
package ways

// Network is the hosts and routers, which are known by their place in it.
type Network []Node

// Node is a host or a router. Its ends are numbered in the order of its links.
type Node struct {
	Forwards bool // it passes on packets of others
	Ends     []End
}

// End is one side of a link, seen from the node there: the node at the other side, and which of its ends that is.
type End struct{ Node, End int }

// Link joins two nodes, and returns the number that the link's end has at each.
func (n Network) Link(a, b int) (atA, atB int) {
	atA, atB = len(n[a].Ends), len(n[b].Ends)
	n[a].Ends = append(n[a].Ends, End{b, atB})
	n[b].Ends = append(n[b].Ends, End{a, atA})
	return atA, atB
}

// Ways lead to the addresses of one end of a host. They end with that end's link; where no way does, with any link
// of the host: of two hosts with two links between them, the first address of one reaches the second of the other
// by the first link.
type Ways struct {
	network    Network
	target     End
	own, reach []int // hops to the node before the target's link, and to the host by any link; -1: no way
}

// To returns the ways to the addresses of an end.
func (n Network) To(target End) *Ways {
	before := n[target.Node].Ends[target.End].Node
	return &Ways{n, target, n.hops(before, target.Node), n.hops(target.Node, target.Node)}
}

// farCost is more than any number of hops: what costs more is the second choice.
const farCost = 1 << 20

// Cost returns what it costs to leave a node by an end, false if that does not lead there.
func (w *Ways) Cost(node, end int) (int, bool) {
	next, dst := w.network[node].Ends[end].Node, w.target.Node
	forwards := w.network[next].Forwards
	if hops := w.own[next]; hops >= 0 && forwards && next != dst {
		return hops, true
	}
	if hops := w.reach[next]; hops >= 0 && (forwards || next == dst) {
		return farCost + hops, true
	}
	return 0, false
}

// Direct says whether an end is at the other side of the target's link.
func (w *Ways) Direct(node, end int) bool { return w.network[node].Ends[end] == w.target }

// Best returns the ends by which a node's packets leave: the one at the target's link, if there is one, else the
// cheapest: all that cost the same for a node that forwards, which spreads over them, else the first.
func (w *Ways) Best(node int) (ends []int) {
	least := 0
	for end := range w.network[node].Ends {
		if w.Direct(node, end) {
			return []int{end}
		}
		cost, ok := w.Cost(node, end)
		switch {
		case !ok:
		case ends == nil || cost < least:
			ends, least = []int{end}, cost
		case cost == least && w.network[node].Forwards:
			ends = append(ends, end)
		}
	}
	return ends
}

// hops returns how many hops each node is away from start, -1 for those that cannot be reached. Only nodes that
// forward are passed through, and dst, where the packets go, is not.
func (n Network) hops(start, dst int) []int {
	hops := make([]int, len(n))
	for i := range hops {
		hops[i] = -1
	}
	hops[start] = 0
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		node := queue[0]
		if node != start && node == dst || node != dst && !n[node].Forwards {
			continue
		}
		for _, e := range n[node].Ends {
			if hops[e.Node] < 0 {
				hops[e.Node] = hops[node] + 1
				queue = append(queue, e.Node)
			}
		}
	}
	return hops
}
