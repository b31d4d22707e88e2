// SPDX-License-Identifier: Apache-2.0

package why

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Evidence is what was seen of a network namespace for a while.
type Evidence struct {
	Netns       string // its name, where the commands of remedies need one
	Interval    time.Duration
	Enabled     bool // net.mptcp.enabled
	UserspacePM bool
	Limits      mptcp.Limits
	Endpoints   []mptcp.Endpoint
	Counters    map[string]uint64 // of MPTCP, since the namespace was made
	Addresses   []Address
	Connections []Connection
	PlainTCP    []mptcp.Ends // connections that are TCP from the start
	FellBack    []mptcp.Ends // TCP connections that an MPTCP listener has accepted
}

// Address is one of the host's, but for loopback and link-local ones.
type Address struct {
	Addr      netip.Addr
	Interface string
	Up        bool // the interface is, and has a carrier
}

// Connection is what was seen of an MPTCP connection.
type Connection struct {
	mptcp.Connection                       // at the end
	Opener           bool                  // this side has opened it
	Acked, Received  uint64                // content, in the interval
	Devices          map[netip.Addr]string // by which packets leave from each of the host's addresses to the peer
	Subflows         []Subflow
	Looks            []Look
	Scheduler        string // where mpcc's maps have it
}

// Subflow is what was seen of one.
type Subflow struct {
	mptcp.Ends
	mptcp.SubflowState
	CC              string
	Joining         bool // its first packet is not answered
	Established     bool
	Interface       string // that has its address; "" for one that this host does not have any more
	Up              bool   // the interface is
	Device          string // by which its packets leave; "" if by none
	RTT, MinRTT     time.Duration
	Timeouts        int           // in a row, now
	SinceAck        time.Duration // that the peer acknowledged something
	Acked, Received uint64        // bytes, in the interval
	Segments        uint64        // with data, sent in the interval
	Retransmitted   uint64        // segments, in the interval

	// Of mpcc's maps.
	Coupling *float64 // the congestion control's own quantity
	PerMB    *float64 // energy in J for each MB sent or received so far; nil without a profile
	Priced   bool     // the congestion control takes energy into account
	Refused  uint64   // decisions of the scheduler that found room there and did not use it, in the interval
	Rule     string   // what mpcc path says of the path, where that keeps traffic off; "" for nothing
	RulePath string   // and for which path
}

// Look is a moment of a connection.
type Look struct {
	Unsent   uint64 // written by the application, and given to no subflow
	Flight   uint64 // bytes of content that the peer has not acknowledged
	Memory   mptcp.Memory
	Subflows []SubflowLook // in the order of Connection.Subflows
}

// SubflowLook is a moment of a subflow.
type SubflowLook struct {
	There    bool
	Window   uint64        // the peer's, as of its last acknowledgement there; bytes
	SinceAck time.Duration // since that came
	Cwnd     int           // packets
	Flight   int           // packets that are not acknowledged
	Unsent   uint64        // bytes that it was given, and its window does not let it send
	SegBytes int
	RTT      time.Duration
}

// window is the peer's, which all subflows share, as of the last acknowledgement on any.
func (l *Look) window() uint64 {
	latest := SubflowLook{SinceAck: math.MaxInt64}
	for _, s := range l.Subflows {
		if s.There && s.SinceAck < latest.SinceAck {
			latest = s
		}
	}
	return latest.Window
}

// full tells whether a subflow's congestion window, or the way out of the host, is what holds it.
func (l *Look) full(i int) bool {
	s := l.Subflows[i]
	shut := uint64((s.Flight+2)*s.SegBytes) > l.window()
	return 4*s.Flight >= 3*s.Cwnd || s.Unsent > 0 && !shut
}

// Report is what is made of the evidence.
type Report struct {
	Interval    telemetry.Seconds `json:"interval_seconds"`
	Netns       string            `json:"netns,omitempty"`
	Host        []Finding         `json:"host"`
	Connections []Verdict         `json:"connections"`
}

// Verdict is what is made of a connection: the first finding is the cause, the others came to light beside it.
type Verdict struct {
	Token    telemetry.Token `json:"token"`
	Local    netip.AddrPort  `json:"local"`
	Remote   netip.AddrPort  `json:"remote"`
	Findings []Finding       `json:"findings"`
	Subflows []Share         `json:"subflows"`
}

// Share is what a subflow carried in the interval.
type Share struct {
	Local     netip.AddrPort   `json:"local"`
	Remote    netip.AddrPort   `json:"remote"`
	Interface string           `json:"interface,omitempty"`
	Backup    bool             `json:"backup"`
	Joining   bool             `json:"joining"`
	Bytes     uint64           `json:"bytes"`
	Share     float64          `json:"share"`
	RTT       telemetry.Micros `json:"rtt_us"`
	MinRTT    telemetry.Micros `json:"min_rtt_us"`
}

// Finding is a cause that was found.
type Finding struct {
	Cause    string   `json:"cause"` // of Causes
	OK       bool     `json:"ok"`    // nothing is wrong with the paths
	Says     string   `json:"says"`
	Evidence []string `json:"evidence"`
	Mend     string   `json:"mend,omitempty"`
}

// usable are the places of the subflows that are established.
func (c *Connection) usable() (at []int) {
	for i := range c.Subflows {
		if c.Subflows[i].Established {
			at = append(at, i)
		}
	}
	return at
}

func (s *Subflow) backup() bool {
	return s.Flags&(mptcp.SubflowBackup|mptcp.SubflowPeerBackup) != 0
}

// address returns the host's address, if it has it.
func (e *Evidence) address(a netip.Addr) (Address, bool) {
	i := slices.IndexFunc(e.Addresses, func(b Address) bool { return b.Addr == a })
	if i < 0 {
		return Address{}, false
	}
	return e.Addresses[i], true
}
