// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"net/netip"
	"testing"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/paths"
)

func rule(t *testing.T, path string, change func(*paths.Live)) paths.Live {
	t.Helper()
	p, err := paths.ParsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	l := paths.Live{Rule: paths.NewRule(paths.Key{Path: p})}
	if change != nil {
		change(&l)
	}
	return l
}

func rank(n uint32) func(*paths.Live) { return func(l *paths.Live) { l.Rank = n } }

// Three endpoints: which of them are to be backups, by some rules.
func TestWishesByRule(t *testing.T) {
	end := func(id uint8, device, addr string, up bool) pathEnd {
		return pathEnd{mptcp.Endpoint{ID: id, Addr: netip.MustParseAddr(addr)}, device, up}
	}
	all := []pathEnd{end(1, "dsl0", "192.0.2.1", true), end(2, "lte0", "198.51.100.1", true), end(3, "sat0", "2001:db8::1", true)}
	cut := append([]pathEnd{end(1, "dsl0", "192.0.2.1", false)}, all[1:]...)
	down := []pathEnd{end(1, "dsl0", "192.0.2.1", false), end(2, "lte0", "198.51.100.1", false), end(3, "sat0", "2001:db8::1", false)}
	spent := func(l *paths.Live) { l.Spent, l.Rank = true, 2 }
	excluded := func(l *paths.Live) { l.Excluded = true }
	for _, test := range []struct {
		name    string
		ends    []pathEnd
		rules   []paths.Live
		backups string // of the three
	}{
		{"one worse rank", all, []paths.Live{rule(t, "lte0", rank(2))}, "-b-"},
		{"three ranks", all, []paths.Live{rule(t, "lte0", rank(2)), rule(t, "sat0", rank(3))}, "-bb"},
		{"the best is down", cut, []paths.Live{rule(t, "lte0", rank(2)), rule(t, "sat0", rank(3))}, "--b"},
		{"all are down", down, []paths.Live{rule(t, "lte0", rank(2))}, "---"},
		{"a quota is used up", cut, []paths.Live{rule(t, "lte0", spent), rule(t, "sat0", rank(3))}, "-b-"},
		{"an excluded path comes last", cut, []paths.Live{rule(t, "lte0", excluded), rule(t, "sat0", spent)}, "-b-"},
		{"by address", all, []paths.Live{rule(t, "local=198.51.100.0/24", rank(2)), rule(t, "local=2001:db8::1", rank(2))}, "-bb"},
		{"by id", all, []paths.Live{rule(t, "local-id=1", excluded)}, "b--"},
		{"the address before the interface", all, []paths.Live{rule(t, "lte0", excluded), rule(t, "local=198.51.100.1", rank(1))}, "---"},
		{"the longer prefix", all, []paths.Live{rule(t, "local=0.0.0.0/0", rank(1)), rule(t, "local=192.0.2.0/24", rank(2))}, "b--"},
		{"not by the peer's address", all, []paths.Live{rule(t, "remote=0.0.0.0/0", excluded)}, "---"},
		{"not for some connections", all, []paths.Live{rule(t, "lte0", func(l *paths.Live) { l.Only = paths.Only{Port: 443}; l.Excluded = true })}, "---"},
	} {
		wanted, got := wishesByRule(test.ends, test.rules), ""
		for _, e := range test.ends {
			if wanted[endpointLever(e.Endpoint)].backup {
				got += "b"
			} else {
				got += "-"
			}
		}
		if got != test.backups {
			t.Errorf("%s: %s, want %s", test.name, got, test.backups)
		}
	}
}

// What crosses an interface is counted once, whoever counts it, and not at all when the count was set meanwhile.
func TestMeters(t *testing.T) {
	quota := func(used uint64) paths.Live {
		return rule(t, "lte0", func(l *paths.Live) { l.Quota.Bytes, l.Used = 1e9, used })
	}
	seen := func(bytes uint64) map[string]device { return map[string]device{"lte0": {bytes: bytes}} }
	before := meters{crossed: map[string]uint64{"lte0": 1000}, used: map[paths.Key]uint64{quota(0).Key: 500}}
	for name, test := range map[string]struct {
		meters  meters
		rule    paths.Live
		devices map[string]device
		want    uint64
	}{
		"nobody else counts":             {before, quota(500), seen(1300), 300},
		"prefer has counted a part":      {before, quota(600), seen(1300), 200},
		"the user has set more":          {before, quota(9000), seen(1300), 0},
		"the user has set less":          {before, quota(0), seen(1300), 0},
		"the interface has come again":   {before, quota(500), seen(40), 40},
		"the interface has gone":         {before, quota(500), nil, 0},
		"the first look":                 {meters{}, quota(500), seen(1300), 0},
		"a new rule":                     {meters{crossed: before.crossed}, quota(0), seen(1300), 300},
		"a new rule with a count":        {meters{crossed: before.crossed}, quota(7000), seen(1300), 0},
		"no quota":                       {before, rule(t, "lte0", nil), seen(1300), 0},
		"a rule that names no interface": {before, rule(t, "local-id=1", func(l *paths.Live) { l.Quota.Bytes = 1e9 }), seen(1300), 0},
	} {
		if got := test.meters.uncounted(test.rule, test.devices); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
	}
}
