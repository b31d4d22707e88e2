// SPDX-License-Identifier: Apache-2.0

// Package telemetry reads what mpcc's programs record of live connections, and the totals that outlive them,
// as Go values with units. Take, or Open and then Source.Read, returns a Snapshot. That takes root, or read
// permission on the pins under /sys/fs/bpf/mpcc.
//
// A network namespace is given by its inode number, which ls -i /run/netns shows, and by its cookie, which alone
// tells it from an earlier namespace that had the same number. Names of namespaces and interfaces are made
// printable: a byte that is not is written as \xNN.
package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/loader"
)

// infiniteSsthresh is what the kernel starts with.
const infiniteSsthresh = math.MaxInt32

// Subflow is the live state of one subflow, or of a TCP connection that is not multipath.
type Subflow struct {
	ID            uint64         `json:"id"`         // unique until the machine reboots
	Token         Token          `json:"token"`      // of the connection, as ss -M shows it; 0 = not multipath
	SubflowID     uint32         `json:"subflow_id"` // as ip mptcp monitor counts them
	LocalID       uint8          `json:"local_id"`
	RemoteID      uint8          `json:"remote_id"`
	CC            string         `json:"cc"`
	Netns         uint64         `json:"netns"` // inode number
	NetnsCookie   uint64         `json:"netns_cookie"`
	NetnsName     string         `json:"netns_name,omitempty"` // by ip netns
	Interface     string         `json:"interface"`            // "" while it has no route
	Ifindex       uint32         `json:"ifindex"`
	Local         netip.AddrPort `json:"local"`
	Remote        netip.AddrPort `json:"remote"`
	Backup        bool           `json:"backup"`
	Cwnd          uint32         `json:"cwnd_packets"`
	Ssthresh      *uint32        `json:"ssthresh_packets"` // null before the first loss
	MSS           uint32         `json:"mss_bytes"`
	SRTT          Micros         `json:"srtt_us"`
	BaseRTT       Micros         `json:"base_rtt_us"`
	DeliveryRate  uint64         `json:"delivery_rate_bytes_per_second"`
	BytesSent     uint64         `json:"bytes_sent"` // with retransmissions
	BytesAcked    uint64         `json:"bytes_acked"`
	BytesReceived uint64         `json:"bytes_received"`
	BytesRetrans  uint64         `json:"bytes_retransmitted"`
	Retrans       uint32         `json:"segments_retransmitted"`
	Losses        uint32         `json:"loss_events"`
	Coupling      float64        `json:"coupling"`      // the algorithm's own quantity; mpcc list -v names it
	Energy        *float64       `json:"energy_joules"` // modelled; null without a profile for the interface
	Priced        bool           `json:"priced"`        // the interface has a profile now
	Age           Seconds        `json:"age_seconds"`
	Updated       Seconds        `json:"updated_seconds_ago"`
}

// Token identifies an MPTCP connection, in hex as ss prints it.
type Token uint32

func (t Token) String() string { return fmt.Sprintf("%08x", uint32(t)) }

// MarshalText writes the token as ss does.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Micros is a duration that JSON shows in microseconds.
type Micros time.Duration

// MarshalJSON writes microseconds, with the fraction that the kernel keeps.
func (m Micros) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(m) / float64(time.Microsecond))
}

// Seconds is a duration that JSON shows in seconds.
type Seconds time.Duration

// MarshalJSON writes seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// Total is what a congestion control did on an interface of a namespace, ended subflows included.
type Total struct {
	CC            string  `json:"cc"`
	Netns         uint64  `json:"netns"` // inode number
	NetnsCookie   uint64  `json:"netns_cookie"`
	NetnsName     string  `json:"netns_name,omitempty"` // by ip netns; "" also for one that has ended
	Interface     string  `json:"interface"`
	Ifindex       uint32  `json:"ifindex"`
	Opened        uint64  `json:"subflows_opened"`
	Closed        uint64  `json:"subflows_closed"`
	BytesAcked    uint64  `json:"bytes_acked"`
	BytesReceived uint64  `json:"bytes_received"`
	BytesRetrans  uint64  `json:"bytes_retransmitted"`
	Retrans       uint64  `json:"segments_retransmitted"`
	Losses        uint64  `json:"loss_events"`
	Energy        float64 `json:"energy_joules"` // modelled
	RTTSum        Seconds `json:"-"`
	// RTT counts refreshes by smoothed RTT: bucket i holds those of at most RTTBound(i), the last one
	// whatever is longer too.
	RTT []uint64 `json:"-"`
}

// RTTBound returns the inclusive upper bound of bucket i of Total.RTT, in seconds: 2^(i-20).
func RTTBound(i int) float64 { return math.Ldexp(1, i-20) }

// Lost counts what could not be recorded, because a map, or a namespace's share of it, was full.
type Lost struct {
	Subflows    uint64 `json:"subflows"`
	Totals      uint64 `json:"totals"`
	Connections uint64 `json:"connections"` // under packet schedulers
	SchedTotals uint64 `json:"scheduler_totals"`
}

// Snapshot is everything the maps hold at one time.
type Snapshot struct {
	Subflows    []Subflow    `json:"subflows"`
	Totals      []Total      `json:"totals"`
	Connections []Connection `json:"connections"` // under packet schedulers
	SchedTotals []SchedTotal `json:"scheduler_totals"`
	Lost        Lost         `json:"lost"`

	Live    []Live `json:"-"` // how many subflows are live in all
	LeftOut int    `json:"-"` // subflows that would be here but for Selection.Most
}

// Take returns a snapshot of the maps as they are now, and nil where nothing is loaded. It opens the maps anew:
// between two calls they may be removed and made again.
func Take(ctx context.Context) (*Snapshot, error) { return TakeSelected(ctx, everything) }

var everything = Selection{Most: math.MaxInt, Connections: true}

// TakeSelected is Take for no more than what is selected: of very many subflows that takes less time and memory.
func TakeSelected(ctx context.Context, selected Selection) (*Snapshot, error) {
	source, err := Open()
	if errors.Is(err, loader.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer source.Close()
	snap, err := source.ReadSelected(ctx, selected)
	return &snap, err
}

// Source reads snapshots from the pinned maps, which it holds open. Several goroutines may use it at once.
type Source struct{ maps *loader.Maps }

// Open opens the pinned maps. The error wraps loader.ErrNotLoaded where there are none.
func Open() (*Source, error) {
	maps, err := loader.OpenMaps()
	if err != nil {
		return nil, err
	}
	return &Source{maps}, nil
}

// Close lets go of the maps.
func (s *Source) Close() { s.maps.Close() }

// Capacity returns what the maps have room for.
func (s *Source) Capacity() (loader.Capacity, error) { return s.maps.Capacity() }

// Read returns a snapshot: subflows and connections by namespace and token, totals by algorithm and place.
// It looks into the namespaces that have a name, for names of interfaces, as far as it may.
func (s *Source) Read(ctx context.Context) (Snapshot, error) { return s.ReadSelected(ctx, everything) }

// ReadSelected is Read for no more than what is selected.
func (s *Source) ReadSelected(ctx context.Context, selected Selection) (Snapshot, error) {
	snap := Snapshot{
		Subflows: []Subflow{}, Totals: []Total{}, Connections: []Connection{}, SchedTotals: []SchedTotal{},
	}
	raw, err := s.readMaps(selected)
	if err != nil {
		return snap, err
	}
	// Read after the maps, the clock is later than the times in them.
	now, err := monotonic()
	if err != nil {
		return snap, err
	}
	at := raw.places
	if err := at.find(ctx); err != nil {
		return snap, err
	}
	slices.SortFunc(raw.subflows.order, func(a, b ranked) int {
		f, g := &raw.subflows.values[a.at], &raw.subflows.values[b.at]
		return cmp.Or(cmp.Compare(f.Netns, g.Netns), cmp.Compare(f.Token, g.Token),
			cmp.Compare(f.SubflowId, g.SubflowId), cmp.Compare(f.id, g.id))
	})
	for _, r := range raw.subflows.order {
		f := &raw.subflows.values[r.at]
		snap.Subflows = append(snap.Subflows, subflowOf(f.id, &f.MapsMpccSubflow, at, now))
	}
	snap.LeftOut = raw.subflows.leftOut
	for place, n := range raw.live {
		snap.Live = append(snap.Live, Live{
			CC: text(place.cc[:]), Netns: uint64(place.netns), NetnsCookie: place.netnsCookie,
			NetnsName: at.found[place.netnsCookie].name, Interface: text(place.ifname[:]), Subflows: n,
		})
	}
	for key, t := range raw.totals {
		snap.Totals = append(snap.Totals, totalOf(key, t, at))
	}
	slices.SortFunc(snap.Totals, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.CC, b.CC), cmp.Compare(a.Netns, b.Netns),
			cmp.Compare(a.NetnsCookie, b.NetnsCookie), cmp.Compare(a.Ifindex, b.Ifindex))
	})
	snap.addScheds(raw, at, now)
	snap.Lost = Lost{
		Subflows: raw.counters.LostSubflows, Totals: raw.counters.LostTotals,
		Connections: raw.schedCounters.LostConnections, SchedTotals: raw.schedCounters.LostTotals,
	}
	return snap, nil
}

func subflowOf(id uint64, s *obj.MapsMpccSubflow, at places, now time.Duration) Subflow {
	f := Subflow{
		ID: id, Token: Token(s.Token), SubflowID: s.SubflowId, LocalID: s.LocalId, RemoteID: s.RemoteId,
		CC: text(s.Cc[:]), Netns: uint64(s.Netns), NetnsCookie: s.NetnsCookie, NetnsName: at.found[s.NetnsCookie].name,
		Interface: text(s.Ifname[:]), Ifindex: s.Ifindex,
		Local: address(s.Family, s.Local, s.LocalPort), Remote: address(s.Family, s.Remote, s.RemotePort),
		Backup: s.Backup != 0, Priced: s.Priced != 0, Cwnd: s.Cwnd, MSS: s.Mss,
		SRTT:         Micros(time.Duration(s.SrttUs8) * time.Microsecond / 8),
		BaseRTT:      Micros(time.Duration(s.BaseRttUs) * time.Microsecond),
		DeliveryRate: s.DeliveryRate, BytesSent: s.BytesSent, BytesAcked: s.BytesAcked,
		BytesReceived: s.BytesReceived, BytesRetrans: s.BytesRetrans, Retrans: s.Retrans, Losses: s.Losses,
		Coupling: math.Ldexp(float64(s.Coupling.Value.M), int(s.Coupling.Value.E)),
		Age:      since(s.OpenedUs, now),
		Updated:  since(s.UpdatedUs, now),
	}
	if s.Coupling.Negative != 0 {
		f.Coupling = -f.Coupling
	}
	if s.Ssthresh < infiniteSsthresh {
		f.Ssthresh = &s.Ssthresh
	}
	if s.Priced != 0 || s.EnergyNj != 0 {
		joules := float64(s.EnergyNj) / 1e9
		f.Energy = &joules
	}
	return f
}

// totalOf adds up what the CPUs have counted.
func totalOf(key obj.MapsMpccTotalKey, perCPU []obj.MapsMpccTotal, at places) Total {
	sum := Total{
		CC: text(key.Cc[:]), NetnsCookie: key.NetnsCookie, NetnsName: at.found[key.NetnsCookie].name,
		Ifindex: key.Ifindex, RTT: make([]uint64, len(perCPU[0].Rtt)),
	}
	var energy, rttSum uint64
	for i := range perCPU {
		t := &perCPU[i]
		sum.Opened += t.Opened
		sum.Closed += t.Closed
		sum.BytesAcked += t.BytesAcked
		sum.BytesReceived += t.BytesReceived
		sum.BytesRetrans += t.BytesRetrans
		sum.Retrans += t.Retrans
		sum.Losses += t.Losses
		energy += t.EnergyNj
		rttSum += t.RttSumUs
		for bucket, n := range t.Rtt {
			sum.RTT[bucket] += n
		}
		sum.Netns = max(sum.Netns, uint64(t.Netns))
		sum.Interface = cmp.Or(sum.Interface, text(t.Ifname[:]))
	}
	sum.Energy = float64(energy) / 1e9
	sum.RTTSum = Seconds(time.Duration(rttSum) * time.Microsecond)
	return sum
}

// since returns how long ago a moment of the monotonic clock was, and 0 if another CPU's clock put it after now.
func since(us uint64, now time.Duration) Seconds {
	return Seconds(max(0, now-time.Duration(us)*time.Microsecond))
}

func address(family uint8, b [16]uint8, port uint16) netip.AddrPort {
	addr := netip.AddrFrom16(b).Unmap()
	if family == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrPortFrom(addr, port)
}

func monotonic() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
