// SPDX-License-Identifier: Apache-2.0

// Package pmtest is a minimal userspace path manager, for tests.
package pmtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Take makes new connections of the thread's network namespace its own until release.
func Take() (release func(), err error) {
	family, err := netlink.GenlFamilyGet("mptcp_pm")
	if err != nil {
		return nil, err
	}
	events := slices.IndexFunc(family.Groups, func(g netlink.GenlMulticastGroup) bool { return g.Name == "mptcp_pm_events" })
	if events < 0 {
		return nil, errors.New("mptcp_pm has no events")
	}
	// The kernel takes a path manager for active only while one listens.
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(family.Groups[events].ID))
	}
	if err == nil {
		err = os.WriteFile("/proc/sys/net/mptcp/pm_type", []byte("1"), 0)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return func() { _ = unix.Close(fd) }, nil
}

// Join opens a subflow of a connection, from an address that gets the id.
func Join(token uint32, id uint8, local netip.Addr, remote netip.AddrPort) error {
	family, err := netlink.GenlFamilyGet("mptcp_pm")
	if err != nil {
		return err
	}
	const (
		subflowCreate                            = 10
		attrAddr, attrToken, attrRemote          = 1, 4, 6
		addrFamily, addrID, addrIPv4, addrPort16 = 1, 2, 3, 5
	)
	inet := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	from := nl.NewRtAttr(attrAddr|unix.NLA_F_NESTED, nil)
	from.AddRtAttr(addrFamily, inet)
	from.AddRtAttr(addrID, []byte{id})
	from.AddRtAttr(addrIPv4, local.AsSlice())
	to := nl.NewRtAttr(attrRemote|unix.NLA_F_NESTED, nil)
	to.AddRtAttr(addrFamily, inet)
	to.AddRtAttr(addrIPv4, remote.Addr().AsSlice())
	to.AddRtAttr(addrPort16, binary.NativeEndian.AppendUint16(nil, remote.Port()))
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: subflowCreate, Version: 1})
	req.AddData(nl.NewRtAttr(attrToken, binary.NativeEndian.AppendUint32(nil, token)))
	req.AddData(from)
	req.AddData(to)
	if _, err = req.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		return fmt.Errorf("join connection %08x from %v: %w", token, local, err)
	}
	return nil
}
