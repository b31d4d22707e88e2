// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Connection is the kernel's view of an MPTCP connection of any process.
type Connection struct {
	Token         uint32 // this side's, as in ss -M
	Local, Remote netip.AddrPort
	Fallback      bool // it goes on as TCP
	// PeerSpeaks is set once the peer has given its key: a fallback came later then.
	PeerSpeaks       bool
	Checksums        bool
	ExtraSubflows    int // beyond the first
	MaxExtraSubflows int // 0 also under a userspace path manager
	MaxAddrsAccepted int
	AddrsAccepted    int    // of those that the peer has announced
	WriteSeq         uint64 // of the next byte that the application writes
	SendUna          uint64 // of the first byte that the peer has not acknowledged
	BytesSent        uint64 // of content, without retransmissions
	BytesRetrans     uint64 // of content, sent again on another subflow
	BytesAcked       uint64 // of content
	BytesReceived    uint64 // of content
	Memory           Memory
}

// Memory is what a socket takes of its buffers, in bytes with the kernel's own overhead.
type Memory struct {
	Received, ReceiveBuffer uint32
	Queued, SendBuffer      uint32 // Queued until it is acknowledged
}

// TCPSocket is a TCP socket of any process, which may be a subflow.
type TCPSocket struct {
	Ends
	Listens bool
	CC      string
	TCP     unix.TCPInfo // the kernel's struct tcp_info, with its units
	Subflow *SubflowState
}

// SubflowState is what MPTCP knows of a subflow.
type SubflowState struct {
	Token             uint32 // of the connection
	LocalID, RemoteID uint8
	Flags             SubflowFlags
}

// SubflowFlags are the kernel's flags of a subflow.
type SubflowFlags uint32

// Flags of a subflow (linux/mptcp.h).
const (
	SubflowCapable          SubflowFlags = 1 << iota // the peer has agreed to MPTCP with it
	SubflowAskedCapable                              // this side has opened the connection with it
	SubflowJoined                                    // the peer has agreed to its joining
	SubflowAskedJoin                                 // this side has asked to join with it
	SubflowPeerBackup                                // it is a backup to the peer
	SubflowBackup                                    // it is a backup to this side
	SubflowFullyEstablished                          // the peer has acknowledged data
	SubflowConnected
	SubflowMapped
)

// Of linux/inet_diag.h, and linux/mptcp.h.
const (
	diagReqProtocol = 3

	diagInfo      = 2
	diagCong      = 4
	diagSkMemInfo = 7
	diagULPInfo   = 19

	ulpInfoName  = 1
	ulpInfoMPTCP = 3

	subflowAttrTokenLoc = 2
	subflowAttrFlags    = 8
	subflowAttrIDRem    = 9
	subflowAttrIDLoc    = 10

	infoFallback  = 1
	infoRemoteKey = 2

	// SK_MEMINFO_*, in u32
	memRmemAlloc  = 0
	memRcvbuf     = 1
	memSndbuf     = 3
	memWmemQueued = 5

	tcpTimeWait = 6
	tcpListen   = 10
	tcpNewRecv  = 12
)

// diagMessage is the kernel's struct inet_diag_msg.
type diagMessage struct {
	Family, State, Timer, Retrans     uint8
	SourcePort, DestinationPort       [2]byte // in network order
	Source, Destination               [16]byte
	Interface                         uint32
	Cookie                            [2]uint32
	Expires, Rqueue, Wqueue, UID, Ino uint32
}

// diagRequest is the kernel's struct inet_diag_req_v2.
type diagRequest struct {
	Family, Protocol, Extensions, Pad uint8
	States                            uint32
	ID                                [48]byte
}

func (r *diagRequest) Len() int { return binary.Size(r) }

func (r *diagRequest) Serialize() []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, r) // a bytes.Buffer takes everything
	return b.Bytes()
}

// diagnose lists sockets of the thread's network namespace: of a protocol, in states, with extensions.
func diagnose(protocol, states uint32, extensions []int, visit func(diagMessage, map[uint16][]byte) error) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		body := &diagRequest{Family: family, Protocol: uint8(min(protocol, 255)), States: states}
		for _, e := range extensions {
			body.Extensions |= 1 << (e - 1)
		}
		req.AddData(body)
		if protocol > 255 {
			req.AddData(nl.NewRtAttr(diagReqProtocol, u32(protocol)))
		}
		messages, err := req.Execute(unix.NETLINK_SOCK_DIAG, nl.SOCK_DIAG_BY_FAMILY)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		for _, m := range messages {
			d, attrs, err := parseDiag(m)
			if err == nil {
				err = visit(d, attrs)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func parseDiag(message []byte) (d diagMessage, attrs map[uint16][]byte, err error) {
	n, err := binary.Decode(message, binary.NativeEndian, &d)
	if err != nil {
		return d, nil, err
	}
	attrs, err = parseAttrs(message[n:])
	return d, attrs, err
}

func (d *diagMessage) ends() Ends {
	one := func(addr [16]byte, port [2]byte) netip.AddrPort {
		a := netip.AddrFrom4([4]byte(addr[:4]))
		if d.Family == unix.AF_INET6 {
			a = netip.AddrFrom16(addr).Unmap()
		}
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port[:]))
	}
	return Ends{one(d.Source, d.SourcePort), one(d.Destination, d.DestinationPort)}
}

// Connections returns the MPTCP connections of the thread's network namespace, also those that have fallen back to
// TCP, as far as the kernel still counts them as MPTCP. It takes a kernel with CONFIG_INET_MPTCP_DIAG.
func Connections() ([]Connection, error) {
	var all []Connection
	connected := ^uint32(1<<tcpListen | 1<<tcpTimeWait | 1<<tcpNewRecv)
	err := diagnose(unix.IPPROTO_MPTCP, connected, []int{diagInfo, diagSkMemInfo}, func(d diagMessage, attrs map[uint16][]byte) error {
		all = append(all, connectionOf(d, attrs))
		return nil
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) {
		err = errors.New("this kernel shows none (CONFIG_INET_MPTCP_DIAG)")
	}
	if err != nil {
		return nil, fmt.Errorf("mptcp: list MPTCP connections: %w", err)
	}
	return all, nil
}

func connectionOf(d diagMessage, attrs map[uint16][]byte) Connection {
	var info mptcpInfo
	fill(&info, attrs[diagInfo])
	ends := d.ends()
	return Connection{
		Token: info.token, Local: ends.Local, Remote: ends.Remote,
		Fallback: info.flags&infoFallback != 0, PeerSpeaks: info.flags&infoRemoteKey != 0,
		Checksums:     info.checksums != 0,
		ExtraSubflows: int(info.subflows), MaxExtraSubflows: int(info.subflowsMax),
		MaxAddrsAccepted: int(info.addrsAcceptedMax), AddrsAccepted: int(info.addrsAccepted),
		WriteSeq: info.writeSeq, SendUna: info.sendUna,
		BytesSent: info.bytesSent, BytesRetrans: info.bytesRetrans,
		BytesAcked: info.bytesAcked, BytesReceived: info.bytesReceived,
		Memory: memoryOf(attrs[diagSkMemInfo]),
	}
}

// TCPSockets returns the TCP sockets of the thread's network namespace, subflows among them. What MPTCP knows of
// these takes CAP_NET_ADMIN.
func TCPSockets() ([]TCPSocket, error) {
	var all []TCPSocket
	states := ^uint32(1<<tcpTimeWait | 1<<tcpNewRecv)
	err := diagnose(unix.IPPROTO_TCP, states, []int{diagInfo, diagCong}, func(d diagMessage, attrs map[uint16][]byte) error {
		s, err := socketOf(d, attrs)
		all = append(all, s)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("mptcp: list TCP sockets: %w", err)
	}
	return all, nil
}

// CongestionControls returns how many TCP connections of the thread's network namespace run each congestion control:
// those of plain TCP, and the subflows of Multipath TCP. Listeners are not among them, nor what only waits to be
// forgotten.
func CongestionControls() (map[string]int, error) {
	counts := map[string]int{}
	states := ^uint32(1<<tcpTimeWait | 1<<tcpNewRecv | 1<<tcpListen)
	err := diagnose(unix.IPPROTO_TCP, states, []int{diagCong}, func(_ diagMessage, attrs map[uint16][]byte) error {
		if name := unix.ByteSliceToString(attrs[diagCong]); name != "" {
			counts[name]++
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mptcp: list TCP sockets: %w", err)
	}
	return counts, nil
}

func socketOf(d diagMessage, attrs map[uint16][]byte) (s TCPSocket, err error) {
	s = TCPSocket{Ends: d.ends(), Listens: d.State == tcpListen, CC: unix.ByteSliceToString(attrs[diagCong])}
	fill(&s.TCP, attrs[diagInfo])
	s.Subflow, err = subflowOf(attrs[diagULPInfo])
	return s, err
}

// subflowOf is nil for a socket that is no subflow. A listener's has no more than that.
func subflowOf(ulp []byte) (*SubflowState, error) {
	attrs, err := parseAttrs(ulp)
	if err != nil || unix.ByteSliceToString(attrs[ulpInfoName]) != "mptcp" {
		return nil, err
	}
	if attrs, err = parseAttrs(attrs[ulpInfoMPTCP]); err != nil {
		return nil, err
	}
	var s SubflowState
	fill(&s.Token, attrs[subflowAttrTokenLoc])
	fill(&s.Flags, attrs[subflowAttrFlags])
	fill(&s.LocalID, attrs[subflowAttrIDLoc])
	fill(&s.RemoteID, attrs[subflowAttrIDRem])
	return &s, nil
}

func memoryOf(b []byte) Memory {
	var m [memWmemQueued + 1]uint32
	fill(&m, b)
	return Memory{Received: m[memRmemAlloc], ReceiveBuffer: m[memRcvbuf], Queued: m[memWmemQueued], SendBuffer: m[memSndbuf]}
}

// fill copies what the kernel gives of a struct. What an older kernel does not know stays 0.
func fill[T any](v *T, b []byte) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)), b)
}

// ErrNoRoute is wrapped where packets have no way.
var ErrNoRoute = errors.New("no route")

// Device returns the interface by which packets leave from an address of the thread's network namespace to a
// remote one. The error wraps ErrNoRoute where there is none. Ifindex is the only interface that may be taken; 0
// for any.
func Device(from, to netip.Addr, ifindex uint32) (uint32, error) {
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{SrcAddr: from.AsSlice(), OifIndex: int(ifindex)})
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENETDOWN) || err == nil && len(routes) == 0 {
		return 0, fmt.Errorf("from %v to %v: %w", from, to, ErrNoRoute)
	}
	if err != nil {
		return 0, fmt.Errorf("mptcp: route from %v to %v: %w", from, to, err)
	}
	return uint32(routes[0].LinkIndex), nil
}
