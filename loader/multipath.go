// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/obj"
)

// Multipath is in the place of a congestion control where programs get MPTCP sockets when they ask for TCP ones.
const Multipath = "mptcp"

// MultipathInCgroup gives the programs of a cgroup MPTCP sockets where they ask for TCP ones, without a change
// to the programs; where net.mptcp.enabled is 0 they get TCP. Open sockets stay what they are. isNew reports whether the cgroup
// had no such use before.
// The error wraps ErrUnsupported if the kernel cannot do it.
func MultipathInCgroup(ctx context.Context, cgroup string) (isNew bool, err error) {
	if !canReplaceSockets() {
		return false, unsupported("this kernel (%s) lets nobody choose MPTCP for a program: %s", Release(), replacesSockets)
	}
	if err := checkRights(); err != nil {
		return false, err
	}
	return start(ctx, CgroupUse{What: Multipath}, cgroup, func(u CgroupUse, _ string) (link.Link, error) {
		p, err := multipathProgram(u.ID)
		if errors.Is(err, unix.EPERM) {
			return nil, unsupported("this kernel (%s) %s", Release(), forbidsReplacing)
		}
		if err != nil {
			return nil, err
		}
		defer p.Close()
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if errors.Is(err, unix.E2BIG) {
			return nil, errors.New("this kernel has no room for one more cgroup with MPTCP sockets; mpcc use lists them")
		}
		return l, err
	})
}

const (
	replacesSockets  = "that came with Linux 6.6"
	forbidsReplacing = "forbids BPF programs that change what sockets others get (fmod_ret)"
)

func canReplaceSockets() bool {
	spec, err := types.Kernel()
	return err == nil && hasFunc("update_socket_protocol")(spec)
}

func multipathProgram(cgroup uint64) (*ebpf.Program, error) {
	return useProgram(obj.UseProgMpccUseMptcp, func(spec *ebpf.CollectionSpec) error {
		return spec.Variables[obj.UseVarMpccCgroup].Set(cgroup)
	})
}
