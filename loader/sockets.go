// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/obj"
)

// Socket is an MPTCP socket that a process has open: a listener or a connection.
type Socket struct {
	PID     int    // of several processes that have it open, the first
	Process string // its name
	Netns   uint64 // inode number of the network namespace
	// Scheduler is the packet scheduler that it was made with, or that its listener was made with.
	Scheduler string
	Listens   bool
	Local     netip.AddrPort
}

// Sockets returns the MPTCP sockets of all processes that this one can see, in all network namespaces, by process.
// It takes the rights to load BPF.
func Sockets() ([]Socket, error) {
	const what = "list the MPTCP sockets"
	spec, err := obj.LoadSockets()
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, explain(what, err)
	}
	defer coll.Close()
	iter, err := link.AttachIter(link.IterOptions{Program: coll.Programs["mpcc_sockets"]})
	if err != nil {
		return nil, explain(what, err)
	}
	defer iter.Close()
	r, err := iter.Open()
	if err != nil {
		return nil, explain(what, err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, explain(what, err)
	}
	records := make([]obj.SocketsMpccSocket, len(text)/binary.Size(obj.SocketsMpccSocket{}))
	if err := binary.Read(bytes.NewReader(text), binary.NativeEndian, records); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return socketsOf(records), nil
}

// socketsOf lists each socket once.
func socketsOf(records []obj.SocketsMpccSocket) (all []Socket) {
	slices.SortStableFunc(records, func(a, b obj.SocketsMpccSocket) int { return cmp.Compare(a.Pid, b.Pid) })
	seen := map[uint64]bool{}
	for _, r := range records {
		if seen[r.Id] {
			continue
		}
		seen[r.Id] = true
		addr := netip.AddrFrom16(r.Local)
		if r.Ipv6 == 0 {
			addr = netip.AddrFrom4([4]byte(r.Local[:4]))
		}
		all = append(all, Socket{
			PID: int(r.Pid), Process: unix.ByteSliceToString(r.Process[:]), Netns: uint64(r.Netns),
			Scheduler: unix.ByteSliceToString(r.Scheduler[:]), Listens: r.Listens != 0,
			Local: netip.AddrPortFrom(addr, r.Port),
		})
	}
	return all
}
