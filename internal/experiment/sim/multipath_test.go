// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/sim/control"
)

const twoPaths = `
phases: {measure: 10 s}
hosts:
  - {name: phone, mptcp: {subflows: 4, add_addr_accepted: 4, endpoints: [{link: wlan}, {link: lte, flags: [subflowBACKUP]}]}}
  - {name: server, mptcp: {subflows: 4, endpoints: [{link: eth0, addresses: 2, flags: [signal]}]}}
routers: [r]
links:
  - {name: wlan, between: [r, phone], rate: 10 Mbit/s, delay: 10 ms}
  - {name: lte, between: [r, phone], rate: 5 Mbit/s, delay: 30 ms}
  - {name: eth0, between: [r, server]}
users:
  - {name: phone, from: phone, to: server, via: wlan, direction: DIRECTION, cc: reno, traffic: bulk}
`

// interfaces returns how many bytes were acknowledged by each interface's subflows.
func interfaces(u *User) map[string]uint64 {
	bytes := map[string]uint64{}
	for _, f := range u.Subflows() {
		bytes[f.Interface] += f.Tally().Acked
	}
	return bytes
}

// Subflows are opened from each endpoint, and to each announced address, in both directions of data. A backup carries
// nothing as long as others can.
func TestSubflows(t *testing.T) {
	for _, direction := range []string{"up", "down"} {
		for _, backup := range []string{"", ", backup"} {
			text := strings.ReplaceAll(strings.ReplaceAll(twoPaths, "BACKUP", backup), "DIRECTION", direction)
			s := start(t, text, 1)
			until(t, s, 10*time.Second)
			u := s.Users[0]
			// Two from the own addresses, and one to the second address of the server.
			if n := len(u.Subflows()); n != 3 {
				t.Errorf("%s%s: %d subflows", direction, backup, n)
			}
			bytes := interfaces(u)
			if carries := bytes["lte"] > 0; carries == (backup != "") {
				t.Errorf("%s%s: lte carried %d bytes", direction, backup, bytes["lte"])
			}
			want := 15.
			if backup != "" {
				want = 10
			}
			near(t, direction+backup+": goodput", float64(u.Bytes())*8/1e7, want*1420/1514, 0.08)
		}
	}
}

// What a path took that then loses everything is sent again on the other, which goes on alone.
func TestPathFails(t *testing.T) {
	s := start(t, strings.ReplaceAll(strings.ReplaceAll(twoPaths, "BACKUP", ""), "DIRECTION", "down"), 1)
	until(t, s, 5*time.Second)
	if err := s.Change(scenario.Event{Link: "wlan", Loss: new(scenario.Percent(100))}); err != nil {
		t.Fatal(err)
	}
	u := s.Users[0]
	rate := megabits(t, s, 15*time.Second, 25*time.Second)[0]
	near(t, "goodput on the path that is left", rate, 5*1420./1514, 0.05)
	if u.Again() == 0 {
		t.Error("nothing was sent again on the other path")
	}
	for _, f := range u.Subflows() {
		if f.Interface == "wlan" && !f.socket.Stale {
			t.Error("a subflow without progress is not stale")
		}
	}
}

// A host's sockets wait for its own queue where tbf makes the rate; nothing is dropped there, and little waits.
func TestHostQueue(t *testing.T) {
	const text = `
phases: {measure: 10 s}
hosts: [{name: a}, {name: b}]
links:
  - {name: one, between: [a, b], rate: 10 Mbit/s, queue: {bytes: 100 KB}, back: {delay: 20 ms}}
users:
  - {name: user, from: a, to: b, transport: tcp, cc: reno, traffic: bulk}
`
	s := start(t, text, 1)
	most := 0
	for now := time.Duration(0); now < 10*time.Second; now += 10 * time.Millisecond {
		until(t, s, now)
		most = max(most, s.links[s.Directions[0].queue].waiting)
	}
	if sent, dropped, _ := s.Queue(&s.Directions[0]); dropped > 0 || most > 8 {
		t.Errorf("%d packets passed, %d were dropped, %d have waited at most", sent, dropped, most)
	}
	near(t, "goodput", float64(s.Users[0].Bytes())*8/1e7, 10*1448./1514, 0.03)
}

const crossed = `
tunables: [TUNABLES]
phases: {measure: 10 s}
hosts: [{name: user}, {name: rival}, {name: server}]
routers: [r1, r2, core]
links:
  - {name: one, between: [user, r1]}
  - {name: two, between: [user, r2]}
  - {name: in1, between: [rival, r1]}
  - {name: in2, between: [rival, r2]}
  - {name: way1, between: [r1, core], rate: 20 Mbit/s, delay: 10 ms, queue: {packets: 34}}
  - {name: way2, between: [r2, core], rate: 20 Mbit/s, delay: 10 ms, queue: {packets: QUEUE}}
  - {name: lan, between: [core, server]}
users:
  - {name: lia, from: user, to: server, cc: lia, direction: up, traffic: bulk}
  - {name: shifting, from: user, to: server, cc: SHIFTING, direction: up, traffic: bulk}
  - {name: rival1, from: rival, to: server, via: in1, count: RIVALS, transport: tcp, direction: up, traffic: bulk, start: 3 s}
  - {name: rival2, from: rival, to: server, via: in2, count: 4, transport: tcp, direction: up, traffic: bulk, start: 3 s}
`

// DTS leaves a path whose queue others fill, and a control that counts energy leaves one that costs eight times as much,
// whether the two subflows are coupled or not. A rate goes with the root of the window's growth: the factor 1/8 leaves 0.35
// of what LIA has. Behind the long queue eps is 0.1 and less.
func TestShiftsCoupledAndApart(t *testing.T) {
	const seeds, from, to = 4, 15 * time.Second, 45 * time.Second
	const short, long = "34", "166" // packets: 20 ms and 100 ms
	for _, c := range []struct{ cc, queue, rivals string }{
		{"dts", long, "1"}, {"dtsx", long, "1"}, {"emreno", short, "4"}, {"ecmtcp", short, "4"},
	} {
		for _, tunables := range []string{"paper, couple=always", "paper, couple=shared", "default"} {
			text := strings.NewReplacer("TUNABLES", tunables, "SHIFTING", c.cc, "QUEUE", c.queue, "RIVALS", c.rivals).Replace(crossed)
			var lia, shifting float64
			for seed := range uint64(seeds) {
				s := start(t, text, seed)
				for link, milliwatts := range map[string]uint32{"one": 100, "two": 800} { // for each Mbit/s
					if err := s.SetEnergy("user", link, control.EnergyProfile{UpUwPerMbps: milliwatts * 1000}); err != nil {
						t.Fatal(err)
					}
				}
				rates := megabitsOf(t, s, from, to, func(u *User) uint64 { return interfaces(u)["two"] })
				lia, shifting = lia+rates[0], shifting+rates[1]
			}
			if lia < seeds || shifting > lia*0.6 {
				t.Errorf("%s, %s: on the path to leave %.2f Mbit/s, LIA %.2f", c.cc, tunables, shifting/seeds, lia/seeds)
			}
		}
	}
}
