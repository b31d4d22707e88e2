// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/loader"
)

// Connection is the live state of an MPTCP connection under one of mpcc's packet schedulers.
type Connection struct {
	ID              uint64        `json:"id"` // as long as the machine runs
	Token           Token         `json:"token"`
	Scheduler       string        `json:"scheduler"`
	Netns           uint64        `json:"netns"` // inode number
	NetnsName       string        `json:"netns_name,omitempty"`
	Decisions       uint64        `json:"decisions"`         // to send
	Waits           uint64        `json:"waits"`             // of them, to wait although there was room
	Retransmissions uint64        `json:"retransmissions"`   // decisions on what to send again
	LeftOut         uint32        `json:"subflows_left_out"` // beyond those that a decision looks at
	Age             Seconds       `json:"age_seconds"`
	Updated         Seconds       `json:"updated_seconds_ago"`
	Subflows        []Scheduled   `json:"subflows"`
	Choice          *SubsetChoice `json:"choice"` // null where the scheduler chooses no set
}

// Scheduled is what the scheduler did with a subflow. Those that have closed stay in the list.
type Scheduled struct {
	SubflowID     uint32   `json:"subflow_id"` // as ip mptcp monitor counts them
	LocalID       uint8    `json:"local_id"`
	RemoteID      uint8    `json:"remote_id"`
	Ifindex       uint32   `json:"ifindex"`
	Interface     string   `json:"interface,omitempty"` // set by those who may look into the namespace
	Backup        bool     `json:"backup"`
	Allowed       bool     `json:"allowed"` // in the set that may be used
	Bytes         uint64   `json:"bytes"`
	Share         float64  `json:"share"`         // of the bytes of all subflows
	Chosen        uint64   `json:"chosen"`        // decisions to send on it
	Retransmitted uint64   `json:"retransmitted"` // decisions to send again on it what another carried
	Full          uint64   `json:"full"`          // decisions that found no room in its window
	Refused       uint64   `json:"refused"`       // decisions that found room and did not use it
	Rate          *float64 `json:"expected_rate_mbit_per_second"`
	Cost          *float64 `json:"cost_mj_per_mbit"` // energy; null without a profile
}

// SubsetChoice is the last choice of a set of subflows: the first K in the order of their cost.
type SubsetChoice struct {
	K         uint32    `json:"k"`
	Order     []uint32  `json:"order"`     // ids of subflows, the cheapest first
	Objective []float64 `json:"objective"` // of the first one, two, … of them
	Bytes     uint64    `json:"bytes"`     // the size that it was made for
	Changes   uint64    `json:"changes"`   // of the set, so far
	Age       Seconds   `json:"age_seconds"`
}

// SchedTotal is what a packet scheduler did in a namespace, in live connections and in those of before.
type SchedTotal struct {
	Scheduler       string `json:"scheduler"`
	Netns           uint64 `json:"netns"`
	NetnsName       string `json:"netns_name,omitempty"`
	Opened          uint64 `json:"connections_opened"`
	Closed          uint64 `json:"connections_closed"`
	Decisions       uint64 `json:"decisions"`
	Waits           uint64 `json:"waits"`
	Retransmissions uint64 `json:"retransmissions"`
	Bytes           uint64 `json:"bytes"`
}

// readScheds adds what packet schedulers did to the snapshot.
func (s *Source) readScheds(snap *Snapshot, names map[uint64]string, now time.Duration) error {
	// The totals first: a connection that closes meanwhile is missing in both, not counted twice.
	totals, err := s.maps.SchedTotals()
	if err != nil {
		return err
	}
	connections, err := s.maps.Connections()
	if err != nil {
		return err
	}
	for id, raw := range connections {
		c := connectionOf(id, &raw, names, now)
		snap.Connections = append(snap.Connections, c)
		key := obj.MapsMpccSchedTotalKey{Netns: raw.Netns, Scheduler: raw.Scheduler}
		total := totals[key]
		total.Decisions += c.Decisions
		total.Waits += c.Waits
		total.Retransmissions += c.Retransmissions
		for _, f := range c.Subflows {
			total.Bytes += f.Bytes
		}
		totals[key] = total
	}
	slices.SortFunc(snap.Connections, func(a, b Connection) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})
	for key, t := range totals {
		snap.SchedTotals = append(snap.SchedTotals, SchedTotal{
			Scheduler: loader.CString(key.Scheduler[:]), Netns: uint64(key.Netns), NetnsName: names[uint64(key.Netns)],
			Opened: t.Opened, Closed: t.Closed, Decisions: t.Decisions, Waits: t.Waits,
			Retransmissions: t.Retransmissions, Bytes: t.Bytes,
		})
	}
	slices.SortFunc(snap.SchedTotals, func(a, b SchedTotal) int {
		return cmp.Or(cmp.Compare(a.Scheduler, b.Scheduler), cmp.Compare(a.Netns, b.Netns))
	})
	counters, err := s.maps.SchedCounters()
	snap.Lost.Connections, snap.Lost.SchedTotals = counters.LostConnections, counters.LostTotals
	return err
}

func connectionOf(id uint64, raw *obj.MapsMpccSchedConnection, names map[uint64]string, now time.Duration) Connection {
	c := Connection{
		ID: id, Token: Token(raw.Token), Scheduler: loader.CString(raw.Scheduler[:]),
		Netns: uint64(raw.Netns), NetnsName: names[uint64(raw.Netns)],
		Decisions: raw.Decisions, Waits: raw.Waits, Retransmissions: raw.Retransmissions, LeftOut: raw.LeftOut,
		Age: Seconds(now - time.Duration(raw.OpenedUs)*time.Microsecond),
		// A decision may have been made while the maps were read.
		Updated:  Seconds(max(0, now-time.Duration(raw.UpdatedUs)*time.Microsecond)),
		Subflows: []Scheduled{},
	}
	all := uint64(0)
	for _, f := range raw.Subflows[:raw.Count] {
		all += f.Bytes
	}
	for _, f := range raw.Subflows[:raw.Count] {
		g := Scheduled{
			SubflowID: f.SubflowId, LocalID: f.LocalId, RemoteID: f.RemoteId, Ifindex: f.Ifindex,
			Backup: f.Backup != 0, Allowed: f.Allowed != 0, Bytes: f.Bytes, Chosen: f.Chosen,
			Retransmitted: f.Retransmitted, Full: f.Full, Refused: f.Refused,
			Rate: unlessZero(f.Rate.M, f.Rate.E), Cost: unlessZero(f.Cost.M, f.Cost.E),
		}
		if all > 0 {
			g.Share = float64(f.Bytes) / float64(all)
		}
		c.Subflows = append(c.Subflows, g)
	}
	c.Choice = choiceOf(raw, now)
	return c
}

// choiceOf is nil until the scheduler has chosen.
func choiceOf(raw *obj.MapsMpccSchedConnection, now time.Duration) *SubsetChoice {
	r := &raw.Choice
	if r.ChosenUs == 0 {
		return nil
	}
	choice := &SubsetChoice{
		K: r.K, Order: []uint32{}, Objective: []float64{}, Bytes: r.Bytes, Changes: r.Changes,
		Age: Seconds(max(0, now-time.Duration(r.ChosenUs)*time.Microsecond)),
	}
	for i := range r.Count {
		o := math.Ldexp(float64(r.Objective[i].Value.M), int(r.Objective[i].Value.E))
		if r.Objective[i].Negative != 0 {
			o = -o
		}
		choice.Objective = append(choice.Objective, o)
		choice.Order = append(choice.Order, raw.Subflows[r.Order[i]].SubflowId)
	}
	return choice
}

func unlessZero(m uint32, e int32) *float64 {
	if m == 0 {
		return nil
	}
	return new(math.Ldexp(float64(m), int(e)))
}
