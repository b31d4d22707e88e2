// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropCapabilities takes all capabilities from every thread, and the way to get them back by executing a
// program. None is needed from here on: the kernel asks for CAP_BPF only where maps and programs are made;
// to open a pin and to read through it takes the rights of the pin's file, which root keeps as its owner.
func dropCapabilities() error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if errno == syscall.ENOTSUP {
		return errors.New("drop capabilities: this mpcc is built with cgo and cannot; build it with CGO_ENABLED=0, as make build does")
	}
	if errno == 0 {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		_, _, errno = syscall.AllThreadsSyscall(unix.SYS_CAPSET,
			uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	}
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}
