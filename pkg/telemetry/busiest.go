// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"container/heap"
	"time"
)

// Selection is what a snapshot has of what is live, beside how much there is in all. The zero value is nothing.
type Selection struct {
	// Most is how many subflows it has at most: the busiest ones.
	Most int
	// Joined leaves out TCP connections that are not multipath, and subflows that are still joining.
	Joined bool
	// MinAge leaves out younger subflows.
	MinAge time.Duration
	// Connections is whether it has connections under packet schedulers.
	Connections bool
}

func (s *Selection) wants(token Token, subflowID uint32, age Seconds) bool {
	return (!s.Joined || token != 0 && subflowID != 0) && time.Duration(age) >= s.MinAge
}

// Live is how many subflows a congestion control has on an interface of a namespace.
type Live struct {
	CC          string
	Netns       uint64 // inode number
	NetnsCookie uint64
	NetnsName   string // by ip netns
	Interface   string
	Subflows    int
}

// Busyness is the rate of bytes in both directions over the subflow's life.
func (f *Subflow) Busyness() float64 { return busyness(f.BytesSent+f.BytesReceived, f.Age) }

func busyness(bytes uint64, age Seconds) float64 {
	return float64(bytes) / time.Duration(age).Seconds()
}

// Select returns the snapshot with what is selected, in the same order.
func (snap *Snapshot) Select(s Selection) *Snapshot {
	selected := *snap
	selected.Subflows, selected.Live, selected.SchedTotals = []Subflow{}, nil, []SchedTotal{}
	kept := busiest[*Subflow]{most: s.Most}
	live := map[Live]int{}
	for i := range snap.Subflows {
		f := &snap.Subflows[i]
		live[Live{CC: f.CC, Netns: f.Netns, NetnsCookie: f.NetnsCookie, NetnsName: f.NetnsName, Interface: f.Interface}]++
		if s.wants(f.Token, f.SubflowID, f.Age) {
			kept.add(f.Busyness(), f.ID, f)
		}
	}
	chosen := map[*Subflow]bool{}
	for _, f := range kept.values {
		chosen[f] = true
	}
	for i := range snap.Subflows {
		if f := &snap.Subflows[i]; chosen[f] {
			selected.Subflows = append(selected.Subflows, *f)
		}
	}
	selected.LeftOut = kept.leftOut
	for place, n := range live {
		place.Subflows = n
		selected.Live = append(selected.Live, place)
	}
	type place struct {
		scheduler          string
		netns, netnsCookie uint64
	}
	active := map[place]int{}
	for _, c := range snap.Connections {
		active[place{c.Scheduler, c.Netns, c.NetnsCookie}]++
	}
	for _, total := range snap.SchedTotals {
		total.Active = active[place{total.Scheduler, total.Netns, total.NetnsCookie}]
		selected.SchedTotals = append(selected.SchedTotals, total)
	}
	if !s.Connections {
		selected.Connections = []Connection{}
	}
	return &selected
}

// busiest keeps the busiest of all that are added. It has no room for more than that.
type busiest[T any] struct {
	most    int
	leftOut int
	values  []T
	order   []ranked // a heap with the least busy one on top
}

type ranked struct {
	busyness float64
	id       uint64
	at       int // in values
}

// add copies the value only if it is kept, for now.
func (b *busiest[T]) add(busyness float64, id uint64, value T) {
	r := ranked{busyness, id, len(b.values)}
	if len(b.values) < b.most {
		b.values = append(b.values, value)
		heap.Push((*ranking)(&b.order), r)
		return
	}
	b.leftOut++
	if b.most <= 0 || less(r, b.order[0]) {
		return
	}
	r.at = b.order[0].at
	b.values[r.at], b.order[0] = value, r
	heap.Fix((*ranking)(&b.order), 0)
}

// less tells whether a is less busy than b. Of two alike, the one that came first stays.
func less(a, b ranked) bool {
	return cmp.Or(cmp.Compare(a.busyness, b.busyness), cmp.Compare(b.id, a.id)) < 0
}

// ranking is the order of busiest as a heap.
type ranking []ranked

func (r ranking) Len() int           { return len(r) }
func (r ranking) Less(i, j int) bool { return less(r[i], r[j]) }
func (r ranking) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }

// Push adds at the end, as package heap asks for.
func (r *ranking) Push(x any) { *r = append(*r, x.(ranked)) }

// Pop removes from the end, as package heap asks for.
func (r *ranking) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	*r = (*r)[:last]
	return x
}
