// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/internal/sysctl"
)

// plug describes where algorithms of a kind plug into the kernel.
type plug struct {
	kind      catalog.Kind
	available string // file of the names that the kernel offers
	setting   string // file of a network namespace's default
	inherited bool   // whether new namespaces start with the machine's default
	// held tells whether a default holds on to the programs it was set with; otherwise it is a mere
	// name, which every new connection looks up.
	held bool
	own  []string // the kernel's own algorithms; it always has one of these
	// remove returns advice on how to remove an algorithm that mpcc has not loaded.
	remove func(name string) string
	// live counts the subflows or, of a scheduler, the connections that run an algorithm's code.
	live func(m *Maps, name string) (int, error)
}

var plugs = []*plug{
	{
		kind:      catalog.CC,
		available: "/proc/sys/net/ipv4/tcp_available_congestion_control",
		setting:   "/proc/sys/net/ipv4/tcp_congestion_control",
		inherited: true,
		held:      true,
		own:       []string{"cubic", "reno"},
		remove: func(name string) string {
			return "rmmod tcp_" + name + ", or end the program that attached it"
		},
		live: func(m *Maps, name string) (n int, err error) {
			subflows, err := Read[uint64, obj.MapsMpccSubflow](m, MapSubflows)
			for _, s := range subflows {
				if unix.ByteSliceToString(s.Cc[:]) == name {
					n++
				}
			}
			return n, err
		},
	},
	{
		kind:      catalog.Sched,
		available: "/proc/sys/net/mptcp/available_schedulers",
		setting:   "/proc/sys/net/mptcp/scheduler",
		own:       []string{"default"},
		remove: func(string) string {
			return "end the program that attached it"
		},
		live: func(m *Maps, name string) (n int, err error) {
			connections, err := Read[uint64, obj.MapsMpccSchedConnection](m, MapConnections)
			for _, c := range connections {
				if unix.ByteSliceToString(c.Scheduler[:]) == name {
					n++
				}
			}
			return n, err
		},
	},
}

func plugOf(k catalog.Kind) *plug {
	return plugs[slices.IndexFunc(plugs, func(p *plug) bool { return p.kind == k })]
}

// offered returns the names of all algorithms of the kind in the kernel; none where it does not know the kind.
func (p *plug) offered() ([]string, error) {
	b, err := readSetting(p.available)
	return strings.Fields(b), err
}

// stillOffered reports whether the kernel still offers a name after so long. The kernel takes the name away some
// time after the link's last holder, a pin or a process, has gone: seconds, where all CPUs are busy.
func (p *plug) stillOffered(ctx context.Context, name string, after time.Duration) (bool, error) {
	return lasts(ctx, after, func() (bool, error) {
		names, err := p.offered()
		return slices.Contains(names, name), err
	})
}

// lasts reports whether a state of the kernel lasts for so long; it returns as soon as the state has ended.
func lasts(ctx context.Context, long time.Duration, state func() (bool, error)) (bool, error) {
	for end := time.Now().Add(long); ; {
		if still, err := state(); err != nil || !still {
			return false, err
		}
		if time.Now().After(end) {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// isOurs reports whether mpcc brings an algorithm, or has loaded it from an object file.
func (p *plug) isOurs(name string) bool {
	if isInCatalog(p.kind, name) {
		return true
	}
	_, err := os.Stat(notePath(p.kind, name))
	return err == nil
}

// readDefault returns the namespace's default; "" where the kernel has no such setting.
func (p *plug) readDefault(ns netns.NS) (value string, err error) {
	err = ns.Do(func() error {
		value, err = readSetting(p.setting)
		return err
	})
	return value, err
}

func (p *plug) writeDefault(ns netns.NS, value string) error {
	return ns.Do(func() error { return sysctl.Write(p.setting, value) })
}

func readSetting(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}
