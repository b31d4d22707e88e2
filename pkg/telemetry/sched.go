// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/mpcc/mpcc/bpf/obj"
)

// Connection is the live state of an MPTCP connection under one of mpcc's packet schedulers.
type Connection struct {
	ID              uint64        `json:"id"` // unique until the machine reboots
	Token           Token         `json:"token"`
	Scheduler       string        `json:"scheduler"`
	Netns           uint64        `json:"netns"` // inode number
	NetnsCookie     uint64        `json:"netns_cookie"`
	NetnsName       string        `json:"netns_name,omitempty"` // by ip netns
	Decisions       uint64        `json:"decisions"`            // on which subflows send next
	Waits           uint64        `json:"waits"`                // decisions to wait although a subflow had room
	Retransmissions uint64        `json:"retransmissions"`      // decisions on what to send again
	Repeats         uint64        `json:"repeats"`              // those among them that sent again all that a slow subflow held
	LeftOut         uint32        `json:"subflows_left_out"`    // beyond those that a decision looks at
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
	Interface     string   `json:"interface,omitempty"` // "" where this process may not look into the namespace
	Backup        bool     `json:"backup"`
	Allowed       bool     `json:"allowed"` // in the set that may be used
	Bytes         uint64   `json:"bytes"`
	Share         float64  `json:"share"`               // of the bytes of all subflows
	Chosen        uint64   `json:"chosen"`              // decisions to send on it
	Retransmitted uint64   `json:"retransmitted"`       // decisions to send again on it what another carried
	Full          uint64   `json:"full"`                // decisions that found no room in its window
	Refused       uint64   `json:"refused"`             // decisions that found room and did not use it
	Repeated      uint64   `json:"repeated"`            // decisions to send again on others all that it held
	Arrival       *Micros  `json:"expected_arrival_us"` // of a byte sent now; null where the scheduler does not reckon with it
	Held          *uint64  `json:"held_bytes"`          // handed to it and not acknowledged; null where the arrival is
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

// SchedTotal is what a packet scheduler did in a namespace, in live and in closed connections.
type SchedTotal struct {
	Scheduler       string `json:"scheduler"`
	Netns           uint64 `json:"netns"` // inode number
	NetnsCookie     uint64 `json:"netns_cookie"`
	NetnsName       string `json:"netns_name,omitempty"` // by ip netns; "" also for one that has ended
	Opened          uint64 `json:"connections_opened"`
	Closed          uint64 `json:"connections_closed"`
	Decisions       uint64 `json:"decisions"`
	Waits           uint64 `json:"waits"`
	Retransmissions uint64 `json:"retransmissions"`
	Repeats         uint64 `json:"repeats"`
	Bytes           uint64 `json:"bytes"`
	Active          int    `json:"-"` // connections that are live
}

// addScheds adds what packet schedulers did. The totals in the map are of connections that have closed.
func (snap *Snapshot) addScheds(raw *rawMaps, at places, now time.Duration) {
	totals := map[obj.MapsMpccSchedTotalKey]*SchedTotal{}
	for key, perCPU := range raw.schedTotals {
		totals[key] = schedTotalOf(key, perCPU, at)
	}
	for key, live := range raw.schedLive {
		total := totals[key]
		if total == nil { // the map was full
			total = schedTotalOf(key, nil, at)
			total.Netns = live.Netns
			totals[key] = total
		}
		total.Active = live.Active
		total.Decisions += live.Decisions
		total.Waits += live.Waits
		total.Retransmissions += live.Retransmissions
		total.Repeats += live.Repeats
		total.Bytes += live.Bytes
	}
	for id, r := range raw.connections {
		snap.Connections = append(snap.Connections, connectionOf(id, &r, at, now))
	}
	slices.SortFunc(snap.Connections, func(a, b Connection) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})
	for _, t := range totals {
		snap.SchedTotals = append(snap.SchedTotals, *t)
	}
	slices.SortFunc(snap.SchedTotals, func(a, b SchedTotal) int {
		return cmp.Or(cmp.Compare(a.Scheduler, b.Scheduler), cmp.Compare(a.Netns, b.Netns),
			cmp.Compare(a.NetnsCookie, b.NetnsCookie))
	})
}

// schedTotalOf adds up what the CPUs have counted.
func schedTotalOf(key obj.MapsMpccSchedTotalKey, perCPU []obj.MapsMpccSchedTotal, at places) *SchedTotal {
	sum := &SchedTotal{
		Scheduler: text(key.Scheduler[:]), NetnsCookie: key.NetnsCookie, NetnsName: at.found[key.NetnsCookie].name,
	}
	for i := range perCPU {
		t := &perCPU[i]
		sum.Netns = max(sum.Netns, uint64(t.Netns))
		sum.Opened += t.Opened
		sum.Closed += t.Closed
		sum.Decisions += t.Decisions
		sum.Waits += t.Waits
		sum.Retransmissions += t.Retransmissions
		sum.Repeats += t.Repeats
		sum.Bytes += t.Bytes
	}
	return sum
}

func connectionOf(id uint64, raw *obj.MapsMpccSchedConnection, at places, now time.Duration) Connection {
	there := at.found[raw.NetnsCookie]
	c := Connection{
		ID: id, Token: Token(raw.Token), Scheduler: text(raw.Scheduler[:]),
		Netns: uint64(raw.Netns), NetnsCookie: raw.NetnsCookie, NetnsName: there.name,
		Decisions: raw.Decisions, Waits: raw.Waits, Retransmissions: raw.Retransmissions, Repeats: raw.Repeats, LeftOut: raw.LeftOut,
		Age: since(raw.OpenedUs, now), Updated: since(raw.UpdatedUs, now), Subflows: []Scheduled{},
	}
	all := uint64(0)
	for _, f := range raw.Subflows[:raw.Count] {
		all += f.Bytes
	}
	for _, f := range raw.Subflows[:raw.Count] {
		g := Scheduled{
			SubflowID: f.SubflowId, LocalID: f.LocalId, RemoteID: f.RemoteId,
			Ifindex: f.Ifindex, Interface: there.interfaces[f.Ifindex],
			Backup: f.Backup != 0, Allowed: f.Allowed != 0, Bytes: f.Bytes, Chosen: f.Chosen,
			Retransmitted: f.Retransmitted, Full: f.Full, Refused: f.Refused, Repeated: f.Repeated,
			Rate: unlessZero(f.Rate.M, f.Rate.E), Cost: unlessZero(f.Cost.M, f.Cost.E),
		}
		if f.ArrivalUs != 0 {
			g.Arrival, g.Held = new(Micros(time.Duration(f.ArrivalUs)*time.Microsecond)), new(uint64(f.Held))
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
		Age: since(r.ChosenUs, now),
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
