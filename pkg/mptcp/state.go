// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// stateTime is how long the kernel may take for an answer. It has the lock that it needs for a moment only.
const stateTime = 2 * time.Second

// State reads what MPTCP does in one network namespace. It stays with the namespace that the thread was in when OpenState
// was called, and keeps that namespace alive until Close. To read takes no capability, from whatever thread. Several
// goroutines may use it at once.
type State struct {
	socket  pmSocket
	netstat *os.File
	pmType  *os.File // nil before Linux 5.19
}

// OpenState opens the state of the thread's network namespace. The error wraps ErrNoMPTCP if the kernel has no MPTCP.
func OpenState() (*State, error) {
	s, err := openState()
	if err != nil {
		return nil, fmt.Errorf("open the state of MPTCP: %w", err)
	}
	return s, nil
}

func openState() (_ *State, err error) {
	family, err := pmFamilyID()
	if err != nil {
		return nil, err
	}
	s := &State{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	s.socket = pmSocket{family: family, open: map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: socket}}}
	limit := unix.NsecToTimeval(stateTime.Nanoseconds())
	if err := errors.Join(socket.SetSendTimeout(&limit), socket.SetReceiveTimeout(&limit)); err != nil {
		return nil, err
	}
	if s.netstat, err = os.Open(netstatPath); err != nil {
		return nil, err
	}
	if s.pmType, err = os.Open(pmTypePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return s, nil
}

// Close lets go of the namespace.
func (s *State) Close() {
	for _, handle := range s.socket.open {
		handle.Close()
	}
	for _, f := range []*os.File{s.netstat, s.pmType} {
		if f != nil {
			f.Close()
		}
	}
}

// Endpoints returns the endpoints of the namespace, in the kernel's order.
func (s *State) Endpoints() ([]Endpoint, error) { return endpoints(s.socket) }

// Limits returns the limits of the namespace.
func (s *State) Limits() (Limits, error) { return limits(s.socket) }

// UserspacePM is the function UserspacePM for the state's namespace.
func (s *State) UserspacePM() (bool, error) {
	if s.pmType == nil {
		return false, nil
	}
	value, err := reread(s.pmType)
	return isUserspace(value), err
}

// Counters returns what the kernel counts of MPTCP in the namespace (MPTcpExt of /proc/net/netstat), by the names that
// nstat shows after MPTcpExt. It adds up what all CPUs have counted. Which there are depends on the kernel.
func (s *State) Counters() (map[string]uint64, error) {
	text, err := reread(s.netstat)
	if err != nil {
		return nil, err
	}
	return mptcpCounters(string(text))
}

// Counters is State.Counters of the thread's network namespace.
func Counters() (map[string]uint64, error) {
	text, err := os.ReadFile(netstatPath)
	if err != nil {
		return nil, err
	}
	return mptcpCounters(string(text))
}

const netstatPath = "/proc/thread-self/net/netstat"

// reread reads a file of proc from its start, which writes it anew.
func reread(f *os.File) ([]byte, error) {
	const most = 1 << 20
	return io.ReadAll(io.NewSectionReader(f, 0, most))
}

// mptcpCounters reads MPTCP's part of /proc/net/netstat: a line of names, and one of values.
func mptcpCounters(netstat string) (map[string]uint64, error) {
	const group = "MPTcpExt:"
	counters := map[string]uint64{}
	var names []string
	for line := range strings.Lines(netstat) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != group {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		if len(words) != len(names) {
			return nil, fmt.Errorf("/proc/net/netstat has %d names and %d values after %s", len(names)-1, len(words)-1, group)
		}
		for i, word := range words[1:] {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("/proc/net/netstat: %s%s: %w", group, names[i+1], err)
			}
			counters[names[i+1]] = n
		}
	}
	return counters, nil
}
