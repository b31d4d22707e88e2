// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/paths"
)

// ErrNoRule is wrapped where no path of the namespace has a rule.
var ErrNoRule = errors.New("no path has a rule")

// The network devices of the calling thread's namespace.
const threadProc = "/proc/thread-self"

// RunPaths makes endpoints backups by the rules of package paths instead of by energy, until ctx ends: all but those
// of the best rank that is up; those whose quota is used up; those that are excluded. It takes neither a packet
// scheduler nor a congestion control of mpcc, and works for what the host receives too, as peers do not send on
// backups. A quota of an interface counts all that crosses it, both ways, as its modem does. Weights, caps and the
// spilling over of new data take the packet scheduler prefer, on the host that sends.
//
// Else it is as Run. The error wraps ErrNoRule if there is no rule in the namespace at the start.
func RunPaths(ctx context.Context, c Config) error {
	s, err := newSteerer(c)
	if err != nil {
		return err
	}
	if rules, err := s.rules(); err != nil {
		return err
	} else if len(rules) == 0 {
		return fmt.Errorf("%s: %w", s.ns, ErrNoRule)
	}
	m := new(meters)
	return s.guarded(ctx, func(time.Time) (time.Duration, error) { return idleInterval, s.pathRound(m) })
}

// rules returns those of the namespace.
func (s *steerer) rules() ([]paths.Live, error) {
	rules, err := paths.List()
	return slices.DeleteFunc(rules, func(l paths.Live) bool { return l.Inode != s.ns.Inode }), err
}

func (s *steerer) pathRound(m *meters) error {
	rules, err := s.rules()
	if err != nil {
		return err
	}
	s.warnOfRules(rules)
	return s.ns.Do(func() error {
		devices, err := readDevices()
		if err != nil {
			return err
		}
		if !s.DryRun {
			if err := m.count(rules, devices); err != nil {
				return err
			}
		}
		endpoints, err := s.endpoints(devices)
		if err != nil {
			return err
		}
		return s.apply(wishesByRule(endpoints, rules))
	})
}

// device is a network interface.
type device struct {
	up    bool
	addrs []netip.Addr
	index uint32
	bytes uint64 // that have crossed it, both ways
}

func readDevices() (map[string]device, error) {
	fs, err := procfs.NewFS(threadProc)
	if err != nil {
		return nil, err
	}
	counts, err := fs.NetDev()
	if err != nil {
		return nil, err
	}
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	all := map[string]device{}
	for _, i := range list {
		d := device{
			up: i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0, index: uint32(i.Index),
			bytes: counts[i.Name].RxBytes + counts[i.Name].TxBytes,
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				d.addrs = append(d.addrs, p.Addr())
			}
		}
		all[i.Name] = d
	}
	return all, nil
}

// meters are what was seen the last time.
type meters struct {
	crossed map[string]uint64    // the interfaces, both ways, bytes
	used    map[paths.Key]uint64 // what the rules had carried
}

// count adds to the rules' counts what has crossed their interfaces since the last time, but for what prefer has
// counted.
func (m *meters) count(rules []paths.Live, devices map[string]device) error {
	used := map[paths.Key]uint64{}
	for i := range rules {
		l := &rules[i]
		if more := m.uncounted(*l, devices); more > 0 {
			if err := l.Count(more); err != nil {
				return err
			}
		}
		used[l.Key] = l.Used
	}
	m.used, m.crossed = used, map[string]uint64{}
	for name, d := range devices {
		m.crossed[name] = d.bytes
	}
	return nil
}

// uncounted is what has crossed a rule's interface and is not in its count.
func (m *meters) uncounted(l paths.Live, devices map[string]device) uint64 {
	d, there := devices[l.Path.Interface()]
	last, known := m.crossed[l.Path.Interface()]
	if !there || !known || l.Quota.Bytes == 0 || l.Only != (paths.Only{}) {
		return 0
	}
	crossed := d.bytes - last
	if d.bytes < last { // it has gone and come again
		crossed = d.bytes
	}
	// Huge if the user has set it back, or a new month has begun.
	counted := l.Used - m.used[l.Key]
	return crossed - min(counted, crossed)
}

// pathEnd is an endpoint to choose from.
type pathEnd struct {
	mptcp.Endpoint
	device string
	up     bool
}

// endpoints returns those to choose from, and drops flags from held that others have cleared.
func (s *steerer) endpoints(devices map[string]device) ([]pathEnd, error) {
	if userspace, err := mptcp.UserspacePM(); err != nil {
		return nil, err
	} else if userspace {
		return nil, errors.New("a userspace path manager looks after the connections here (net.mptcp.pm_type=1): it has to choose their paths")
	}
	all, err := mptcp.Endpoints()
	if err != nil {
		return nil, err
	}
	s.forgive(all)
	there := map[lever]bool{}
	var ends []pathEnd
	for _, e := range all {
		l, flagged := endpointLever(e), e.Flags&mptcp.EndpointBackup != 0
		there[l] = s.DryRun || flagged
		if _, held := s.held[l]; flagged && !held || s.refused[l] {
			continue // the user's
		}
		end := pathEnd{Endpoint: e}
		for name, d := range devices {
			if d.index == e.Ifindex || e.Ifindex == 0 && slices.Contains(d.addrs, e.Addr) {
				end.device, end.up = name, d.up
			}
		}
		ends = append(ends, end)
	}
	return ends, s.keep(there)
}

// The order of paths: by rank, then those without quota left, then those that are excluded.
const (
	tierSpent    = 1 << 32
	tierExcluded = 1 << 33
)

// wishesByRule wants all endpoints to be backups that are not of the best tier that is up.
func wishesByRule(ends []pathEnd, rules []paths.Live) map[lever]wish {
	best := uint64(math.MaxUint64)
	tiers := make([]uint64, len(ends))
	reasons := make([]string, len(ends))
	for i, e := range ends {
		tiers[i], reasons[i] = tierOf(e, rules)
		if e.up {
			best = min(best, tiers[i])
		}
	}
	all := map[lever]wish{}
	for i, e := range ends {
		w := wish{backup: tiers[i] > best && best != math.MaxUint64, rule: reasons[i], member: Member{Interface: e.device, Local: e.Addr}}
		if w.backup {
			w.rule += ", and a better path is up"
		}
		all[endpointLever(e.Endpoint)] = w
	}
	return all
}

// tierOf tells where an endpoint comes in the order, and why.
func tierOf(e pathEnd, rules []paths.Live) (uint64, string) {
	var rule *paths.Live
	for i := range rules {
		if applies, _ := rules[i].Local(e.device, e.Addr, e.ID); applies && (rule == nil || rules[i].Before(*rule)) {
			rule = &rules[i]
		}
	}
	switch {
	case rule == nil:
		return 1, "rank 1"
	case rule.Excluded:
		return tierExcluded + uint64(rule.Rank), "excluded"
	case rule.Spent:
		return tierSpent + uint64(rule.Rank), fmt.Sprintf("quota %v used up", rule.Quota)
	}
	return uint64(rule.Rank), fmt.Sprintf("rank %d", rule.Rank)
}

// warnOfRules logs, once each, what of the rules cannot be enforced from here.
func (s *steerer) warnOfRules(rules []paths.Live) {
	for _, l := range rules {
		if _, local := l.Local("", netip.Addr{}, 0); !local {
			s.once(fmt.Sprintf("the rule for %v is left out: backup flags hold for a local address, and for all connections; only the packet scheduler prefer tells these apart", l.Key))
			continue
		}
		for what, set := range map[string]bool{"weight": l.Weight > 0, "cap": l.Cap > 0, "spill": l.Spill.On} {
			if set {
				s.once(fmt.Sprintf("%v: %s needs the packet scheduler prefer on the host that sends; rank, quota and exclusion are enforced", l.Key, what))
			}
		}
		if l.Quota.Bytes > 0 && l.Path.Interface() == "" {
			s.once(fmt.Sprintf("%v: its quota counts what prefer sends; only that of an interface counts all that crosses it", l.Key))
		}
	}
}
