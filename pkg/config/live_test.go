// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/paths"
	"github.com/mpcc/mpcc/test/hosts"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/said"
)

// newHost is a host with an interface wlan0, 10.0.1.1/24, until the test ends, which must leave nothing that was applied.
func newHost(t *testing.T) *lab.Host {
	t.Helper()
	loaded.Turn(t)
	for _, path := range []string{stateFile, pendingFile} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: %v; something is applied here", path, err)
		}
	}
	l, all := hosts.New(t, "phone", "server")
	if _, err := l.Link(all[0], all[1], lab.LinkOpts{Name: "wlan0"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		apply(t, "")
		if err := forget(); err != nil {
			t.Error(err)
		}
		left, err := filepath.Glob(runDir + "/*applied*")
		if err != nil || len(left) > 0 {
			t.Errorf("left are %q, %v", left, err)
		}
	})
	return all[0]
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// apply applies a text, and returns the changes.
func apply(t *testing.T, text string) (changes []string) {
	t.Helper()
	_, err := parse(t, text).Apply(context.Background(), Options{Done: func(c Change) { changes = append(changes, c.String()) }})
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// settled wants no difference from a text.
func settled(t *testing.T, text string) {
	t.Helper()
	p, err := parse(t, text).Plan(t.Context())
	if err != nil || len(p.Changes) > 0 {
		t.Errorf("to change are %v, %v", p, err)
	}
}

// shown is what runs, of the host's namespace alone: other tests have theirs.
func shown(t *testing.T, h *lab.Host) string {
	t.Helper()
	c, err := Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	others := func(name string) bool { return name != h.Namespace() }
	c.Defaults = slices.DeleteFunc(c.Defaults, func(d Default) bool { return others(d.Netns) })
	c.Energy = slices.DeleteFunc(c.Energy, func(e Energy) bool { return others(e.Netns) })
	c.Paths = slices.DeleteFunc(c.Paths, func(r paths.Rule) bool { return others(r.Netns) })
	c.Uses = slices.DeleteFunc(c.Uses, func(u Use) bool { return others(u.Netns) })
	c.MPTCP = slices.DeleteFunc(c.MPTCP, func(m MPTCP) bool { return others(m.Netns) })
	c.SourceRoutes = slices.DeleteFunc(c.SourceRoutes, func(r SourceRoute) bool { return others(r.Netns) })
	return string(c.YAML())
}

func whole(netns string) string {
	return strings.ReplaceAll(`
algorithms: [{name: dts, set: {min_cwnd: 1}}, {name: lia}]
defaults: [{cc: dts, netns: phone}]
energy: [{interface: wlan0, netns: phone, profile: wifi-2012}]
paths: [{path: wlan0, netns: phone, rank: 2, quota: 20G/month}, {path: "remote=10.0.0.0/8", netns: phone, cap: 5mbit}]
uses: [{what: lia, to: 10.0.0.0/8, dev: wlan0, netns: phone}]
mptcp:
  - netns: phone
    limits: {subflows: 4, add_addr_accepted: 3}
    endpoints: [{address: 10.0.1.1, dev: wlan0, flags: [subflow, backup]}, {address: 10.0.9.9, id: 9, flags: [signal]}]
source_routes:
  - {from: 10.0.1.1, table: 101, netns: phone, routes: [{dev: wlan0, via: 10.0.1.2}, {dev: wlan0, to: 10.0.1.0/24}]}
`, "phone", netns)
}

func other(netns string) string {
	return strings.ReplaceAll(`
algorithms: [{name: lia}, {name: olia}]
defaults: [{cc: olia, netns: phone}]
energy: [{interface: wlan0, netns: phone, profile: lte-2012}]
paths: [{path: wlan0, netns: phone, rank: 3}]
uses: [{what: olia, to: 10.0.0.0/8, dev: wlan0, netns: phone}, {what: lia, to: 10.0.0.0/8, netns: phone}]
mptcp:
  - netns: phone
    endpoints: [{address: 10.0.1.1, id: 9, flags: [subflow]}, {address: 10.0.9.9, flags: [signal]}]
source_routes:
  - {from: 10.0.1.1, table: 102, priority: 99, netns: phone, routes: [{dev: wlan0}]}
`, "phone", netns)
}

func TestApply(t *testing.T) {
	h := newHost(t)
	foreign := mptcp.Endpoint{ID: 200, Addr: netip.MustParseAddr("10.0.7.7"), Flags: mptcp.EndpointSignal}
	if err := h.Do(func() error { return mptcp.AddEndpoint(foreign) }); err != nil {
		t.Fatal(err)
	}
	text := whole(h.Namespace())
	before := shown(t, h)
	plan, err := parse(t, text).Plan(t.Context())
	if err != nil || len(plan.Changes) != 13 {
		t.Errorf("%d changes are planned, %v: %v", len(plan.Changes), err, plan.Changes)
	}
	same := func(when string) {
		t.Helper()
		if diff := cmp.Diff(before, shown(t, h)); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	same("planned")

	var planned []string
	for _, c := range plan.Changes {
		planned = append(planned, c.String())
	}
	if diff := cmp.Diff(planned, apply(t, text)); diff != "" {
		t.Errorf("planned and done: %s", diff)
	}
	if again := apply(t, text); len(again) > 0 {
		t.Errorf("a second time: %v", again)
	}
	settled(t, shown(t, h))

	// The endpoint of somebody else stays while the others go.
	text = other(h.Namespace())
	apply(t, text)
	settled(t, text)
	if err := h.Do(func() error {
		all, err := mptcp.Endpoints()
		if len(all) != 3 || !slices.Contains(all, foreign) {
			t.Errorf("endpoints %+v", all)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	apply(t, "")
	same("nothing is declared any more")
	if _, err := os.Stat(stateFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a note is left: %v", err)
	}
}

// What somebody else has set, and is declared with another value, is his again afterwards.
func TestTakenOver(t *testing.T) {
	h := newHost(t)
	theirs := mptcp.Endpoint{ID: 5, Addr: netip.MustParseAddr("10.0.1.1"), Flags: mptcp.EndpointSignal}
	if err := h.Do(func() error { return mptcp.AddEndpoint(theirs) }); err != nil {
		t.Fatal(err)
	}
	before := shown(t, h)
	apply(t, whole(h.Namespace()))
	apply(t, other(h.Namespace()))
	apply(t, "")
	if diff := cmp.Diff(before, shown(t, h)); diff != "" {
		t.Error(diff)
	}
}

// Apply goes on from wherever an earlier one has stopped, and in the end nothing is left.
func TestStopped(t *testing.T) {
	h := newHost(t)
	texts := []string{whole(h.Namespace()), other(h.Namespace())}
	before := shown(t, h)
	for n, most := 1, 2; n < most; n++ {
		ctx, stop := context.WithCancelCause(t.Context())
		done := 0
		p, err := parse(t, texts[n%2]).Apply(ctx, Options{Done: func(Change) {
			if done++; done == n {
				stop(errors.New("stopped"))
			}
		}})
		most = len(p.Changes)
		if n < most {
			said.InALine(t, err, "stopped")
		}
		text := texts[(n+n/2)%2] // what was stopped, or the other one
		apply(t, text)
		settled(t, text)
	}
	apply(t, "")
	if diff := cmp.Diff(before, shown(t, h)); diff != "" {
		t.Error(diff)
	}
}

// The first error stops it and tells how far it has come.
func TestApplyFails(t *testing.T) {
	h := newHost(t)
	text := fmt.Sprintf(`
algorithms: [{name: lia}]
source_routes: [{from: 10.0.1.1, table: 101, netns: %[1]s, routes: [{dev: wlan9}]}]
mptcp: [{netns: %[1]s, limits: {subflows: 4, add_addr_accepted: 0}}]`, h.Namespace())
	_, err := parse(t, text).Apply(t.Context(), Options{})
	said.InALine(t, err, "route default table 101: make the default route dev wlan9 table 101: there is no interface wlan9")
	said.InALine(t, err, "(1 change of 4 was made before)")

	_, err = parse(t, whole("nowhere")).Apply(t.Context(), Options{})
	said.InALine(t, err, `there is no network namespace "nowhere"; ip netns list shows them`)
	_, err = parse(t, "max_subflows: 32\nalgorithms: [{name: lia}]").Plan(t.Context())
	said.InALine(t, err, "max_subflows is 32, and the maps that are there have room for")

	// To be confirmed, it is undone at once.
	apply(t, "")
	_, err = parse(t, text).Apply(t.Context(), Options{Confirm: time.Hour, Guard: func() error { return nil }})
	said.InALine(t, err, "there is no interface wlan9")
	said.InALine(t, err, "; that is undone")
	settled(t, "mptcp: [{netns: "+h.Namespace()+", limits: {subflows: 2, add_addr_accepted: 0}}]")
	if now, err := Current(t.Context()); err != nil || len(now.Algorithms) > 0 {
		t.Errorf("loaded are %v, %v", now.Algorithms, err)
	}
}

// guarded is Options that have the guard run in this process.
func guarded(t *testing.T, confirm time.Duration) (Options, chan error) {
	t.Helper()
	ended := make(chan error, 1)
	return Options{Confirm: confirm, Guard: func() error {
		ready := make(chan struct{})
		go func() { ended <- Guard(context.Background(), func() { close(ready) }) }()
		<-ready
		return nil
	}}, ended
}

func TestConfirm(t *testing.T) {
	h := newHost(t)
	first, second := whole(h.Namespace()), other(h.Namespace())
	apply(t, first)

	var later atomic.Int64 // than it is
	clock := sinceBoot
	t.Cleanup(func() { sinceBoot = clock })
	sinceBoot = func() (time.Duration, error) {
		now, err := clock()
		return now + time.Duration(later.Load()), err
	}

	// Not confirmed: what was before is there again, and the file is refused.
	o, ended := guarded(t, time.Hour)
	if _, err := parse(t, second).Apply(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	_, err := parse(t, first).Apply(t.Context(), Options{})
	said.InALine(t, err, "wait to be confirmed: say mpcc confirm")
	later.Store(int64(time.Hour))
	if err := <-ended; err != nil {
		t.Error(err)
	}
	settled(t, first)
	said.InALine(t, Confirm(t.Context()), "too late: the changes of ")
	if _, err := parse(t, second).Apply(t.Context(), Options{}); !errors.Is(err, ErrNotConfirmed) {
		t.Errorf("it is not refused: %v", err)
	}
	if again := apply(t, first); len(again) > 0 {
		t.Errorf("undone was not all: %v", again)
	}

	// Confirmed.
	o, ended = guarded(t, time.Hour)
	if _, err := parse(t, second).Apply(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	settled(t, second)
	said.InALine(t, Confirm(t.Context()), "no changes wait to be confirmed")
	apply(t, first)
}

// Whoever comes next undoes it where the guard is gone.
func TestRecover(t *testing.T) {
	h := newHost(t)
	first, second := whole(h.Namespace()), other(h.Namespace())
	apply(t, first)
	noGuard := Options{Confirm: time.Hour, Guard: func() error { return nil }}
	if _, err := parse(t, second).Apply(t.Context(), noGuard); err != nil {
		t.Fatal(err)
	}
	// For this process the hour is over, but for no mpcc that another test runs: it would be the next to come.
	clock := sinceBoot
	t.Cleanup(func() { sinceBoot = clock })
	sinceBoot = func() (time.Duration, error) {
		now, err := clock()
		return now + time.Hour, err
	}
	if undone, err := Recover(t.Context()); err != nil || undone == "" {
		t.Errorf("undone is %q, %v", undone, err)
	}
	settled(t, first)
	if undone, err := Recover(t.Context()); err != nil || undone != "" {
		t.Errorf("undone is %q, %v, a second time", undone, err)
	}

	// A restart of the machine takes away all that is set, and the note of it; and the file is still refused.
	sinceBoot = clock
	if _, err := parse(t, second).Apply(t.Context(), noGuard); err != nil {
		t.Fatal(err)
	}
	held, err := readPending()
	if err != nil {
		t.Fatal(err)
	}
	if err := forget(); err != nil {
		t.Fatal(err)
	}
	apply(t, "")
	held.Boot = "another"
	if err := writeJSON(pendingFile, held); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Recover(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := parse(t, second).Apply(t.Context(), Options{}); !errors.Is(err, ErrNotConfirmed) {
			t.Errorf("it is not refused: %v", err)
		}
		settled(t, first)
	}
	// Another file is taken, and nothing is remembered any more.
	apply(t, "# "+second)
	apply(t, second)
	settled(t, second)
}
