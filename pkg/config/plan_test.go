// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/internal/netns"
)

// thingsIn are those that a text declares, apart from its checks.
func thingsIn(t *testing.T, text string) list {
	t.Helper()
	c, _, err := decode("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c.things()
}

func TestDifference(t *testing.T) {
	const network = `
mptcp: [{netns: phone, limits: {subflows: 2, add_addr_accepted: 0}, endpoints: [{address: 10.0.0.1, id: 1, flags: [subflow]}]}]
source_routes: [{from: 10.0.0.1, table: 7, priority: 99, routes: [{dev: a, via: 10.0.0.2}]}]
`
	for name, c := range map[string]struct {
		there, declared, owned, before string
		want                           string
	}{
		"all is there": {there: network, declared: network},
		"the kernel's choices": {
			there:    network,
			declared: "mptcp: [{netns: phone, endpoints: [{address: 10.0.0.1, flags: [subflow]}]}]\nsource_routes: [{from: 10.0.0.1, table: 7}]",
		},
		"from nothing, in order": {
			declared: `
algorithms: [{name: lia}, {name: dts, set: {min_cwnd: 1}}, {name: prefer}]
small_pieces: true
defaults: [{cc: dts, scheduler: prefer}]
uses: [{what: lia, cgroup: b}, {what: mptcp, cgroup: b}, {what: dts, to: 10.0.0.1, dev: a, netns: phone}]
energy: [{interface: a, profile: wifi-2012}]
paths: [{path: a, rank: 2, only: port=7}]` + network,
			want: `
+ load dts: min_cwnd=1
+ load lia
+ load prefer
+ small pieces
+ default congestion control: dts
+ default packet scheduler: prefer
+ energy of a: 283.17 mW/Mbps up, 137.01 mW/Mbps down, 132.86 mW
+ path a --only port=7: rank 2
+ route default table 7: via 10.0.0.2 dev a
+ source route from 10.0.0.1: table 7, priority 99
+ limits in phone: subflows 2, add_addr_accepted 0
+ endpoint 10.0.0.1 in phone: subflow id 1
+ congestion control in cgroup b: lia
+ MPTCP sockets in cgroup b
+ congestion control of connections to 10.0.0.1/32 dev a in phone: dts`,
		},
		"to nothing, in the opposite order": {
			there: "algorithms: [{name: dts}, {name: lia}]\ndefaults: [{cc: dts}]\nuses: [{what: dts, cgroup: b}]\npaths: [{path: a}]" + network,
			owned: "algorithms: [{name: dts}]\ndefaults: [{cc: dts}]\nuses: [{what: dts, cgroup: b}]\npaths: [{path: a}]" + network,
			want: `
- endpoint 10.0.0.1 in phone
- congestion control in cgroup b
- source route from 10.0.0.1
- route default table 7
- path a
- default congestion control
- load dts`,
		},
		"foreign things stay": {there: network, owned: "paths: [{path: gone}]"},
		"what somebody else had set comes back": {
			there:  "mptcp: [{netns: phone, limits: {subflows: 8, add_addr_accepted: 8}}]",
			owned:  "mptcp: [{netns: phone, limits: {subflows: 8, add_addr_accepted: 8}}]",
			before: "mptcp: [{netns: phone, limits: {subflows: 2, add_addr_accepted: 0}}, {netns: ended, limits: {subflows: 1, add_addr_accepted: 1}}]",
			want:   "\n~ limits in phone: subflows 8, add_addr_accepted 8 -> subflows 2, add_addr_accepted 0",
		},
		"but not while something is declared": {
			there:    "mptcp: [{netns: phone, limits: {subflows: 8, add_addr_accepted: 8}}]",
			declared: "mptcp: [{netns: phone, limits: {subflows: 8, add_addr_accepted: 8}}]",
			owned:    "mptcp: [{netns: phone, limits: {subflows: 8, add_addr_accepted: 8}}]",
			before:   "mptcp: [{netns: phone, limits: {subflows: 2, add_addr_accepted: 0}}]",
		},
		"values": {
			there: "algorithms: [{name: dts, set: {min_cwnd: 1}}]\ndefaults: [{cc: dts}]\nuses: [{what: dts, cgroup: b}]\npaths: [{path: a, weight: 3}]" + network,
			declared: `
algorithms: [{name: dts}, {name: lia}]
defaults: [{cc: lia}]
uses: [{what: lia, cgroup: b}]
paths: [{path: a, cap: 5mbit}]
mptcp: [{netns: phone, endpoints: [{address: 10.0.0.1, id: 2, flags: [subflow]}]}]
source_routes: [{from: 10.0.0.1, table: 8, routes: [{dev: b}]}]`,
			want: `
~ load dts: min_cwnd=1 -> default
+ load lia
~ default congestion control: dts -> lia
~ path a: rank 1, weight 3 -> rank 1, cap 5mbit
+ route default table 8: dev b
~ source route from 10.0.0.1: table 7, priority 99 -> table 8
~ endpoint 10.0.0.1 in phone: subflow id 1 -> subflow id 2
~ congestion control in cgroup b: dts -> lia`,
		},
		"what uses an algorithm goes with it": {
			there: "algorithms: [{name: dts}]\ndefaults: [{cc: dts, netns: phone}]\nuses: [{what: dts, cgroup: b}, {what: mptcp, cgroup: b}]",
			owned: "algorithms: [{name: dts}]",
			want:  "\n- congestion control in cgroup b\n- default congestion control in phone\n- load dts",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{things: thingsIn(t, c.there), netns: map[string]netns.NS{"": {}, "phone": {}}}
			s := state{Owned: thingsIn(t, c.owned), Before: thingsIn(t, c.before)}
			var got strings.Builder
			for _, change := range newPlan(s, difference(thingsIn(t, c.declared), m, s)).Changes {
				got.WriteString("\n" + change.String())
			}
			if diff := cmp.Diff(c.want, got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Endpoints become each other's ids only when both of them have gone.
func TestRemade(t *testing.T) {
	there := thingsIn(t, "mptcp: [{endpoints: [{address: 10.0.0.1, id: 1, flags: [subflow]}, {address: 10.0.0.2, id: 2, flags: [subflow]}, {address: 10.0.0.3, id: 3}]}]")
	declared := thingsIn(t, "mptcp: [{endpoints: [{address: 10.0.0.1, id: 2, flags: [subflow]}, {address: 10.0.0.2, flags: [subflow, backup]}, {address: 10.0.0.3, flags: [backup]}]}]")
	remade := map[string]bool{}
	for _, m := range newPlan(state{}, difference(declared, &machine{things: there}, state{})).moves {
		remade[m.id().key] = m.remade()
	}
	if want := map[string]bool{"10.0.0.1": true, "10.0.0.2": true, "10.0.0.3": false}; !maps.Equal(remade, want) {
		t.Errorf("made anew are %v, want %v", remade, want)
	}
}

// What is noted of things of all kinds is read again.
func TestListIsKept(t *testing.T) {
	text := `
algorithms: [{name: prefer, paper: true, set: {min_cwnd: 1}}]
small_pieces: true
defaults: [{scheduler: prefer}]
uses: [{what: mptcp, cgroup: b}]
energy: [{interface: a, base_mw: 5, profile: wifi-2012}]
paths: [{path: "remote=10.0.0.0/8", rank: 2, only: port=7, spill: 5ms, cap: 5mbit, quota: 20G/month}]
mptcp: [{limits: {subflows: 2, add_addr_accepted: 0}, endpoints: [{address: 10.0.0.1, id: 1, flags: [subflow]}]}]
source_routes: [{from: 10.0.0.1, table: 7, priority: 99, routes: [{dev: a, via: 10.0.0.2}]}]
`
	all := thingsIn(t, text)
	kept, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var again list
	if err := json.Unmarshal(kept, &again); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for i := range all {
		found[all[i].id().kind] = true
		if all[i].id() != again[i].id() || all[i].value() != again[i].value() {
			t.Errorf("%v (%s) has become %v (%s)", all[i].id(), all[i].value(), again[i].id(), again[i].value())
		}
	}
	if len(found) != len(kinds) {
		t.Errorf("only of kinds %v", found)
	}
	if err := json.Unmarshal([]byte(`[{"kind": "spell", "value": "a: b"}]`), &again); err == nil {
		t.Error("a thing of no kind is taken")
	}
}
