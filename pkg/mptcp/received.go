// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Ends are the addresses of a TCP socket, which may be a subflow.
type Ends struct{ Local, Remote netip.AddrPort }

// Received returns how many bytes each TCP socket of the thread's network namespace has received.
func Received() (map[Ends]uint64, error) {
	bytes := map[Ends]uint64{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCPInfo(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("mptcp: list TCP sockets: %w", err)
		}
		for _, s := range sockets {
			if s.InetDiagMsg == nil || s.TCPInfo == nil {
				continue
			}
			id := s.InetDiagMsg.ID
			local, _ := netip.AddrFromSlice(id.Source)
			remote, _ := netip.AddrFromSlice(id.Destination)
			bytes[Ends{
				netip.AddrPortFrom(local.Unmap(), id.SourcePort),
				netip.AddrPortFrom(remote.Unmap(), id.DestinationPort),
			}] = s.TCPInfo.Bytes_received
		}
	}
	return bytes, nil
}
