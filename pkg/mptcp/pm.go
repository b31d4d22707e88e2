// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The generic netlink family of the path managers (linux/mptcp_pm.h).
const (
	pmFamily  = "mptcp_pm"
	pmVersion = 1

	pmCmdAddAddr   = 1
	pmCmdDelAddr   = 2
	pmCmdGetAddr   = 3
	pmCmdSetLimits = 5
	pmCmdGetLimits = 6
	pmCmdSetFlags  = 7

	pmAttrAddr       = 1
	pmAttrAccepted   = 2
	pmAttrSubflows   = 3
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

// ErrNoMPTCP is wrapped where the kernel has no path manager, since it has no MPTCP.
var ErrNoMPTCP = errors.New("this kernel has no MPTCP path manager (CONFIG_MPTCP)")

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
	family, err := pmFamilyID()
	if err != nil {
		return nil, fmt.Errorf("list the MPTCP endpoints: %w", err)
	}
	return endpoints(pmSocket{family: family})
}

func endpoints(s pmSocket) ([]Endpoint, error) {
	messages, err := s.request(pmCmdGetAddr, unix.NLM_F_DUMP)
	if err != nil {
		return nil, fmt.Errorf("list the MPTCP endpoints: %w", err)
	}
	var all []Endpoint
	for _, m := range messages {
		e, err := parseEndpoint(m)
		if err != nil {
			return nil, fmt.Errorf("list the MPTCP endpoints: %w", err)
		}
		all = append(all, e)
	}
	return all, nil
}

// AddEndpoint makes an endpoint in the thread's network namespace, with an id that is free where it has none, and opens
// subflows of the connections that live. It takes CAP_NET_ADMIN.
func AddEndpoint(e Endpoint) error {
	addr := addrAttrs(pmAttrAddr, netip.AddrPortFrom(e.Addr, e.Port))
	addr.AddRtAttr(addrAttrFlags, u32(uint32(e.Flags)))
	if e.ID != 0 {
		addr.AddRtAttr(addrAttrID, []byte{e.ID})
	}
	if e.Ifindex != 0 {
		addr.AddRtAttr(addrAttrIfindex, u32(e.Ifindex))
	}
	_, err := pmRequest(pmCmdAddAddr, unix.NLM_F_ACK, addr)
	switch {
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
		err = errors.New("the address or the id is another endpoint's")
	case errors.Is(err, unix.EINVAL):
		err = errors.New("the kernel does not take these flags together")
	case errors.Is(err, unix.ERANGE):
		err = errors.New("there is no room for more endpoints")
	case errors.Is(err, unix.EADDRNOTAVAIL):
		err = errors.New("no interface has the address, and a port needs one")
	}
	if err != nil {
		return fmt.Errorf("make an endpoint of %v: %w", e.Addr, err)
	}
	return nil
}

// DeleteEndpoint removes an endpoint of the thread's network namespace, and closes the subflows that have its address.
// The error wraps ErrGone if there is no such endpoint any more; it takes CAP_NET_ADMIN.
func DeleteEndpoint(e Endpoint) error {
	addr := addrAttrs(pmAttrAddr, netip.AddrPortFrom(e.Addr, e.Port))
	addr.AddRtAttr(addrAttrID, []byte{e.ID})
	_, err := pmRequest(pmCmdDelAddr, unix.NLM_F_ACK, addr)
	if errors.Is(err, unix.EINVAL) {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("remove %v: %w", e, err)
	}
	return nil
}

// Limits are the bounds of the in-kernel path manager for each connection. Most kernels take up to 8.
type Limits struct {
	Subflows        uint32 // beyond the first
	AddAddrAccepted uint32 // addresses announced by the peer that are connected to
}

// ReadLimits returns the limits of the thread's network namespace.
func ReadLimits() (Limits, error) {
	family, err := pmFamilyID()
	if err != nil {
		return Limits{}, fmt.Errorf("read the MPTCP limits: %w", err)
	}
	return limits(pmSocket{family: family})
}

func limits(s pmSocket) (l Limits, err error) {
	messages, err := s.request(pmCmdGetLimits, 0)
	for _, m := range messages {
		if err == nil {
			l, err = parseLimits(m)
		}
	}
	if err != nil {
		return l, fmt.Errorf("read the MPTCP limits: %w", err)
	}
	return l, nil
}

// SetLimits sets the limits of the thread's network namespace, for connections that live too. It takes CAP_NET_ADMIN.
func SetLimits(l Limits) error {
	_, err := pmRequest(pmCmdSetLimits, unix.NLM_F_ACK,
		nl.NewRtAttr(pmAttrAccepted, u32(l.AddAddrAccepted)), nl.NewRtAttr(pmAttrSubflows, u32(l.Subflows)))
	if errors.Is(err, unix.EINVAL) {
		err = errors.New("this kernel does not allow so many")
	}
	if err != nil {
		return fmt.Errorf("set the MPTCP limits to %d subflows and %d accepted addresses: %w", l.Subflows, l.AddAddrAccepted, err)
	}
	return nil
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

const pmTypePath = "/proc/sys/net/mptcp/pm_type"

func isUserspace(pmType []byte) bool { return strings.TrimSpace(string(pmType)) == "1" }

// UserspacePM reports whether new connections of the thread's network namespace are left to a userspace path
// manager.
func UserspacePM() (bool, error) {
	value, err := os.ReadFile(pmTypePath)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // before Linux 5.19 there is only the kernel's
	}
	return isUserspace(value), err
}

func pmRequest(command uint8, flags int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	family, err := pmFamilyID()
	if err != nil {
		return nil, err
	}
	return pmSocket{family: family}.request(command, flags, data...)
}

func pmFamilyID() (uint16, error) {
	controller := pmSocket{family: nl.GENL_ID_CTRL}
	name := nl.NewRtAttr(nl.GENL_CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(pmFamily))
	messages, err := controller.request(nl.GENL_CTRL_CMD_GETFAMILY, 0, name)
	if errors.Is(err, unix.ENOENT) {
		return 0, ErrNoMPTCP
	}
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		attrs, err := parseMessage(m)
		if id := attrs[nl.GENL_CTRL_ATTR_FAMILY_ID]; err == nil && len(id) == 2 {
			return binary.NativeEndian.Uint16(id), nil
		}
	}
	return 0, fmt.Errorf("the kernel names no number of the netlink family %s", pmFamily)
}

// genlHeader begins each message of generic netlink. The library's nl.Genlmsg has two bytes, and sends the two that happen to
// lie behind them in memory, which another goroutine may be writing to.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// pmSocket is how to reach a family of generic netlink: by a socket that is open, or by one for each request.
type pmSocket struct {
	family uint16
	open   map[int]*nl.SocketHandle
}

func (s pmSocket) request(command uint8, flags int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	req := nl.NewNetlinkRequest(int(s.family), flags)
	req.Sockets = s.open
	req.AddData(genlHeader{command, pmVersion})
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

// parseMessage reads a message of the path manager, past the header of generic netlink.
func parseMessage(message []byte) (map[uint16][]byte, error) {
	if len(message) < nl.SizeofGenlmsg {
		return nil, fmt.Errorf("the kernel's answer has %d bytes", len(message))
	}
	return parseAttrs(message[nl.SizeofGenlmsg:])
}

func parseLimits(message []byte) (l Limits, err error) {
	attrs, err := parseMessage(message)
	fill(&l.Subflows, attrs[pmAttrSubflows])
	fill(&l.AddAddrAccepted, attrs[pmAttrAccepted])
	return l, err
}

func parseEndpoint(message []byte) (Endpoint, error) {
	attrs, err := parseMessage(message)
	if err != nil {
		return Endpoint{}, err
	}
	fields, err := parseAttrs(attrs[pmAttrAddr])
	return endpointOf(fields), err
}

func parseAttrs(b []byte) (map[uint16][]byte, error) {
	// The library looks for the next attribute at a multiple of 4, where the last one need not end.
	list, err := nl.ParseRouteAttr(append(slices.Clip(b), make([]byte, -len(b)&3)...))
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
