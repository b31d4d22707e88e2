// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/sim/control"
)

// Of two paths the first has the lower RTT.
const chosenPaths = `
phases: {measure: 10 s}
hosts:
  - {name: phone, mptcp: {subflows: 1, endpoints: [{link: slow}]}}
  - {name: server, mptcp: {subflows: 1}}
routers: [r]
links:
  - {name: fast, between: [r, phone], rate: 10 Mbit/s, delay: 10 ms}
  - {name: slow, between: [r, phone], rate: 5 Mbit/s, delay: 30 ms}
  - {name: eth0, between: [r, server]}
users:
  - {name: phone, from: phone, to: server, via: fast, cc: reno, scheduler: SCHEDULER, TRAFFIC}
`

func choosing(scheduler, traffic string) string {
	return strings.NewReplacer("SCHEDULER", scheduler, "TRAFFIC", traffic).Replace(chosenPaths)
}

func schedulers() (names []string) {
	for _, e := range catalog.Entries {
		if e.Kind == catalog.Sched {
			names = append(names, e.Name)
		}
	}
	return names
}

// fastIsDear gives the paths prices, for those who ask.
func fastIsDear(t *testing.T, s *Simulation) {
	t.Helper()
	for link, cost := range map[string]uint32{"fast": 100_000_000, "slow": 1000} {
		if err := s.SetEnergy("phone", link, control.EnergyProfile{UpUwPerMbps: cost, BaseUw: cost}); err != nil {
			t.Fatal(err)
		}
	}
}

// What little there is goes where the scheduler's rule has it.
func TestSchedulersChoose(t *testing.T) {
	for name, want := range map[string]float64{ // of the bytes, on the path with the lower RTT
		"minrtt": 1, "blest": 1, "ecf": 1, "prefer": 1, "roundrobin": 0.5, "redundant": 0.55, "emtcp": 0,
		"esmptcp": 1, // of so little all costs less than what the paths' rates are worth
	} {
		s := start(t, choosing(name, "traffic: constant, rate: 2 Mbit/s"), 1)
		fastIsDear(t, s)
		u := s.Users[0]
		until(t, s, time.Second)
		before := interfaces(u)
		rate := megabits(t, s, time.Second, 11*time.Second)[0]
		near(t, name+": goodput", rate, 2, 0.02)
		after := interfaces(u)
		fast, slow := float64(after["fast"]-before["fast"]), float64(after["slow"]-before["slow"])
		if share := fast / (fast + slow); share < want-0.05 || share > want+0.05 {
			t.Errorf("%s: %.3f of the bytes are on the fast path, want %.2f", name, share, want)
		}
		copies := float64(u.Again()) / float64(u.Bytes())
		// What is acknowledged when the timer of the copies goes off is not copied.
		if name == "redundant" && copies < 0.7 || name != "redundant" && copies > 0.01 {
			t.Errorf("%s: %.3f of the bytes were sent on both paths", name, copies)
		}
	}
}

// A path that costs more than its rate is worth stays out of ES-MPTCP's set.
func TestSetOfSubflows(t *testing.T) {
	s := start(t, choosing("esmptcp", "traffic: bulk"), 1)
	fastIsDear(t, s)
	until(t, s, 20*time.Second)
	if bytes := interfaces(s.Users[0]); bytes["fast"] > bytes["slow"]/10 {
		t.Errorf("%d bytes are on the dear path, %d on the other", bytes["fast"], bytes["slow"])
	}
}

// With much to send all paths are full; what a path held that fails goes out on the other, and the path is used again when
// it is back.
func TestSchedulersFill(t *testing.T) {
	for _, name := range schedulers() {
		s := start(t, choosing(name, "traffic: bulk"), 1)
		u := s.Users[0]
		full, left, within := 15., 5., 0.06
		if name == "redundant" {
			full, within = 10, 0.1 // the leader's rate, which is now this path, now that
		}
		rate := megabits(t, s, 5*time.Second, 15*time.Second)[0]
		near(t, name+": goodput", rate, full*1420/1514, within)
		lossy := func(percent scenario.Percent) {
			t.Helper()
			if err := s.Change(scenario.Event{Link: "fast", Loss: &percent}); err != nil {
				t.Fatal(err)
			}
		}
		lossy(100)
		rate = megabits(t, s, 20*time.Second, 30*time.Second)[0]
		near(t, name+": goodput on the path that is left", rate, left*1420/1514, 0.06)
		if u.Again() == 0 {
			t.Errorf("%s: nothing was sent again on the other path", name)
		}
		lossy(0)
		rate = megabits(t, s, 60*time.Second, 70*time.Second)[0]
		near(t, name+": goodput when the path is back", rate, full*1420/1514, within)
	}
}

// wifiAndLTE is the network of scenario slow-path, of which a phone downloads: fast is the Wi-Fi, slow the LTE.
func wifiAndLTE(scheduler, cc, lte string) string {
	return strings.NewReplacer(
		"cc: reno", "cc: "+cc,
		"10 Mbit/s, delay: 10 ms", "20 Mbit/s, delay: 8 ms, queue: {packets: 60}",
		"5 Mbit/s, delay: 30 ms", "10 Mbit/s, queue: {packets: 100}, "+lte,
	).Replace(choosing(scheduler, "traffic: bulk, direction: down"))
}

// Frames of 1514 bytes with 1420 of content, of those that fill the Wi-Fi and the LTE of wifiAndLTE.
const (
	wifiContent = 20e6 / 8 * 1420 / 1514 // bytes per second
	lteFrames   = 10e6 / 8 / 1514        // per second
)

// setRate changes a link's rate at a time.
func setRate(t *testing.T, s *Simulation, at time.Duration, link scenario.LinkName, rate scenario.Rate) {
	t.Helper()
	until(t, s, at)
	if err := s.Change(scenario.Event{Link: link, Rate: &rate}); err != nil {
		t.Fatal(err)
	}
}

// Who walks out of a WLAN goes on by the other path, although what still waits in the WLAN takes seconds: the send buffer
// holds enough for both. With the kernel's buffer minrtt has 6.5 Mbit/s here.
func TestSchedulersLeaveAPathThatSlowsDown(t *testing.T) {
	for name, least := range map[string]float64{
		"minrtt": 0.7, "blest": 0.7, "ecf": 0.7, "prefer": 0.7, "roundrobin": 0.7, "earliest": 0.9,
	} {
		s := start(t, wifiAndLTE(name, "cubic", "delay: 30 ms"), 1)
		setRate(t, s, 4*time.Second, "fast", 0.5e6)
		rate := megabits(t, s, 5*time.Second, 25*time.Second)[0]
		if all := (10 + 0.5) * 1420 / 1514; rate < least*all {
			t.Errorf("%s: %.2f Mbit/s, where the paths carry %.2f", name, rate, all)
		}
	}
}

// deliveries returns how many packets an interface's subflows have delivered.
func deliveries(u *User, iface string) (packets uint64) {
	for _, f := range u.Subflows() {
		if f.Interface == iface {
			packets += f.Tally().Delivered
		}
	}
	return packets
}

// Out of the WLAN earliest keeps LTE full in each second, although the Wi-Fi takes three seconds with the packets of its
// queue and of the retransmissions behind the queue. In the fourth second the peer's window of 3.6 MB is full, and each packet
// that arrives on the Wi-Fi, every 24 ms, starts the timer anew at whose expiry earliest sends the Wi-Fi's bytes again.
func TestEarliestKeepsLTEFull(t *testing.T) {
	for _, cc := range []string{"cubic", "lia"} {
		for seed := range uint64(5) {
			s := start(t, wifiAndLTE("earliest", cc, "delay: 30 ms"), seed)
			const fall, end = 4 * time.Second, 25 * time.Second
			setRate(t, s, fall, "fast", 0.5e6)
			until(t, s, fall+time.Second)
			first := deliveries(s.Users[0], "slow")
			before := first
			for at := s.Now(); at < end; at += time.Second {
				until(t, s, at+time.Second)
				now := deliveries(s.Users[0], "slow")
				if share := float64(now-before) / lteFrames; share < 0.95 {
					t.Errorf("%s, seed %d: from %v on after the fall LTE carries %.2f of its rate for a second", cc, seed, at-fall, share)
				}
				before = now
			}
			if share := float64(before-first) / lteFrames / (end - fall - time.Second).Seconds(); share < 0.95 {
				t.Errorf("%s, seed %d: LTE carries %.2f of its rate", cc, seed, share)
			}
		}
	}
}

// Out of the WLAN the application does not wait either: LTE sends again what the Wi-Fi has, once the Wi-Fi has shown for 100 ms
// that it has become slow, and the Wi-Fi gets nothing that arrives half a second after what LTE sends at the same time. With the
// kernel's scheduler the stream pauses for 1.1 to 3.5 s.
func TestEarliestKeepsTheStreamGoing(t *testing.T) {
	const step = 5 * time.Millisecond
	for _, cc := range []string{"cubic", "lia"} {
		for _, rate := range []scenario.Rate{0.2e6, 0.5e6} {
			for seed := range uint64(5) {
				s := start(t, wifiAndLTE("earliest", cc, "delay: 30 ms"), seed)
				setRate(t, s, 4*time.Second, "fast", rate)
				arrived, since, pause := s.Users[0].Bytes(), s.Now(), time.Duration(0)
				for s.Now() < 15*time.Second {
					until(t, s, s.Now()+step)
					if now := s.Users[0].Bytes(); now != arrived {
						arrived, since, pause = now, s.Now(), max(pause, s.Now()-since)
					}
				}
				if pause > 700*time.Millisecond {
					t.Errorf("%s, seed %d, the Wi-Fi at %g Mbit/s: the stream pauses for %v", cc, seed, float64(rate)/1e6, pause)
				}
			}
		}
	}
}

// Back in the WLAN earliest fills the Wi-Fi within two seconds, 1.5 of which a full queue takes that came at 0.5 Mbit/s.
func TestEarliestReturnsToTheWiFi(t *testing.T) {
	for _, cc := range []string{"cubic", "lia"} {
		for _, away := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second} {
			for seed := range uint64(3) {
				s := start(t, wifiAndLTE("earliest", cc, "delay: 30 ms"), seed)
				setRate(t, s, 4*time.Second, "fast", 0.5e6)
				back := 4*time.Second + away
				setRate(t, s, back, "fast", 20e6)
				until(t, s, back+1500*time.Millisecond)
				before := interfaces(s.Users[0])["fast"]
				until(t, s, back+2*time.Second)
				if share := float64(interfaces(s.Users[0])["fast"]-before) / (wifiContent / 2); share < 0.95 {
					t.Errorf("%s, seed %d, away for %v: 1.5 to 2 s after the return the Wi-Fi carries %.2f of its rate",
						cc, seed, away, share)
				}
			}
		}
	}
}

// Beside an LTE that loses packets, jitters or dies the Wi-Fi carries as much as the Wi-Fi carries alone.
func TestEarliestIsNotSlowedByASiblingsTrouble(t *testing.T) {
	const from, window, windows = 3 * time.Second, 5 * time.Second, 4
	carried := func(text string, seed uint64, dies bool) (bytes [windows]float64) {
		s := start(t, text, seed)
		until(t, s, from)
		if dies {
			if err := s.Change(scenario.Event{Link: "slow", Loss: new(scenario.Percent(100))}); err != nil {
				t.Fatal(err)
			}
		}
		before := interfaces(s.Users[0])["fast"]
		for i := range bytes {
			until(t, s, s.Now()+window)
			now := interfaces(s.Users[0])["fast"]
			bytes[i] = float64(now - before)
			before = now
		}
		return bytes
	}
	for _, cc := range []string{"cubic", "lia"} {
		for seed := range uint64(4) {
			healthy := wifiAndLTE("earliest", cc, "delay: 30 ms")
			alone := carried(strings.ReplaceAll(healthy, ", endpoints: [{link: slow}]", ""), seed, false)
			near(t, "the Wi-Fi alone", alone[0], wifiContent*window.Seconds(), 0.01)
			for trouble, text := range map[string]string{
				"loses 5 %":        wifiAndLTE("earliest", cc, "delay: 30 ms, loss: 5 %"),
				"jitters by 25 ms": wifiAndLTE("earliest", cc, "delay: 30 ms, jitter: 25 ms"),
				"dies":             healthy,
			} {
				for i, bytes := range carried(text, seed, trouble == "dies") {
					if share := bytes / alone[i]; share < 0.95 {
						t.Errorf("%s, seed %d, LTE %s: from %v on the Wi-Fi carries %.3f of what it carries alone, for %v",
							cc, seed, trouble, from+time.Duration(i)*window, share, window)
					}
				}
			}
		}
	}
}

// ECF waits while the fast path sends within 5/4 RTTs of the slow one, 705 ms, all that the send buffer holds, of which an
// application gets twice what it asks for: 600 KB take 640 ms at 7.5 Mbit/s. The buffer that mpcc asks for takes longer.
func TestECFLeavesALongPathUnused(t *testing.T) {
	for cc, uses := range map[string]bool{
		"cubic, send_buffer: 300 KB": false, "cubic": true, "lia, send_buffer: 300 KB": false, "lia": true,
	} {
		s := start(t, strings.NewReplacer(
			"cc: reno", "cc: "+cc,
			"10 Mbit/s, delay: 10 ms", "8 Mbit/s, delay: 22 ms, queue: {packets: 60}",
			"5 Mbit/s, delay: 30 ms", "15 Mbit/s, delay: 282 ms, queue: {packets: 400}",
		).Replace(choosing("ecf", "traffic: bulk, direction: down")), 1)
		rate, want := megabits(t, s, 10*time.Second, 30*time.Second)[0], 8.
		if uses {
			want += 15
		}
		near(t, cc+": goodput", rate, want*1420/1514, 0.03)
		if carries := interfaces(s.Users[0])["slow"] > 0; carries != uses {
			t.Errorf("%s: whether the slow path carries anything is %v", cc, carries)
		}
	}
}

// Files end, and their connections with them, whatever is lost.
func TestSchedulersOfFiles(t *testing.T) {
	for _, name := range schedulers() {
		text := choosing(name, "traffic: http, direction: down, size: 200 KB, files: 30")
		text = strings.ReplaceAll(text, "delay: 10 ms}", "delay: 10 ms, loss: 3 %}")
		s := start(t, text, 1)
		until(t, s, 2*time.Minute)
		u := s.Users[0]
		if !u.Done() || u.Bytes() != 30*200_000 {
			t.Errorf("%s: %d files, %d bytes", name, len(u.Transfers()), u.Bytes())
		}
	}
}

// The same choices are made each time.
func TestSchedulersSameRun(t *testing.T) {
	for _, name := range []string{"redundant", "esmptcp"} {
		digests := map[string]bool{}
		for range 2 {
			s := start(t, choosing(name, "traffic: bulk"), 3)
			until(t, s, 5*time.Second)
			digests[fmt.Sprint(s.Digest())] = true
		}
		if len(digests) != 1 {
			t.Errorf("%s: the same seed gives two runs", name)
		}
	}
}

// Up to eight lines, of 5 to 30 Mbit/s and 8 to 90 ms, of which LTE has a queue of 0.4 s: earliest has as much of them as the
// kernel's scheduler, and the peer's window holds all that is under way.
func TestEarliestUsesManyLines(t *testing.T) {
	lines := []string{
		"rate: 20 Mbit/s, delay: 4 ms, queue: {packets: 40}",
		"rate: 6 Mbit/s, delay: 45 ms, jitter: 8 ms, queue: {packets: 200}",
		"rate: 10 Mbit/s, delay: 30 ms, jitter: 3 ms, queue: {packets: 150}",
		"rate: 9 Mbit/s, delay: 12 ms, queue: {packets: 50}",
		"rate: 16 Mbit/s, delay: 10 ms, queue: {packets: 60}",
		"rate: 30 Mbit/s, delay: 20 ms, queue: {packets: 150}",
		"rate: 5 Mbit/s, delay: 20 ms, queue: {packets: 40}",
		"rate: 12 Mbit/s, delay: 40 ms, queue: {packets: 100}",
	}
	carried := func(scheduler, cc string, n int) float64 {
		text := "phases: {measure: 20 s}\nhosts:\n" +
			"  - {name: phone, mptcp: {subflows: 7, endpoints: [ENDPOINTS]}}\n" +
			"  - {name: server, mptcp: {subflows: 7}}\n" +
			"routers: [r]\nlinks:\n  - {name: lan, between: [r, server]}\n"
		var endpoints []string
		for i, line := range lines[:n] {
			text += fmt.Sprintf("  - {name: line%d, between: [r, phone], %s}\n", i, line)
			if i > 0 {
				endpoints = append(endpoints, fmt.Sprintf("{link: line%d}", i))
			}
		}
		text = strings.Replace(text, "ENDPOINTS", strings.Join(endpoints, ", "), 1) + fmt.Sprintf(
			"users: [{name: phone, from: phone, to: server, via: line0, cc: %s, scheduler: %s, direction: down, traffic: bulk}]\n",
			cc, scheduler)
		sum := 0.
		for seed := range uint64(2) {
			sum += megabits(t, start(t, text, seed), 3*time.Second, 20*time.Second)[0]
		}
		return sum
	}
	for _, cc := range []string{"cubic", "lia"} {
		for n := 2; n <= len(lines); n += 2 {
			if share := carried("earliest", cc, n) / carried("default", cc, n); share < 0.98 {
				t.Errorf("%s, %d lines: earliest has %.3f of what the kernel's scheduler has", cc, n, share)
			}
		}
	}
}
