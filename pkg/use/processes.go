// SPDX-License-Identifier: Apache-2.0

package use

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
)

// Connections are those whose congestion control has been set.
type Connections struct {
	MPTCP int
	TCP   int
}

// Processes sets the congestion control of the connections that processes have open, once: neither listeners nor later
// connections are changed. A connection that closes meanwhile is passed by. It takes root, or the capabilities
// CAP_SYS_PTRACE and CAP_NET_ADMIN, besides those of the loader. What was set before an error stays.
func Processes(ctx context.Context, e catalog.Entry, pids []int) (set Connections, err error) {
	if e.Kind == catalog.Sched {
		return set, errScheduler
	}
	seen := map[string]bool{}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return set, context.Cause(ctx)
		}
		if err := set.process(e, pid, seen); err != nil {
			return set, err
		}
	}
	return set, nil
}

// process sets the connections of a process that have not been seen yet: one may be open several times.
func (c *Connections) process(e catalog.Entry, pid int, seen map[string]bool) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ENOSYS):
		return unsupported("this kernel cannot reach the sockets of other processes: that came with Linux 5.6")
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("there is no process %d", pid)
	case err != nil:
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(pidfd)
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrPermission) {
		return notPermitted(pid)
	}
	if err != nil {
		return err
	}
	for _, f := range open {
		file, err := os.Readlink(dir + "/" + f.Name())
		if err != nil || !strings.HasPrefix(file, "socket:") || seen[file] {
			continue
		}
		seen[file] = true
		n, err := strconv.Atoi(f.Name())
		if err != nil {
			return err
		}
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if errors.Is(err, unix.EPERM) {
			return notPermitted(pid)
		}
		if err != nil {
			continue // it has been closed meanwhile
		}
		err = c.socket(e, fd)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return nil
}

func notPermitted(pid int) error {
	return fmt.Errorf("process %d: not permitted to reach its sockets; it takes root, or CAP_SYS_PTRACE", pid)
}

// socket sets the congestion control of a socket that is a connection.
func (c *Connections) socket(e catalog.Entry, fd int) error {
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	protocol, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	count := map[int]*int{unix.IPPROTO_MPTCP: &c.MPTCP, unix.IPPROTO_TCP: &c.TCP}[protocol]
	if kind != unix.SOCK_STREAM || count == nil {
		return nil
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return nil // a listener, or one that is not connected
	}
	err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, e.Name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s is %w; mpcc load %s loads it", e, loader.ErrNotLoaded, e)
	case errors.Is(err, unix.EPERM):
		return errors.New("not permitted to set the congestion control; it takes root, or CAP_NET_ADMIN")
	case err != nil:
		return fmt.Errorf("set the congestion control of a connection: %w", err)
	}
	*count++
	return nil
}
