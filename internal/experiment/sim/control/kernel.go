// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/bytecode"
)

// kernel is what the programs of one object see around their sockets.
type kernel struct {
	name       string
	m          *bytecode.Machine
	err        error
	shared     sharedFields
	net        uint64            // address of the network namespace
	interfaces map[uint32]uint64 // addresses of routes
}

func newKernel(name string) kernel { return kernel{name: name, interfaces: map[uint32]uint64{}} }

// netCookie tells the simulation's only network namespace apart.
const netCookie = 1

// sharedFields are the offsets within what sockets point to.
type sharedFields struct {
	netSize, cookie, inode uint32
	dstSize, device        uint32
	deviceSize, number     uint32
}

func (k *kernel) readShared(types *btf.Spec) error {
	net, dst, device := layoutOf(types, "net"), layoutOf(types, "dst_entry"), layoutOf(types, "net_device")
	k.shared = sharedFields{
		cookie: net.at("net_cookie", 8), inode: net.at("ns.inum", 4), device: dst.at("dev", 8), number: device.at("ifindex", 4),
	}
	k.shared.netSize, k.shared.dstSize, k.shared.deviceSize = net.size, dst.size, device.size
	return firstError(net, dst, device)
}

// firstError is the first field of the layouts that is not as expected.
func firstError(layouts ...*layout) error {
	for _, l := range layouts {
		if l.err != nil {
			return l.err
		}
	}
	return nil
}

// shareNet allocates the network namespace.
func (k *kernel) shareNet() {
	k.net = k.m.Allocate(uint64(k.shared.netSize))
	net := k.at(k.net, k.shared.netSize)
	binary.LittleEndian.PutUint64(net[k.shared.cookie:], netCookie)
	binary.LittleEndian.PutUint32(net[k.shared.inode:], netCookie)
}

// route returns the address of a route through an interface, 0 for no interface.
func (k *kernel) route(number uint32) uint64 {
	if number == 0 || k.interfaces[number] != 0 {
		return k.interfaces[number]
	}
	dst, device := k.m.Allocate(uint64(k.shared.dstSize)), k.m.Allocate(uint64(k.shared.deviceSize))
	binary.LittleEndian.PutUint64(k.at(dst, k.shared.dstSize)[k.shared.device:], device)
	binary.LittleEndian.PutUint32(k.at(device, k.shared.deviceSize)[k.shared.number:], number)
	k.interfaces[number] = dst
	return dst
}

// at returns the memory at an address.
func (k *kernel) at(address uint64, size uint32) []byte { return k.m.Bytes(address, uint64(size)) }

// take returns zeroed memory: what was freed, or new.
func (k *kernel) take(free *[]uint64, size uint32) uint64 {
	n := len(*free)
	if n == 0 {
		return k.m.Allocate(uint64(size))
	}
	address := (*free)[n-1]
	*free = (*free)[:n-1]
	clear(k.at(address, size))
	return address
}

// Close frees the programs and all sockets.
func (k *kernel) Close() error { return k.m.Close() }

// Err is the first error that a program met. From then on callbacks do nothing.
func (k *kernel) Err() error { return k.err }

// EnergyProfile is the power that an interface takes, as bpf/include/mpcc/energy.h has it.
type EnergyProfile struct {
	UpUwPerMbps, DownUwPerMbps, BaseUw uint32
}

// SetEnergy gives an interface a profile, by the number that State.Interface has.
func (k *kernel) SetEnergy(number uint32, p EnergyProfile) error {
	profiles, err := k.m.Map("mpcc_energy")
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	key, err := binary.Append(nil, binary.LittleEndian, obj.MapsMpccEnergyKey{NetnsCookie: netCookie, Ifindex: number})
	if err != nil {
		return err
	}
	value, err := binary.Append(nil, binary.LittleEndian, obj.MapsMpccEnergyProfile{
		UpUwPerMbps: p.UpUwPerMbps, DownUwPerMbps: p.DownUwPerMbps, BaseUw: p.BaseUw,
	})
	if err != nil {
		return err
	}
	return profiles.Put(key, value)
}
