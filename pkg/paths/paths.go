// SPDX-License-Identifier: Apache-2.0

// Package paths has the user's rules for the paths of MPTCP connections: rank, weight, rate cap, volume quota,
// exclusion, and whether new data may spill to a path when better ones are full. The packet scheduler prefer obeys
// them on the host that sends; docs/path.md tells what they mean.
//
// Rules live in a map in the kernel, until the machine reboots. File is what is kept of them.
package paths

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
)

// Key tells which subflows a rule is for. There is one rule for each.
type Key struct {
	Path  Path   `yaml:"path" json:"path"`
	Only  Only   `yaml:"only,omitempty" json:"only"`             // the connections; "" for all
	Netns string `yaml:"netns,omitempty" json:"netns,omitempty"` // as ip netns names it; "" for the caller's
}

func (k Key) String() string {
	text := k.Path.String()
	if k.Only != (Only{}) {
		text += " --only " + k.Only.String()
	}
	if k.Netns != "" {
		text += " --netns " + k.Netns
	}
	return text
}

// Rule is what the user says of a path.
type Rule struct {
	Key      `yaml:",inline"`
	Rank     uint32 `yaml:"rank" json:"rank" default:"1" range:"1..65535"`  // 1 to MaxRank, 1 being the best
	Weight   uint32 `yaml:"weight,omitempty" json:"weight" range:"0..1000"` // 1 to MaxWeight, the share among paths of its rank; 0 for none
	Spill    Spill  `yaml:"spill,omitempty" json:"spill"`                   // takes what better ranks cannot
	Cap      Rate   `yaml:"cap,omitempty" json:"cap_bytes_per_second"`      // 0 for none
	Quota    Quota  `yaml:"quota,omitempty" json:"quota"`                   // then it is used as a backup
	Excluded bool   `yaml:"excluded,omitempty" json:"excluded"`             // used only where nothing else is alive
}

// The most that a rule may say.
const (
	MaxRank   = 65535
	MaxWeight = 1000
)

// NewRule returns the rule that changes nothing: rank 1, and no more.
func NewRule(k Key) Rule { return Rule{Key: k, Rank: 1} }

// Check returns an error that tells what is out of range.
func (r Rule) Check() error {
	switch {
	case r.Path == (Path{}):
		return errors.New("no path: say path")
	case r.Rank < 1 || r.Rank > MaxRank:
		return fmt.Errorf("rank %d: give 1 to %d", r.Rank, MaxRank)
	case r.Weight > MaxWeight:
		return fmt.Errorf("weight %d: give 1 to %d, or 0 for none", r.Weight, MaxWeight)
	}
	return nil
}

// Live is a rule in the kernel, and what it has carried.
type Live struct {
	Rule
	Used  uint64    `json:"used_bytes"`  // handed to subflows there since then
	Since time.Time `json:"since"`       // begin of the count; of a monthly quota, this month's if that is later
	Spent bool      `json:"spent"`       // the quota is used up
	Inode uint64    `json:"netns_inode"` // the namespace's inode number
	slot  uint32
	id    uint32
}

// List returns the rules of all namespaces. A namespace without a name of ip netns that is not the caller's has
// its inode number for a name.
func List() ([]Live, error) {
	p, err := loader.ReadPaths()
	if err != nil {
		return nil, err
	}
	return listOf(p, time.Now())
}

func listOf(p *loader.Paths, now time.Time) ([]Live, error) {
	here, err := netns.Current()
	if err != nil {
		return nil, err
	}
	names := netns.Names()
	all := []Live{}
	for slot, raw := range p.Rules {
		use := p.Uses[raw.Id]
		l := Live{
			Rule: ruleOf(raw), Used: use.Bytes, Since: time.Unix(int64(use.SinceS), 0), Inode: uint64(raw.Netns),
			slot: slot, id: raw.Id,
		}
		if l.Inode != here.Inode {
			l.Netns = cmp.Or(names[l.Inode], strconv.FormatUint(l.Inode, 10))
		}
		l.Used, l.Since = l.Quota.at(now, l.Used, l.Since)
		l.Spent = l.Quota.Bytes > 0 && l.Used >= l.Quota.Bytes
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Live) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Key.String(), b.Key.String()))
	})
	return all, nil
}

// Set changes the rule for a key, or makes one from NewRule, and returns it. What it has carried goes on counting;
// used, if not nil, is the new count, such as what the modem shows. It takes effect on running connections within
// 100 ms.
func Set(ctx context.Context, k Key, used *uint64, change func(*Rule) error) (Live, error) {
	var set Live
	raw, err := locate(k)
	if err != nil {
		return set, err
	}
	now := time.Now()
	return set, loader.ChangePaths(ctx, func(p *loader.Paths) error {
		live, err := find(p, k, raw, now)
		if err != nil {
			return err
		}
		set = Live{Rule: NewRule(k), Since: now}
		if live != nil {
			set = *live
			set.Key = k
		}
		if err := change(&set.Rule); err != nil {
			return err
		}
		if err := set.Check(); err != nil {
			return err
		}
		if used != nil {
			set.Used = *used
		}
		return set.put(p, raw, live, now)
	})
}

// put writes the rule over the live one, if that is not nil.
func (l *Live) put(p *loader.Paths, raw obj.MapsMpccPathRule, live *Live, now time.Time) error {
	l.Used, l.Since = l.Quota.at(now, l.Used, l.Since)
	use := obj.MapsMpccPathUse{Bytes: l.Used, SinceS: uint64(l.Since.Unix())}
	l.toMap(&raw)
	if live == nil {
		return p.Add(raw, use)
	}
	raw.Id = live.id
	if was := p.Uses[raw.Id]; was.SinceS != use.SinceS || l.Used != live.Used {
		use.PaidUntilNs = was.PaidUntilNs
		if err := p.PutUse(raw.Id, use); err != nil {
			return err
		}
	}
	return p.Put(live.slot, raw)
}

// find returns the live rule for a key; nil if there is none.
func find(p *loader.Paths, k Key, at obj.MapsMpccPathRule, now time.Time) (*Live, error) {
	all, err := listOf(p, now)
	for _, l := range all {
		if p.Rules[l.slot].NetnsCookie == at.NetnsCookie && l.Path == k.Path && l.Only == k.Only {
			return &l, nil
		}
	}
	return nil, err
}

// Reset removes the rule for a key, and tells whether there was one.
func Reset(ctx context.Context, k Key) (was bool, err error) {
	at, err := locate(k)
	if err != nil {
		return false, err
	}
	return was, loader.ChangePaths(ctx, func(p *loader.Paths) error {
		live, err := find(p, k, at, time.Now())
		if err != nil || live == nil {
			return err
		}
		was = true
		return p.Delete(live.slot)
	})
}

// ResetAll removes all rules of a namespace of ip netns, or of the caller's, and returns how many there were.
func ResetAll(ctx context.Context, namespace string) (n int, err error) {
	at, err := locate(Key{Netns: namespace})
	if err != nil {
		return 0, err
	}
	return n, loader.ChangePaths(ctx, func(p *loader.Paths) error {
		for slot, r := range p.Rules {
			if r.NetnsCookie != at.NetnsCookie {
				continue
			}
			if err := p.Delete(slot); err != nil {
				return err
			}
			n++
		}
		return nil
	})
}

// CheckInterface returns an error that tells which interfaces there are if the key is for one that is not.
func CheckInterface(k Key) error {
	if k.Path.kind != byInterface {
		return nil
	}
	ns, err := namespace(k.Netns)
	if err != nil {
		return err
	}
	var names []string
	err = ns.Do(func() error {
		list, err := net.Interfaces()
		for _, i := range list {
			names = append(names, i.Name)
		}
		return err
	})
	if err == nil && !slices.Contains(names, k.Path.name) {
		err = fmt.Errorf("%s has no interface %s; it has %s", ns, k.Path, strings.Join(names, ", "))
	}
	return err
}

func namespace(name string) (netns.NS, error) {
	if name == "" {
		return netns.Current()
	}
	return netns.Named(name)
}

// locate returns what the map has of a key.
func locate(k Key) (r obj.MapsMpccPathRule, err error) {
	ns, err := namespace(k.Netns)
	if err != nil {
		return r, err
	}
	if err := k.Only.check(); err != nil {
		return r, err
	}
	r.Netns = uint32(ns.Inode)
	r.NetnsCookie, err = ns.Cookie()
	k.Path.toMap(&r)
	k.Only.toMap(&r)
	return r, err
}

func (r Rule) toMap(raw *obj.MapsMpccPathRule) {
	raw.Rank, raw.Weight, raw.Cap, raw.Quota = r.Rank, r.Weight, uint64(r.Cap), r.Quota.Bytes
	raw.SpillUs, raw.Excluded, raw.Monthly = r.Spill.us(), flag(r.Excluded), flag(r.Quota.Monthly)
}

func ruleOf(raw obj.MapsMpccPathRule) Rule {
	return Rule{
		Key:  Key{Path: pathOf(raw), Only: onlyOf(raw)},
		Rank: raw.Rank, Weight: raw.Weight, Cap: Rate(raw.Cap), Spill: spillOf(raw.SpillUs),
		Quota: Quota{raw.Quota, raw.Monthly != 0}, Excluded: raw.Excluded != 0,
	}
}

func flag(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}

// Count adds bytes to what the rule has carried, such as those that prefer does not see.
func (l *Live) Count(bytes uint64) error {
	l.Used += bytes
	l.Spent = l.Quota.Bytes > 0 && l.Used >= l.Quota.Bytes
	return loader.AddPathUse(l.id, bytes)
}

// Local tells whether this host can say by an endpoint alone whether the rule is for its subflows, and for all
// connections: then it returns whether it is for an endpoint of this interface, address and id.
func (k Key) Local(iface string, addr netip.Addr, id uint8) (applies, local bool) {
	if k.Only != (Only{}) {
		return false, false
	}
	switch k.Path.kind {
	case byInterface:
		return k.Path.name == iface, true
	case byLocalID:
		return k.Path.id == id, true
	case byLocal:
		return k.Path.prefix.Contains(addr.Unmap()), true
	}
	return false, false
}

// Before tells whether the rule wins over another where both apply (docs/path.md).
func (l Live) Before(other Live) bool {
	specific := func(k Key) int {
		n := int(k.Path.kind) << 8
		if k.Path.prefix.IsValid() {
			n += 1 + k.Path.prefix.Bits()
		}
		if k.Only != (Only{}) {
			n += 1 << 16
		}
		return n
	}
	a, b := specific(l.Key), specific(other.Key)
	return a > b || a == b && l.slot < other.slot
}

// Interface returns the name of the interface that the path is named by; "" if by something else.
func (p Path) Interface() string { return p.name }
