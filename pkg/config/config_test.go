// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/internal/strictyaml"
)

// What is wrong is told with its place, and how to mend it.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"algorithm: []":                                 "1:1: unknown key algorithm in the file: did you mean algorithms?",
		"algorithms: dts":                               "1:13: algorithms is not a list",
		"algorithms: [{name: dst}]":                     `1:21: no algorithm is called "dst"; did you mean dts?`,
		"algorithms: [{name: cdd}]":                     `1:21: "cdd" is more than one algorithm; say cc/cdd or sched/cdd`,
		"algorithms: [{name: dts}, {name: cc/dts}]":     "1:34: algorithm cc/dts is there twice: leave one",
		"algorithms: [{name: dts, set: {min_cwn: 1}}]":  "1:31: min_cwn: dts has no such tunable; did you mean min_cwnd?",
		"algorithms: [{name: dts, set: {min_cwnd: 9}}]": `1:31: min_cwnd: "9" is not one of 1..2 packets`,
		"algorithms: [{name: dts, set: {paper: ''}}]":   "1:39: set.paper: nothing is given: leave the key out, or fill it in",
		"max_subflows: 3":                               "1:15: max_subflows: 3 is not from 16 to 4194304",
		"max_subflows: 32":                              "1:15: max_subflows is for algorithms, and there are none",
		"small_pieces: true":                            "1:15: small_pieces is for packet schedulers, and algorithms has none",
		"defaults: [{netns: a}]":                        "1:12: a default of nothing: give cc, scheduler or both",
		"defaults: [{cc: dts}]":                         "1:17: dts is not loaded: name it in algorithms too",
		"defaults: [{cc: minrtt}]":                      "1:17: minrtt is a packet scheduler, not a congestion control",
		"uses: [{what: mptp, cgroup: a}]":               `1:15: no algorithm is called "mptp"`,
		"uses: [{what: mptcp}]":                         "1:8: say for whom: cgroup, or to with addresses such as 203.0.113.0/24",
		"uses: [{what: mptcp, to: 10.0.0.0/8}]":         "1:8: mptcp is for a cgroup",
		"uses: [{what: mptcp, cgroup: a, dev: b}]":      "1:8: a cgroup has no dev and no netns: they go with to",
		"uses: [{what: mptcp, cgroup: a}, {what: mptcp, cgroup: /sys/fs/cgroup/a}]":     "1:34: MPTCP sockets in cgroup a is declared twice: leave one",
		"energy: [{interface: a, profile: wifi-2013}]":                                  `1:10: no profile "wifi-2013": did you mean wifi-2012?`,
		"energy: [{interface: a, profile: wlan}]":                                       "1:10: profile wlan has no published uplink_mw_per_mbps: give yours (mW/Mbps)",
		"energy: [{interface: a, base_mw: 1}]":                                          "1:10: name a profile (mpcc energy show lists them), or give all of",
		"energy: [{interface: a, base_mw: -1, profile: wifi-2012}]":                     "1:34: base_mw: -1 is not from 0 to 4294967",
		"paths: [{path: a}, {path: a, rank: 2}]":                                        "1:20: path a is declared twice: leave one",
		"paths: [{path: a, cap: 5}]":                                                    `1:24: cap: "5": give a rate such as 800kbit`,
		"mptcp: [{limits: {subflows: 2}}]":                                              "1:18: limits lacks add_addr_accepted",
		"mptcp: [{endpoints: [{address: wlan0}]}]":                                      `1:32: address: "wlan0" is no address: give one such as 192.0.2.1 or 2001:db8::1`,
		"mptcp: [{endpoints: [{address: 10.0.0.1, flags: [sublow]}]}]":                  `1:50: an entry of flags: "sublow" is not one of signal, subflow, backup, fullmesh`,
		"mptcp: [{endpoints: [{address: 10.0.0.1, port: 80, flags: [subflow]}]}]":       "1:48: a port is for an address that is announced",
		"mptcp: [{endpoints: [{address: 10.0.0.1, port: 65536}]}]":                      "1:48: port: 65536 is above 65535",
		"mptcp: [{}, {endpoints: [{address: 10.0.0.1}, {address: '::ffff:10.0.0.1'}]}]": "1:13: endpoint 10.0.0.1 is declared twice: leave one",
		"source_routes: [{from: 10.0.0.1, table: 254}]":                                 "1:41: table 254 is everybody's: use another",
		"source_routes: [{from: default, table: 7}]":                                    "1:24: from is not everything: give an address or a prefix",
		"source_routes: [{from: 10.0.0.1/8, table: 7}]":                                 "1:24: from: 10.0.0.1/8 has bits beyond its length: write 10.0.0.0/8",
		"source_routes: [{from: 10.0.0.1, table: 7, routes: [{dev: a, via: '::1'}]}]":   "1:67: via and from are not of the same version of IP",
		"source_routes: [{from: 10.0.0.1, table: 7, routes: [{dev: a}, {dev: b}]}]":     "1:17: route default table 7 is declared twice: leave one",
		"exporter: {min_age: 2}":                                                        `1:21: min_age: "2" is no time: give one such as 500ms, 1s or 2m`,
		"exporter: {listen: [':9956'], listen: []}":                                     "1:31: key listen is there twice: leave one",
		"- a":     "1:1: the file is not a mapping of keys",
		"a: b: c": "1:1: no YAML, here or further down: ",
	} {
		_, err := Parse("c.yaml", []byte(text))
		var found strictyaml.Problems
		if !errors.As(err, &found) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !strings.Contains(err.Error(), "c.yaml:"+want) {
			t.Errorf("%s: want %s, got\n%v", text, want, err)
		}
	}
}

// What is written is read again as the same.
func TestYAML(t *testing.T) {
	deployed := func(file string) string {
		text, err := os.ReadFile("../../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	texts := []string{deployed("config.yaml"), deployed("kubernetes/base/config.yaml"), deployed("kubernetes/overlays/example/config.yaml")}
	for _, text := range append(texts, "", "# nothing\n", "exporter: {max_series: 0}", "paths: [{path: local-id=0, excluded: true}]") {
		first, err := Parse("c.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("c.yaml", first.YAML())
		if err != nil {
			t.Fatalf("%s\n%v", first.YAML(), err)
		}
		if diff := cmp.Diff(string(first.YAML()), string(again.YAML())); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(len(first.things()), len(again.things())); diff != "" {
			t.Error(diff)
		}
	}
}

// Whatever is written, the answer is a configuration that can be written and read again, or problems with a place.
func FuzzParse(f *testing.F) {
	f.Add("paths: [{path: lte0, rank: 2, spill: 100ms, quota: 20G/month, cap: 5mbit, only: port=7}]")
	f.Add("source_routes: [{from: 192.0.2.1, table: 9, routes: [{dev: a, via: 192.0.2.2}, {dev: a, to: 192.0.2.0/24}]}]")
	f.Add("mptcp: [{limits: {subflows: 2, add_addr_accepted: 1}, endpoints: [{address: '2001:db8::1', flags: [signal]}]}]")
	f.Add("energy: [{interface: a, profile: wlan, uplink_mw_per_mbps: 1}]\nexporter: {min_age: 2s, listen: [':9956']}")
	f.Add("uses: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("c.yaml", []byte(text))
		if err != nil {
			if found := (strictyaml.Problems)(nil); !errors.As(err, &found) {
				t.Errorf("not a problem of the file: %v", err)
			}
			return
		}
		if _, err := Parse("c.yaml", c.YAML()); err != nil {
			t.Errorf("%s\n%v", c.YAML(), err)
		}
	})
}

// Whatever the note of what mpcc apply has set has become, it is read, and what was read can be kept, or it is an
// error.
func FuzzState(f *testing.F) {
	c, err := Parse("c.yaml", []byte("algorithms: [{name: dts}]\ndefaults: [{cc: dts}]\nenergy: [{interface: a, profile: lte-2012}]\npaths: [{path: a, rank: 2}]\n"))
	if err != nil {
		f.Fatal(err)
	}
	good, err := json.Marshal(state{Owned: c.things(), Text: string(c.YAML())})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, text := range []string{
		`{`, `{"owned":null}`, `{"owned":[{}]}`, `{"owned":[{"kind":"path","value":""}]}`, `{"before":[{"kind":"energy","value":"a: &a [*a]"}]}`,
	} {
		f.Add([]byte(text))
	}
	for _, k := range kinds {
		f.Add(fmt.Appendf(nil, `{"owned":[{"kind":%q,"value":"{}"},{"kind":%[1]q,"value":"[]"}]}`, k.name))
		f.Add(fmt.Appendf(nil, `{"owned":[{"kind":%q,"value":"{}"}]}`, k.name))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s state
		if err := json.Unmarshal(text, &s); err != nil {
			return
		}
		for _, thing := range s.Owned {
			if s.Owned.find(thing) == nil {
				t.Errorf("%v is not found", thing.id())
			}
		}
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
	})
}
