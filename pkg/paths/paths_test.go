// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/test/said"
)

// What a user types is what is shown of it, also after it was in the kernel's map.
func TestWordsComeBack(t *testing.T) {
	for text, want := range map[string]string{
		"lte0": "lte0", "enx001122334455": "enx001122334455",
		"local=192.0.2.1": "local=192.0.2.1", "local=192.0.2.1/24": "local=192.0.2.0/24", "remote=0.0.0.0/0": "remote=0.0.0.0/0",
		"remote=2001:db8::1": "remote=2001:db8::1", "remote=2001:db8::/33": "remote=2001:db8::/33", "remote=::ffff:192.0.2.1": "remote=192.0.2.1",
		"remote=::ffff:192.0.2.1/120": "remote=192.0.2.0/24", "remote=::ffff:0.0.0.0/90": "remote=::ffc0:0:0/90",
		"local-id=0": "local-id=0", "remote-id=255": "remote-id=255",
	} {
		p, err := ParsePath(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var raw obj.MapsMpccPathRule
		p.toMap(&raw)
		if got := pathOf(raw); p.String() != want || got != p {
			t.Errorf("%s is %s, and %s from the map", text, p, got)
		}
	}
	for _, text := range []string{"mark=7", "port=443", "cgroup=system.slice/x.service"} {
		if o, err := ParseOnly(text); err != nil || o.String() != text {
			t.Errorf("%s is %s, %v", text, o, err)
		}
	}
	for text, want := range map[string]string{"never": "never", "0s": "0s", "100ms": "100ms", "1.5s": "1.5s"} {
		s, err := ParseSpill(text)
		if err != nil || s.String() != want || spillOf(s.us()) != s {
			t.Errorf("%s is %s, %s from the map, %v", text, s, spillOf(s.us()), err)
		}
	}
	for text, want := range map[string]string{"none": "none", "800kbit": "800kbit", "5Mbit": "5mbit", "1500kbit": "1.5mbit", "1gbit": "1gbit"} {
		if r, err := ParseRate(text); err != nil || r.String() != want {
			t.Errorf("%s is %s, %v", text, r, err)
		}
	}
	for text, want := range map[string]string{
		"none": "none", "20G/month": "20G/month", "1.5M": "1500K", "123456": "123456", "2000T": "2000T",
	} {
		if q, err := ParseQuota(text); err != nil || q.String() != want {
			t.Errorf("%s is %s, %v", text, q, err)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1234: "1.234K", 20e9: "20G", 12_345_678: "12.35M"} {
		if got := FormatBytes(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestWrongWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "is not the name of an interface",
		"a/b":                "is not the name of an interface",
		"sixteen-letters0":   "is not the name of an interface",
		"local=":             "give an address such as",
		"local=192.0.2.1/33": "give an address such as",
		"remote-id=256":      "give an address id, 0 to 255",
		"interface=lte0":     "name a path by its interface",
	} {
		_, err := ParsePath(text)
		said.InALine(t, err, want)
	}
	for text, want := range map[string]string{
		"mark=0": "give a mark", "mark=4294967296": "give a mark", "port=0": "give a port", "port=65536": "give a port",
		"cgroup=/": "give a cgroup", "uid=0": "give mark=N, port=N or cgroup=PATH",
	} {
		_, err := ParseOnly(text)
		said.InALine(t, err, want)
	}
	for _, text := range []string{"", "100", "-1s", "2h"} {
		_, err := ParseSpill(text)
		said.InALine(t, err, "give never")
	}
	for _, text := range []string{"", "5", "7kbit", "-1mbit", "1e9gbit", "NaNmbit"} {
		_, err := ParseRate(text)
		said.InALine(t, err, "give a rate")
	}
	for _, text := range []string{"", "0", "-1G", "20G/day", "2e9G", "NaN"} {
		_, err := ParseQuota(text)
		said.InALine(t, err, "give bytes above 0")
	}
}

// Whatever the clock does, a month's count is not lost, and does not go on for ever.
func TestClockJumps(t *testing.T) {
	day := func(text string) time.Time {
		d, err := time.ParseInLocation(time.DateOnly, text, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	q := Quota{Bytes: 20e9, Monthly: true}
	for _, c := range []struct {
		what, since, now string
		bytes            uint64
		begun            string
	}{
		{"within a month", "2026-11-05", "2026-11-23", 7, "2026-11-05"},
		{"the next month", "2026-11-05", "2026-12-01", 0, "2026-12-01"},
		{"set back by days", "2026-11-05", "2026-10-29", 7, "2026-11-05"},
		{"not set yet", "2026-11-05", "1970-01-02", 7, "2026-11-05"},
		{"set back by years", "2031-03-01", "2026-11-23", 7, "2026-11-23"},
		{"set ahead by years", "2026-11-05", "2031-03-02", 0, "2031-03-01"},
	} {
		bytes, begun := q.at(day(c.now), 7, day(c.since))
		if bytes != c.bytes || !begun.Equal(day(c.begun)) {
			t.Errorf("%s: %d bytes since %v, want %d since %s", c.what, bytes, begun, c.bytes, c.begun)
		}
	}
	if bytes, begun := (Quota{Bytes: 1}).at(day("2026-11-23"), 7, day("2031-03-01")); bytes != 7 || !begun.Equal(day("2031-03-01")) {
		t.Errorf("not monthly: %d bytes since %v", bytes, begun)
	}
}

// A month begins at midnight, local time.
func TestMonths(t *testing.T) {
	q := Quota{Bytes: 1, Monthly: true}
	for now, want := range map[string]string{
		"2026-11-22 23:28:00": "2026-11-01 00:00:00", "2026-12-01 00:00:00": "2026-12-01 00:00:00",
		"2026-11-30 23:59:59": "2026-11-01 00:00:00", "2024-02-29 12:00:00": "2024-02-01 00:00:00",
	} {
		at, err := time.ParseInLocation(time.DateTime, now, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.begin(at).Format(time.DateTime); got != want {
			t.Errorf("on %s the month began on %s, want %s", now, got, want)
		}
	}
	if !(Quota{Bytes: 1}).begin(time.Now()).IsZero() {
		t.Error("a quota that is not monthly begins anew")
	}
}

func TestFile(t *testing.T) {
	rules, err := Parse([]byte(`
paths:
  - {path: dsl0}
  - {path: lte0, rank: 2, spill: 100ms, quota: 20G/month, cap: 5mbit}
  - {path: lte0, only: port=443, excluded: true, netns: home}
  - {path: remote=192.0.2.0/24, rank: 1, weight: 3, spill: never}
`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"{dsl0 1 0 never none none false}", "{lte0 2 0 100ms 5mbit 20G/month false}",
		"{lte0 --only port=443 --netns home 1 0 never none none true}", "{remote=192.0.2.0/24 1 3 never none none false}",
	} {
		r := rules[i]
		got := strings.Join([]string{"{" + r.Key.String()}, "")
		for _, part := range []any{r.Rank, r.Weight, r.Spill, r.Cap, r.Quota, r.Excluded} {
			text, err := yaml.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			got += " " + strings.TrimSpace(string(text))
		}
		if got += "}"; got != want {
			t.Errorf("rule %d is %s, want %s", i+1, got, want)
		}
	}
	text, err := yaml.Marshal(map[string]any{"paths": rules})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil || len(again) != len(rules) {
		t.Fatalf("%v: %s", err, text)
	}
	for i := range rules {
		if again[i] != rules[i] {
			t.Errorf("%+v comes back as %+v from %s", rules[i], again[i], text)
		}
	}
	for text, want := range map[string]string{
		"paths: [{rank: 2}]":                        "path 1, line 1: no path: say path",
		"paths: [{path: a, rank: 0}]":               "rank 0: give 1 to 65535",
		"paths: [{path: a, weight: 1001}]":          "weight 1001: give 1 to 1000",
		"paths: [{path: a, wight: 2}]":              "field wight not found",
		"paths:\n- {path: a}\n- {path: a, rank: 2}": "path 2, line 3: there are two rules for a",
		"paths: [{path: a, quota: lots}]":           `"lots": give bytes above 0`,
		"path: []":                                  "field path not found",
		"paths: [{path: a, spill: 5}]":              `"5": give never`,
	} {
		_, err := Parse([]byte(text))
		said.InALine(t, err, want)
	}
}

func TestDamagedCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "paths.json")
	if kept, err := readCounts(path); kept != nil || err != nil {
		t.Errorf("without a file: %v, %v", kept, err)
	}
	if err := os.WriteFile(path, []byte("[{"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := readCounts(path)
	said.InALine(t, err, "is damaged")
}
