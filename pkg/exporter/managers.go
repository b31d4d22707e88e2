// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

const (
	maxNamespaces = 64
	// letGoTime is how long a namespace lives on, at most, because its MPTCP is looked at.
	letGoTime = 5 * time.Second
)

// Manager is MPTCP in one network namespace: its path manager, and what the kernel counts.
type Manager struct {
	Netns     uint64 // inode number
	NetnsName string // by ip netns; "" for one without
	Endpoints []mptcp.Endpoint
	Limits    mptcp.Limits
	Userspace bool // new connections are a userspace path manager's
	Counters  map[string]uint64
}

// Managers is MPTCP in all network namespaces that a process can look at.
type Managers struct {
	Covered []Manager
	Others  int // namespaces with a name that it may not enter, or that are too many
}

// Namespaces holds network namespaces open, so that a process that gives up its capabilities can still see MPTCP in
// them: the process's own, and those with a name of ip netns, 64 in all. To enter another namespace takes
// CAP_SYS_ADMIN; one that comes later than the capabilities went is not seen.
//
// It lets go of a namespace that has lost its name, so that it can end.
type Namespaces struct {
	mu   sync.Mutex
	open map[uint64]*mptcp.State // by inode
	done chan struct{}
}

// OpenNamespaces opens those that are there.
func OpenNamespaces() (*Namespaces, error) {
	n := &Namespaces{open: map[uint64]*mptcp.State{}, done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, _, err := n.update(); err != nil {
		n.closeAll()
		return nil, err
	}
	go n.letGo()
	return n, nil
}

// Close lets go of all.
func (n *Namespaces) Close() {
	close(n.done)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closeAll()
}

func (n *Namespaces) closeAll() {
	for inode := range n.open {
		n.close(inode)
	}
}

func (n *Namespaces) close(inode uint64) {
	n.open[inode].Close()
	delete(n.open, inode)
}

// letGo lets go of namespaces that have ended for everybody else, also while nobody reads.
func (n *Namespaces) letGo() {
	tick := time.NewTicker(letGoTime)
	defer tick.Stop()
	for {
		select {
		case <-n.done:
			return
		case <-tick.C:
		}
		n.mu.Lock()
		if wanted, err := candidates(); err == nil {
			n.keep(wanted)
		}
		n.mu.Unlock()
	}
}

// candidates are this process's own namespace and, by name, those that have one.
func candidates() ([]netns.NS, error) {
	own, err := netns.Current()
	if err != nil {
		return nil, err
	}
	names := netns.Names()
	own.Name = names[own.Inode]
	all := []netns.NS{own}
	for _, inode := range slices.SortedFunc(maps.Keys(names), func(a, b uint64) int { return cmp.Compare(names[a], names[b]) }) {
		if ns, err := netns.Named(names[inode]); err == nil && ns.Inode == inode && inode != own.Inode {
			all = append(all, ns)
		}
	}
	return all, nil
}

func (n *Namespaces) keep(wanted []netns.NS) {
	for inode := range n.open {
		if !slices.ContainsFunc(wanted, func(ns netns.NS) bool { return ns.Inode == inode }) {
			n.close(inode)
		}
	}
}

// update returns the namespaces that are open, after it has opened those that have come, as far as it may.
func (n *Namespaces) update() (covered []netns.NS, others int, err error) {
	wanted, err := candidates()
	if err != nil {
		return nil, 0, err
	}
	n.keep(wanted)
	for _, ns := range wanted {
		if n.open[ns.Inode] == nil {
			switch err := n.enter(ns); {
			case errors.Is(err, mptcp.ErrNoMPTCP):
				return nil, 0, nil // in none of them
			case errors.Is(err, netns.ErrEnded):
				continue
			case errors.Is(err, errTooMany) || netns.Forbidden(err):
				others++
				continue
			case err != nil:
				return covered, others, fmt.Errorf("%s: %w", ns, err)
			}
		}
		covered = append(covered, ns)
	}
	return covered, others, nil
}

var errTooMany = errors.New("too many network namespaces")

func (n *Namespaces) enter(ns netns.NS) error {
	if len(n.open) >= maxNamespaces {
		return errTooMany
	}
	return ns.Do(func() error {
		s, err := mptcp.OpenState()
		if err == nil {
			n.open[ns.Inode] = s
		}
		return err
	})
}

// Read returns what can be seen now. With an error it still returns the namespaces that could be read.
func (n *Namespaces) Read() (Managers, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	covered, others, err := n.update()
	all := Managers{Others: others}
	for _, ns := range covered {
		m, readErr := n.read(ns)
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", ns, readErr))
			continue
		}
		all.Covered = append(all.Covered, m)
	}
	return all, err
}

func (n *Namespaces) read(ns netns.NS) (Manager, error) {
	s := n.open[ns.Inode]
	m := Manager{Netns: ns.Inode, NetnsName: ns.Name}
	var err [4]error
	m.Endpoints, err[0] = s.Endpoints()
	m.Limits, err[1] = s.Limits()
	m.Userspace, err[2] = s.UserspacePM()
	m.Counters, err[3] = s.Counters()
	return m, cmp.Or(err[:]...)
}

// readManagers reads all namespaces that this process may enter now, and keeps none open.
func readManagers() (Managers, error) {
	n, err := OpenNamespaces()
	if err != nil {
		return Managers{}, err
	}
	defer n.Close()
	return n.Read()
}
