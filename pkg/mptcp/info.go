// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Info is the kernel's view of an MPTCP connection at one moment.
type Info struct {
	Token         uint32 // this side's, as in ss -M
	BytesSent     uint64 // of content, without retransmissions
	BytesRetrans  uint64 // of content, sent again on another subflow
	BytesAcked    uint64 // of content
	BytesReceived uint64 // of content
	Subflows      []Subflow
}

// Subflow is one of the connection's TCP connections.
type Subflow struct {
	ID            uint32 // numbered by the kernel as they come; not the address id
	Local, Remote netip.AddrPort
	TCP           unix.TCPInfo // the kernel's struct tcp_info, with its units
}

// maxSubflows is the most that the in-kernel path manager makes, plus the first.
const maxSubflows = 9

// mptcpInfo is the kernel's struct mptcp_info, as far as it is read.
type mptcpInfo struct {
	subflows         uint8
	_                uint8
	addrsAccepted    uint8
	subflowsMax      uint8
	_                uint8
	addrsAcceptedMax uint8
	flags            uint32
	token            uint32
	writeSeq         uint64
	sendUna          uint64
	_                [10]uint8
	checksums        uint8
	_                [5]uint8
	bytesRetrans     uint64
	bytesSent        uint64
	bytesReceived    uint64
	bytesAcked       uint64
	_                [16]uint8
}

// fullInfo is the kernel's struct mptcp_full_info.
type fullInfo struct {
	_                  uint32 // size of tcp_info in the kernel
	sizeTCPInfo        uint32
	_                  uint32 // size of mptcp_subflow_info in the kernel
	sizeSubflowInfo    uint32
	numSubflows        uint32
	sizeArrays         uint32
	subflowsAt, tcpsAt unsafe.Pointer
	info               mptcpInfo
}

// subflowInfo is the kernel's struct mptcp_subflow_info.
type subflowInfo struct {
	id            uint32
	_             uint32
	local, remote [128]byte // struct sockaddr_storage
}

// optFullInfo is MPTCP_FULL_INFO of linux/mptcp.h.
const optFullInfo = 4

// ReadInfo returns the state of the connection and of all its subflows at one
// moment. It is an error on a kernel before Linux 6.6, and if the connection has
// fallen back to TCP.
func ReadInfo(conn *net.TCPConn) (Info, error) {
	if is, err := conn.MultipathTCP(); err != nil || !is {
		if err == nil {
			err = errors.New("the connection has fallen back to TCP")
		}
		return Info{}, fmt.Errorf("mptcp: read info: %w", err)
	}
	const sizeSubflow, sizeTCP = int(unsafe.Sizeof(subflowInfo{})), int(unsafe.Sizeof(unix.TCPInfo{}))
	subflows := make([]byte, maxSubflows*sizeSubflow)
	tcps := make([]byte, maxSubflows*sizeTCP)
	var pins runtime.Pinner // the kernel gets these by pointers inside full
	defer pins.Unpin()
	pins.Pin(&subflows[0])
	pins.Pin(&tcps[0])
	full := fullInfo{
		sizeTCPInfo:     uint32(sizeTCP),
		sizeSubflowInfo: uint32(sizeSubflow),
		sizeArrays:      maxSubflows,
		subflowsAt:      unsafe.Pointer(&subflows[0]),
		tcpsAt:          unsafe.Pointer(&tcps[0]),
	}
	err := withSocket(conn, func(fd int) error {
		size := uint32(unsafe.Sizeof(full))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_MPTCP, optFullInfo,
			uintptr(unsafe.Pointer(&full)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = errors.New("this kernel has no MPTCP_FULL_INFO (Linux 6.6 and later)")
	}
	if err != nil {
		return Info{}, fmt.Errorf("mptcp: read info: %w", err)
	}
	info := Info{
		Token:         full.info.token,
		BytesSent:     full.info.bytesSent,
		BytesRetrans:  full.info.bytesRetrans,
		BytesAcked:    full.info.bytesAcked,
		BytesReceived: full.info.bytesReceived,
	}
	for range min(full.numSubflows, maxSubflows) {
		var at subflowInfo
		var tcp unix.TCPInfo
		subflows = take(&at, subflows, full.sizeSubflowInfo)
		tcps = take(&tcp, tcps, full.sizeTCPInfo)
		info.Subflows = append(info.Subflows, Subflow{
			ID:     at.id,
			Local:  addrPort(&at.local),
			Remote: addrPort(&at.remote),
			TCP:    tcp,
		})
	}
	return info, nil
}

// take fills *v from the front of buf and returns what follows. The structs lie
// size bytes apart, which an older kernel makes less than *v needs: what it does
// not know stays 0.
func take[T any](v *T, buf []byte, size uint32) []byte {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)), buf[:size])
	return buf[size:]
}

// addrPort reads a struct sockaddr_in or sockaddr_in6.
func addrPort(sa *[128]byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(sa[2:])
	if binary.NativeEndian.Uint16(sa[:]) == unix.AF_INET6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(sa[8:24])).Unmap(), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), port)
}

// ReadTCPInfo returns the state of a connection that is plain TCP, or has fallen
// back to it.
func ReadTCPInfo(conn *net.TCPConn) (info unix.TCPInfo, err error) {
	err = withSocket(conn, func(fd int) error {
		got, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			info = *got
		}
		return err
	})
	if err != nil {
		return info, fmt.Errorf("mptcp: read TCP info: %w", err)
	}
	return info, nil
}
