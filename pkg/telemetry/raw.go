// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/loader"
)

// rawMaps are the maps of live state and totals as the programs write them. The types are generated from
// bpf/include/mpcc/telemetry.h and sched_telemetry.h, which say what each field means.
type rawMaps struct {
	subflows      map[uint64]obj.MapsMpccSubflow
	totals        map[obj.MapsMpccTotalKey][]obj.MapsMpccTotal
	counters      obj.MapsMpccCounterSet
	connections   map[uint64]obj.MapsMpccSchedConnection
	schedTotals   map[obj.MapsMpccSchedTotalKey][]obj.MapsMpccSchedTotal
	schedCounters obj.MapsMpccSchedCounterSet
}

func (s *Source) readMaps() (*rawMaps, error) {
	var r rawMaps
	var err [6]error
	r.subflows, err[0] = loader.Read[uint64, obj.MapsMpccSubflow](s.maps, loader.MapSubflows)
	r.totals, err[1] = loader.ReadPerCPU[obj.MapsMpccTotalKey, obj.MapsMpccTotal](s.maps, loader.MapTotals)
	// The totals of schedulers before their connections: one that closes meanwhile is then missing in both,
	// and not counted twice.
	r.schedTotals, err[2] = loader.ReadPerCPU[obj.MapsMpccSchedTotalKey, obj.MapsMpccSchedTotal](s.maps, loader.MapSchedTotals)
	r.connections, err[3] = loader.Read[uint64, obj.MapsMpccSchedConnection](s.maps, loader.MapConnections)
	r.counters, err[4] = readOnly[obj.MapsMpccCounterSet](s.maps, loader.MapCounters)
	r.schedCounters, err[5] = readOnly[obj.MapsMpccSchedCounterSet](s.maps, loader.MapSchedCounters)
	return &r, cmp.Or(err[:]...)
}

// readOnly reads a map's only value.
func readOnly[V any](m *loader.Maps, name loader.MapName) (V, error) {
	all, err := loader.Read[uint32, V](m, name)
	return all[0], err
}

// places are the namespaces that the maps know.
func (r *rawMaps) places() places {
	at := newPlaces()
	for _, f := range r.subflows {
		at.add(f.Netns, f.NetnsCookie, f.UpdatedUs)
	}
	for _, c := range r.connections {
		at.add(c.Netns, c.NetnsCookie, c.UpdatedUs)
		at.within[c.NetnsCookie] = true // the map has numbers of interfaces only
	}
	for key, perCPU := range r.totals {
		for _, t := range perCPU {
			if t.Netns != 0 { // this CPU has seen one
				at.add(t.Netns, key.NetnsCookie, t.UpdatedUs)
			}
		}
	}
	for key, perCPU := range r.schedTotals {
		for _, t := range perCPU {
			if t.Netns != 0 {
				at.add(t.Netns, key.NetnsCookie, t.UpdatedUs)
			}
		}
	}
	return at
}
