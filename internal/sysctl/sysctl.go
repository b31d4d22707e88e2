// SPDX-License-Identifier: Apache-2.0

// Package sysctl writes settings of the kernel's network. Containers have a /proc/sys that is read-only; where one has the
// machine's /proc/sys/net mounted at Mounted, it is written there. Either way a setting is that of the thread's network
// namespace.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	own = "/proc/sys/net"
	// Mounted is where a container has the machine's /proc/sys/net.
	Mounted = "/host/proc/sys/net"
)

// Write writes the setting at a path such as /proc/sys/net/ipv4/tcp_congestion_control.
func Write(path, value string) error {
	err := write(path, value)
	name, isNet := strings.CutPrefix(path, own)
	if !isNet || !errors.Is(err, unix.EROFS) {
		return err
	}
	there := write(Mounted+name, value)
	if errors.Is(there, fs.ErrNotExist) {
		return fmt.Errorf("%w; in a container, mount the machine's %s at %s", err, own, Mounted)
	}
	return there
}

func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
