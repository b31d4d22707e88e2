// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// updateLink replaces the struct_ops map of a link by another one of the same name (BPF_LINK_UPDATE). The
// Update of cilium/ebpf takes programs only.
func updateLink(l link.Link, m *ebpf.Map) error {
	fd := l.(interface{ FD() int }).FD()
	attr := struct{ linkFD, newMapFD, flags, oldMapFD uint32 }{
		linkFD: uint32(fd), newMapFD: uint32(m.FD()),
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_UPDATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(l)
	runtime.KeepAlive(m)
	if errno != 0 {
		return errno
	}
	return nil
}
