// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// start begins a simulation of a scenario, which ends with the test.
func start(t testing.TB, text string, seed uint64) *Simulation {
	t.Helper()
	file, err := scenario.Parse("test.yaml", []byte("name: test\ntitle: a test\nsource: none\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return begin(t, file.Runs(false)[0], seed)
}

func begin(t testing.TB, run scenario.Run, seed uint64) *Simulation {
	t.Helper()
	run.Seed = seed
	s, err := New(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// until goes on to a time.
func until(t testing.TB, s *Simulation, end time.Duration) {
	t.Helper()
	if err := s.Until(end); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// megabits returns each user's goodput from one time to another.
func megabits(t testing.TB, s *Simulation, from, to time.Duration) []float64 {
	t.Helper()
	return megabitsOf(t, s, from, to, (*User).Bytes)
}

// megabitsOf returns at what rate the bytes grow, from one time to another, that a function counts of each user.
func megabitsOf(t testing.TB, s *Simulation, from, to time.Duration, bytes func(*User) uint64) []float64 {
	t.Helper()
	until(t, s, from)
	var rates []float64
	for _, u := range s.Users {
		rates = append(rates, -float64(bytes(u)))
	}
	until(t, s, to)
	for i, u := range s.Users {
		rates[i] = (rates[i] + float64(bytes(u))) * 8 / 1e6 / (to - from).Seconds()
	}
	return rates
}

// near fails unless a value is within a share of another.
func near(t testing.TB, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got/want-1) > share {
		t.Errorf("%s: %.4g, want %.4g within %.0f %%", what, got, want, 100*share)
	}
}

const bottleneck = `
phases: {measure: 10 s}
hosts: [{name: multi}, {name: single}, {name: server}]
routers: [in, out]
links:
  - {name: a, between: [multi, out]}
  - {name: b, between: [multi, out]}
  - {name: c, between: [single, out]}
  - {name: slow, between: [in, out], rate: 20 Mbit/s, delay: 10 ms, queue: {packets: 50}, back: {delay: 10 ms}}
  - {name: lan, between: [server, in]}
users:
  - {name: multi, from: multi, to: server, direction: down, traffic: bulk, cc: CC, within: 1 s}
  - {name: single, from: single, to: server, direction: down, transport: tcp, traffic: bulk, within: 1 s}
`

// Two subflows that know nothing of each other take two shares of a bottleneck; LIA's take one flow's (RFC 6356).
func TestShares(t *testing.T) {
	for cc, want := range map[string]float64{"reno": 2. / 3, "lia": 1. / 2} {
		margin := map[string]float64{"reno": 0.05, "lia": 0.15}[cc] // LIA yields a little where losses come to all at once
		multi, all := 0.0, 0.0
		const seeds = 12
		for seed := range uint64(seeds) {
			s := start(t, strings.ReplaceAll(bottleneck, "CC", cc), seed)
			rates := megabits(t, s, 10*time.Second, 70*time.Second)
			multi, all = multi+rates[0], all+rates[0]+rates[1]
		}
		near(t, cc+": share of two subflows", multi/all, want, margin)
		// A frame of 1514 bytes carries 1448 of TCP's, or 1420 of MPTCP's.
		near(t, cc+": goodput of all", all/seeds, 20*(multi/all*1420+(1-multi/all)*1448)/1514, 0.01)
	}
}

// Subflows that share a queue have together as much as one TCP connection under the kernel's CUBIC: once they have found
// that the queue is shared, they are one CUBIC. Uncoupled subflows would have a share each. Two subflows behind a short queue
// grow as Reno does, four subflows behind a long queue along CUBIC's course; wVegas has to find out that another connection
// takes more and more of a long queue. Without jitter connections with the same RTT would keep in step.
func TestShareBesideCubic(t *testing.T) {
	two := strings.NewReplacer("10 ms", "20 ms", "out]}", "out], delay: 1 ms, jitter: 1 ms}", "packets: 50", "packets: 66",
		"transport: tcp", "transport: tcp, cc: cubic").Replace(bottleneck)
	four := strings.NewReplacer("20 Mbit/s", "50 Mbit/s", "20 ms", "75 ms", "packets: 66", "packets: 1238",
		"cc: CC", "cc: CC, scheduler: earliest", "  - {name: c,", "  - {name: d, between: [multi, out], delay: 1 ms, jitter: 1 ms}\n"+
			"  - {name: e, between: [multi, out], delay: 1 ms, jitter: 1 ms}\n  - {name: c,").Replace(two)
	for _, c := range []struct {
		cc, text    string
		seeds       uint64
		from, to    time.Duration
		least, most float64
	}{
		{"lia", two, 12, 20 * time.Second, 80 * time.Second, 0.8, 1.1},
		{"mpcubic", two, 12, 20 * time.Second, 80 * time.Second, 0.8, 1.1},
		{"wvegas", strings.ReplaceAll(two, "packets: 66", "packets: 330"), 12, 10 * time.Second, 80 * time.Second, 0.85, 1.1},
		{"lia", four, 6, 100 * time.Second, 300 * time.Second, 0.8, 1.15},
	} {
		multi, single := 0.0, 0.0
		for seed := range c.seeds {
			rates := megabits(t, start(t, strings.ReplaceAll(c.text, "CC", c.cc), seed), c.from, c.to)
			multi, single = multi+rates[0], single+rates[1]
		}
		if share := multi / single; share < c.least || share > c.most {
			t.Errorf("%s: subflows have %.2f of what one TCP connection has, want %g to %g", c.cc, share, c.least, c.most)
		}
	}
}

const lossy = `
phases: {measure: 10 s}
hosts: [{name: user}, {name: server}]
routers: [in]
links:
  - {name: path, between: [in, user], delay: 50 ms, LOSS, back: {delay: 50 ms}}
  - {name: lan, between: [server, in]}
users:
  - {name: user, from: user, to: server, direction: down, transport: tcp, traffic: bulk}
`

// With losses at random Reno's window is √(3/2) / √p (Mathis et al., The Macroscopic Behavior of the TCP Congestion
// Avoidance Algorithm).
func TestSquareRootLaw(t *testing.T) {
	for _, percent := range []float64{0.1, 0.5} {
		sum := 0.0
		const seeds = 8
		for seed := range uint64(seeds) {
			s := start(t, strings.ReplaceAll(lossy, "LOSS", fmt.Sprintf("loss: %g %%", percent)), seed)
			sum += megabits(t, s, 20*time.Second, 220*time.Second)[0]
		}
		window := sum / seeds * 1e6 / 8 / 1448 * 0.1 // packets in an RTT
		near(t, fmt.Sprintf("window at %g %% loss", percent), window, math.Sqrt(1.5/(percent/100)), 0.05)
	}
}

const cut = `
phases: {measure: 10 s}
hosts: [{name: user}, {name: server}]
routers: [in]
links:
  - {name: path, between: [in, user], rate: 10 Mbit/s, delay: 20 ms, back: {delay: 20 ms}}
  - {name: lan, between: [server, in]}
users:
  - {name: user, from: user, to: server, direction: down, transport: tcp, traffic: bulk}
events:
  - {at: 3 s, link: path, loss: 100 %}
`

// Where nothing comes through any more, timeouts double: RFC 6298, 5.5, up to Linux's 120 s.
func TestBackoff(t *testing.T) {
	s := start(t, cut, 1)
	until(t, s, 3*time.Second)
	if err := s.Change(scenario.Event{Link: "path", Loss: new(scenario.Percent(100))}); err != nil {
		t.Fatal(err)
	}
	k := s.sockets[0]
	rto := time.Duration(k.rto * jiffy)
	var at []time.Duration
	for now, seen := s.Now(), k.retransmits; now < 20*time.Minute; now += 4 * time.Millisecond {
		until(t, s, now)
		if k.retransmits != seen {
			seen = k.retransmits
			at = append(at, now)
		}
	}
	if len(at) < 12 {
		t.Fatalf("%d timeouts in 20 minutes", len(at))
	}
	for i := 1; i < len(at); i++ {
		// The kernel's timers are never early, and late by an eighth at most.
		if got, want := at[i]-at[i-1], min(120*time.Second, rto<<i); got < want-4*time.Millisecond || got > want*9/8+8*time.Millisecond {
			t.Errorf("timeout %d comes %v after the last, want %v", i+1, got, want)
		}
	}
	if rto < 200*time.Millisecond || rto > 350*time.Millisecond {
		t.Errorf("an RTT of at most 161 ms gives an RTO of %v", rto)
	}
}

const inTrain = `
phases: {measure: 12 s}
traces:
  - {name: cell, step: 2 s, rates: [8 Mbit/s, 2 Mbit/s, 0 bit/s]}
hosts: [{name: user}, {name: server}]
routers: [in]
links:
  - {name: path, between: [in, user], trace: cell, delay: 10 ms, queue: {bytes: 30 KB}, back: {rate: 3 Mbit/s, delay: 10 ms}}
  - {name: lan, between: [server, in]}
users:
  - {name: down, from: user, to: server, direction: down, transport: udp, traffic: constant, rate: 10 Mbit/s}
  - {name: up, from: user, to: server, transport: udp, traffic: constant, rate: 10 Mbit/s}
`

// A trace makes the rate of its own direction, and begins anew where it ends. Packets that waited in a tunnel leave at
// the rate behind it.
func TestTrace(t *testing.T) {
	file, err := scenario.Parse("test.yaml", []byte("name: test\ntitle: a test\nsource: none\n"+inTrain))
	if err != nil {
		t.Fatal(err)
	}
	run := file.Runs(false)[0]
	s := begin(t, run, 1)
	var down []float64
	events := run.Changes()
	for step := range 6 {
		for len(events) > 0 && events[0].At.Std() <= time.Duration(step)*2*time.Second {
			until(t, s, events[0].At.Std())
			if err := s.Change(events[0]); err != nil {
				t.Fatal(err)
			}
			events = events[1:]
		}
		rates := megabits(t, s, time.Duration(step)*2*time.Second, time.Duration(step+1)*2*time.Second)
		down = append(down, rates[0])
		near(t, "the way back", rates[1], 3*1448.0/1514, 0.05)
	}
	for i, want := range []float64{8, 2, 0, 8, 2, 0} {
		if got := down[i] * 1514 / 1448; math.Abs(got-want) > 0.3 {
			t.Errorf("step %d: %.2f Mbit/s, not %g", i, got, want)
		}
	}
}

const datagrams = `
phases: {measure: 10 s}
hosts: [{name: user}, {name: server}]
routers: [in]
links:
  - {name: lan, between: [user, in]}
  - {name: path, between: [in, server], rate: 1 Mbit/s, delay: 30 ms, queue: {QUEUE}}
users:
  - {name: user, from: user, to: server, transport: udp, traffic: constant, rate: 2 Mbit/s}
`

// A queue of DropTail is as full as it may be, and never fuller, where twice as much comes as can leave.
func TestDropTail(t *testing.T) {
	const size = 14 + 20 + 8 + 1440
	for queue, most := range map[string]int{"packets: 20": 20, "bytes: 20000 B": 20000 / size} {
		s := start(t, strings.ReplaceAll(datagrams, "QUEUE", queue), 1)
		l := &s.links[s.Directions[0].queue]
		seen := 0
		for now := time.Duration(0); now < 10*time.Second; now += time.Millisecond {
			until(t, s, now)
			seen = max(seen, l.waiting)
		}
		if seen != most {
			t.Errorf("%s: %d packets have waited at most, want %d", queue, seen, most)
		}
		sent, dropped, _ := s.Queue(&s.Directions[0])
		near(t, queue+": rate", float64(sent)*size*8/10/1e6, 1, 0.01)
		near(t, queue+": share dropped", float64(dropped)/float64(sent+dropped), 1-1440./2/size, 0.02)
	}
}

// RED's two rises: 0 up to 25 packets, to 0.1 at 50, to 1 at 100. Each of the two REDs drops at random within 1/p packets of its
// last drop.
func TestRED(t *testing.T) {
	shape := scenario.RED{Min: 25, Max: 50, Probability: 0.1, End: 100}
	for _, packets := range []int{20, 30, 40, 49, 60, 80, 100} {
		r := newRED(shape)
		s := &Simulation{seed: uint64(packets)}
		r.random = s.generator(forRED, 0)
		dropped := 0
		const settle, count = 20000, 400000
		for i := range settle + count {
			if passes, _ := r.takes(packets*frame, false); !passes && i >= settle {
				dropped++
			}
		}
		rise := func(from, to, chance float64) float64 {
			p := chance * max(0, float64(packets)-from) / (to - from)
			gap := 0.0
			for n := 0; 1-float64(n)*p > 0; n++ {
				gap += 1 - float64(n)*p // the chance that more than n packets pass first
				if p == 0 {
					return 0
				}
			}
			return 1 / gap
		}
		first, second := rise(25, 100, 0.3), rise(50, 100, 1)
		want := first + (1-first)*second
		got := float64(dropped) / count
		if math.Abs(got-want) > 0.02*want+0.001 {
			t.Errorf("at %d packets %.4f are dropped, want %.4f", packets, got, want)
		}
	}
}

// The same seed gives the same run to the last packet, also on a single processor; another seed another one.
func TestSameSeedSameRun(t *testing.T) {
	text := strings.ReplaceAll(bottleneck, "CC", "lia")
	digest := func(seed uint64) uint64 {
		s := start(t, text, seed)
		until(t, s, 5*time.Second)
		return s.Digest()
	}
	first := digest(1)
	if again := digest(1); again != first {
		t.Errorf("the same seed gives %x, then %x", first, again)
	}
	if other := digest(2); other == first {
		t.Errorf("two seeds give %x", first)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if alone := digest(1); alone != first {
		t.Errorf("on one processor %x, on several %x", alone, first)
	}
}

var update = flag.Bool("update", false, "write testdata/digests anew")

// The digests of testdata were computed by the simulator itself: they say that something has changed, or that another
// kind of machine computes something else, not that it is right.
func TestDigests(t *testing.T) {
	var now strings.Builder
	for _, name := range []string{"scenario-c", "household", "datacenter", "traffic-shift"} {
		file, err := scenario.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, run := range file.Runs(true) {
			if i%2 == 0 && i < 4 {
				s := begin(t, run, 1)
				until(t, s, 2*time.Second)
				fmt.Fprintf(&now, "%s %d %016x\n", name, i, s.Digest())
			}
		}
	}
	const path = "testdata/digests"
	if *update {
		if err := os.WriteFile(path, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != now.String() {
		t.Errorf("digests are\n%snot\n%sif that is meant, say go test -run TestDigests -update", now.String(), was)
	}
}

// ratioToCubic is what a user's goodput with LIA in the place of CC is to that with CUBIC, over so many seeds.
func ratioToCubic(t testing.TB, text string, seeds uint64, user int) float64 {
	t.Helper()
	goodput := map[string]float64{}
	for _, cc := range []string{"cubic", "lia"} {
		for seed := range seeds {
			s := start(t, strings.ReplaceAll(text, "CC", cc), seed)
			goodput[cc] += megabits(t, s, 10*time.Second, 50*time.Second)[user]
		}
	}
	return goodput["lia"] / goodput["cubic"]
}

// A policer drops what exceeds its rate, and has no queue by which its losses could be told from random ones: two subflows under
// LIA leave to one TCP connection what two under the kernel's CUBIC leave to it, about.
func TestBehindAPolicer(t *testing.T) {
	text := strings.NewReplacer("delay: 10 ms, queue: {packets: 50}", "delay: 20 ms, queue: {bytes: 3 KB}", "back: {delay: 10 ms}", "back: {delay: 20 ms}",
		"transport: tcp", "transport: tcp, cc: cubic").Replace(bottleneck)
	if share := ratioToCubic(t, text, 8, 1); share < 0.8 {
		t.Errorf("beside LIA a TCP connection has %.2f of what it has beside two of CUBIC's", share)
	}
}

// Random losses keep CUBIC from filling a path, so that no queue ever shows. LIA finds by trials that the losses are random.
func TestRandomLosses(t *testing.T) {
	const text = `
phases: {measure: 10 s}
hosts: [{name: user}, {name: server}]
routers: [in]
links:
  - {name: path, between: [in, user], rate: 100 Mbit/s, delay: 20 ms, loss: 0.5 %, queue: {packets: 100}, back: {delay: 20 ms}}
  - {name: lan, between: [server, in]}
users:
  - {name: user, from: user, to: server, cc: CC, direction: down, traffic: bulk, within: 1 s}
`
	if gain := ratioToCubic(t, text, 4, 0); gain < 4 {
		t.Errorf("LIA has %.1f times what CUBIC has", gain)
	}
}
