// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"time"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/loader"
)

// rawMaps are the maps of live state and totals as the programs write them, as far as they are selected. The types are
// generated from bpf/include/mpcc/telemetry.h and sched_telemetry.h, which say what each field means.
type rawMaps struct {
	places        places
	subflows      busiest[rawSubflow]
	live          map[rawPlace]int // subflows in all
	totals        map[obj.MapsMpccTotalKey][]obj.MapsMpccTotal
	counters      obj.MapsMpccCounterSet
	connections   map[uint64]obj.MapsMpccSchedConnection
	schedLive     map[obj.MapsMpccSchedTotalKey]*SchedTotal // what connections that are live have done
	schedTotals   map[obj.MapsMpccSchedTotalKey][]obj.MapsMpccSchedTotal
	schedCounters obj.MapsMpccSchedCounterSet
}

type rawSubflow struct {
	id uint64
	obj.MapsMpccSubflow
}

// rawPlace is where subflows are live, and under which congestion control.
type rawPlace struct {
	cc, ifname  [16]uint8
	netns       uint32
	netnsCookie uint64
}

func (s *Source) readMaps(selected Selection) (*rawMaps, error) {
	begun, err := monotonic()
	if err != nil {
		return nil, err
	}
	r := rawMaps{
		places: newPlaces(), subflows: busiest[rawSubflow]{most: selected.Most}, live: map[rawPlace]int{},
		connections: map[uint64]obj.MapsMpccSchedConnection{}, schedLive: map[obj.MapsMpccSchedTotalKey]*SchedTotal{},
	}
	var errs [6]error
	errs[0] = loader.Visit(s.maps, loader.MapSubflows, func(id uint64, f *obj.MapsMpccSubflow) { r.addSubflow(id, f, selected, begun) })
	r.totals, errs[1] = loader.ReadPerCPU[obj.MapsMpccTotalKey, obj.MapsMpccTotal](s.maps, loader.MapTotals)
	// The totals of schedulers before their connections: one that closes meanwhile is then missing in both,
	// and not counted twice.
	r.schedTotals, errs[2] = loader.ReadPerCPU[obj.MapsMpccSchedTotalKey, obj.MapsMpccSchedTotal](s.maps, loader.MapSchedTotals)
	errs[3] = loader.Visit(s.maps, loader.MapConnections, func(id uint64, c *obj.MapsMpccSchedConnection) {
		r.addConnection(c)
		if selected.Connections {
			r.connections[id] = *c
			r.places.within[c.NetnsCookie] = true // the map has numbers of interfaces only
		}
	})
	r.counters, errs[4] = readOnly[obj.MapsMpccCounterSet](s.maps, loader.MapCounters)
	r.schedCounters, errs[5] = readOnly[obj.MapsMpccSchedCounterSet](s.maps, loader.MapSchedCounters)
	r.addTotalsToPlaces()
	return &r, cmp.Or(errs[:]...)
}

// readOnly reads a map's only value.
func readOnly[V any](m *loader.Maps, name loader.MapName) (V, error) {
	all, err := loader.Read[uint32, V](m, name)
	return all[0], err
}

func (r *rawMaps) addSubflow(id uint64, f *obj.MapsMpccSubflow, selected Selection, now time.Duration) {
	r.places.add(f.Netns, f.NetnsCookie, f.UpdatedUs)
	r.live[rawPlace{f.Cc, f.Ifname, f.Netns, f.NetnsCookie}]++
	if age := since(f.OpenedUs, now); selected.wants(Token(f.Token), f.SubflowId, age) {
		r.subflows.add(busyness(f.BytesSent+f.BytesReceived, age), id, rawSubflow{id, *f})
	}
}

func (r *rawMaps) addConnection(c *obj.MapsMpccSchedConnection) {
	r.places.add(c.Netns, c.NetnsCookie, c.UpdatedUs)
	key := obj.MapsMpccSchedTotalKey{NetnsCookie: c.NetnsCookie, Scheduler: c.Scheduler}
	sum := r.schedLive[key]
	if sum == nil {
		sum = &SchedTotal{Netns: uint64(c.Netns)}
		r.schedLive[key] = sum
	}
	sum.Active++
	sum.Decisions += c.Decisions
	sum.Waits += c.Waits
	sum.Retransmissions += c.Retransmissions
	sum.Repeats += c.Repeats
	for _, f := range c.Subflows[:c.Count] {
		sum.Bytes += f.Bytes
	}
}

func (r *rawMaps) addTotalsToPlaces() {
	for key, perCPU := range r.totals {
		for _, t := range perCPU {
			if t.Netns != 0 { // this CPU has seen one
				r.places.add(t.Netns, key.NetnsCookie, t.UpdatedUs)
			}
		}
	}
	for key, perCPU := range r.schedTotals {
		for _, t := range perCPU {
			if t.Netns != 0 {
				r.places.add(t.Netns, key.NetnsCookie, t.UpdatedUs)
			}
		}
	}
}
