// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The generic netlink family of the path managers (linux/mptcp_pm.h).
const (
	pmFamily  = "mptcp_pm"
	pmVersion = 1

	pmCmdGetAddr  = 3
	pmCmdSetFlags = 7

	pmAttrAddr       = 1
	pmAttrToken      = 4
	pmAttrAddrRemote = 6

	addrAttrFamily  = 1
	addrAttrID      = 2
	addrAttrAddr4   = 3
	addrAttrAddr6   = 4
	addrAttrPort    = 5
	addrAttrFlags   = 6
	addrAttrIfindex = 7
)

// ErrGone is wrapped if the endpoint or subflow to flag does not exist any more, or if the subflow has no flag of
// its own because the kernel's path manager looks after it.
var ErrGone = errors.New("not there any more")

// EndpointFlags are the flags of an endpoint.
type EndpointFlags uint32

// Flags of an endpoint, as ip mptcp endpoint names them.
const (
	EndpointSignal   EndpointFlags = 1 << iota // announced to the peer
	EndpointSubflow                            // opens subflows
	EndpointBackup                             // its subflows carry data only when no other can
	EndpointFullmesh                           // opens subflows to all of the peer's addresses
	EndpointImplicit                           // made by the kernel for a subflow's local address
)

// Endpoint is an address that the in-kernel path manager knows.
type Endpoint struct {
	ID      uint8
	Addr    netip.Addr
	Port    uint16 // 0 for any
	Ifindex uint32 // 0 for any
	Flags   EndpointFlags
}

func (e Endpoint) String() string { return fmt.Sprintf("endpoint %d (%v)", e.ID, e.Addr) }

// Endpoints returns the endpoints of the thread's network namespace, in the
// kernel's order. It is an error if the kernel has no MPTCP.
func Endpoints() ([]Endpoint, error) {
	messages, err := pmRequest(pmCmdGetAddr, unix.NLM_F_DUMP)
	if err != nil {
		return nil, fmt.Errorf("list the MPTCP endpoints: %w", err)
	}
	var all []Endpoint
	for _, m := range messages {
		attrs, err := parseAttrs(m[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, fmt.Errorf("list the MPTCP endpoints: %w", err)
		}
		fields, err := parseAttrs(attrs[pmAttrAddr])
		if err != nil {
			return nil, fmt.Errorf("list the MPTCP endpoints: %w", err)
		}
		all = append(all, endpointOf(fields))
	}
	return all, nil
}

// SetEndpointBackup makes an endpoint of the thread's network namespace a backup, or takes that back; its
// other flags stay. The kernel's own path manager tells every connection it made, but in each only the
// first subflow that has the address; subflows to come start with the flag. A connection that a userspace
// path manager looks after is not touched. The error wraps ErrGone if there is no such endpoint any more;
// it takes CAP_NET_ADMIN.
func SetEndpointBackup(e Endpoint, backup bool) error {
	// The kernel takes the new value of two flags at once. With a change of fullmesh it would make the
	// subflows anew.
	flags := e.Flags & EndpointFullmesh
	if backup {
		flags |= EndpointBackup
	}
	addr := nested(pmAttrAddr)
	addr.AddRtAttr(addrAttrID, []byte{e.ID})
	addr.AddRtAttr(addrAttrFlags, u32(uint32(flags)))
	_, err := pmRequest(pmCmdSetFlags, unix.NLM_F_ACK, addr)
	if errors.Is(err, unix.EINVAL) {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("%v: %w", e, err)
	}
	return nil
}

// SetSubflowBackup makes one subflow of a connection in the thread's network namespace a backup, or takes
// that back. The kernel allows it only for connections that a userspace path manager looks after; otherwise,
// and if the subflow has ended, the error wraps ErrGone. It takes CAP_NET_ADMIN.
func SetSubflowBackup(token uint32, local, remote netip.AddrPort, backup bool) error {
	flags := EndpointFlags(0)
	if backup {
		flags = EndpointBackup
	}
	from, to := addrAttrs(pmAttrAddr, local), addrAttrs(pmAttrAddrRemote, remote)
	from.AddRtAttr(addrAttrFlags, u32(uint32(flags)))
	_, err := pmRequest(pmCmdSetFlags, unix.NLM_F_ACK, nl.NewRtAttr(pmAttrToken, u32(token)), from, to)
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w, or the connection is not a userspace path manager's", ErrGone)
	}
	if err != nil {
		return fmt.Errorf("subflow %v > %v of connection %08x: %w", local, remote, token, err)
	}
	return nil
}

// UserspacePM reports whether new connections of the thread's network namespace are left to a userspace path
// manager.
func UserspacePM() (bool, error) {
	value, err := os.ReadFile("/proc/sys/net/mptcp/pm_type")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // before Linux 5.19 there is only the kernel's
	}
	return strings.TrimSpace(string(value)) == "1", err
}

func pmRequest(command uint8, flags int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	family, err := netlink.GenlFamilyGet(pmFamily)
	if errors.Is(err, unix.ENOENT) {
		return nil, errors.New("this kernel has no MPTCP path manager (CONFIG_MPTCP)")
	}
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), flags)
	req.AddData(&nl.Genlmsg{Command: command, Version: pmVersion})
	for _, d := range data {
		req.AddData(d)
	}
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, errors.New("not permitted; it takes root, or the capability CAP_NET_ADMIN")
	}
	return messages, err
}

func nested(kind int) *nl.RtAttr { return nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil) }

func addrAttrs(kind int, addr netip.AddrPort) *nl.RtAttr {
	attr := nested(kind)
	family, field := uint16(unix.AF_INET), addrAttrAddr4
	if addr.Addr().Is6() {
		family, field = unix.AF_INET6, addrAttrAddr6
	}
	attr.AddRtAttr(addrAttrFamily, u16(family))
	attr.AddRtAttr(field, addr.Addr().AsSlice())
	attr.AddRtAttr(addrAttrPort, u16(addr.Port())) // in the machine's byte order
	return attr
}

func u16(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }
func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func parseAttrs(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	found := map[uint16][]byte{}
	for _, a := range list {
		found[a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = a.Value
	}
	return found, nil
}

func endpointOf(fields map[uint16][]byte) Endpoint {
	var e Endpoint
	if b := fields[addrAttrID]; len(b) >= 1 {
		e.ID = b[0]
	}
	for _, field := range []uint16{addrAttrAddr4, addrAttrAddr6} {
		if addr, ok := netip.AddrFromSlice(fields[field]); ok {
			e.Addr = addr.Unmap()
		}
	}
	if b := fields[addrAttrPort]; len(b) >= 2 {
		e.Port = binary.NativeEndian.Uint16(b)
	}
	if b := fields[addrAttrFlags]; len(b) >= 4 {
		e.Flags = EndpointFlags(binary.NativeEndian.Uint32(b))
	}
	if b := fields[addrAttrIfindex]; len(b) >= 4 {
		e.Ifindex = binary.NativeEndian.Uint32(b)
	}
	return e
}
