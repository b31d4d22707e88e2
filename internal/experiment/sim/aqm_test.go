// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"strings"
	"testing"
	"time"
)

// A queue under a manager, of as many datagrams as come: RATE of them onto a link of 10 Mbit/s.
const managed = `
phases: {measure: 10 s}
hosts: [{name: user}, {name: server}]
routers: [in]
links:
  - {name: lan, between: [user, in]}
  - {name: path, between: [in, server], rate: 10 Mbit/s, delay: 30 ms, queue: {packets: 100000, aqm: AQM}}
users:
  - {name: user, from: user, to: server, transport: udp, traffic: constant, rate: RATE Mbit/s}
`

// CoDel's drops follow each other after interval / √n (RFC 8289, section 3.3), as long as the delay is above the target.
func TestCoDelsDrops(t *testing.T) {
	s := start(t, strings.NewReplacer("AQM", "codel", "RATE", "15").Replace(managed), 1)
	count := func() (n uint64) {
		_, n, _ = s.Queue(&s.Directions[0])
		return n
	}
	var first time.Duration
	for now := time.Duration(0); count() == 0 && now < time.Second; now += time.Millisecond {
		until(t, s, now)
		first = now
	}
	// The way to the queue; two frames in the bucket, one that tbf has asked for and 5 ms of waiting, which the excess fills; an
	// interval.
	const fill = (3*1514*8/10e6 + 0.005) * 10 / (15*1482./1440 - 10)
	near(t, "time of the first drop", first.Seconds(), 0.03+fill+0.1, 0.08)
	at, n := 0.0, 1.0
	for second := 1.; second <= 8; second++ {
		for ; at < second; n++ {
			at += 0.1 / math.Sqrt(n)
		}
		until(t, s, first+time.Duration(second*float64(time.Second)))
		if got := float64(count()); math.Abs(got-n) > 0.02*n+2 {
			t.Errorf("%.0f s after the first drop: %.0f dropped, want %.0f", second, got, n)
		}
	}
}

// When the delay rises above the target again within 1.6 s, CoDel drops as often as before the delay fell; later, as seldom as
// at first.
func TestCoDelComesBack(t *testing.T) {
	const step = 100 * time.Microsecond // between two packets
	c, now := &codel{}, int64(0)
	// gap returns the time between the next drop and the last of so many that follow it.
	gap := func(follow int) time.Duration {
		first := int64(-1)
		for ; ; now += int64(step) {
			if c.passes(now, now-2*codelTarget, 100*frame) {
				continue
			}
			if first < 0 {
				first = now
			}
			if follow--; follow < 0 {
				return time.Duration(now - first)
			}
		}
	}
	goesDown := func(pause time.Duration) {
		now += int64(step)
		c.passes(now, now, 100*frame)
		now += int64(pause)
	}
	between := func(what string, got time.Duration, drops float64) {
		want := time.Duration(float64(codelInterval) / math.Sqrt(drops))
		if got < want-want/50 || got > want+want/50+2*step {
			t.Errorf("%s a drop follows the first after %v, want %v", what, got, want)
		}
	}
	between("at first", gap(1), 1)
	gap(40) // 43 in all
	goesDown(200 * time.Millisecond)
	between("soon after", gap(1), 42)
	gap(200) // 202 more than those 42
	goesDown(200 * time.Millisecond)
	between("once more", gap(1), 202)
	gap(40)
	goesDown(2 * time.Second)
	between("later", gap(1), 1)
}

// meanDelay is the mean time that what waits at a link of 10 Mbit/s takes to leave, between two times.
func meanDelay(t *testing.T, s *Simulation, from, to time.Duration) float64 {
	l := &s.links[s.Directions[0].queue]
	sum, samples := 0., 0.
	for now := from; now < to; now += 3 * time.Millisecond {
		until(t, s, now)
		sum, samples = sum+float64(l.backlog)*8/10e6, samples+1
	}
	return sum / samples
}

// PIE drops what exceeds the rate, no matter how much that is, and holds the delay at its target of 15 ms.
func TestPIEHoldsItsTarget(t *testing.T) {
	for rate, excess := range map[string]float64{"11": 11, "12": 12, "15": 15} {
		s := start(t, strings.NewReplacer("AQM", "pie", "RATE", rate).Replace(managed), 1)
		until(t, s, 30*time.Second)
		passedBefore, droppedBefore, _ := s.Queue(&s.Directions[0])
		near(t, "delay at "+rate+" Mbit/s", meanDelay(t, s, 30*time.Second, 90*time.Second), 0.015, 0.1)
		passed, dropped, _ := s.Queue(&s.Directions[0])
		passed, dropped = passed-passedBefore, dropped-droppedBefore
		sent := excess * 1482 / 1440 // with headers
		near(t, "share dropped at "+rate+" Mbit/s", float64(dropped)/float64(passed+dropped), 1-10/sent, 0.03)
	}
}

// The chance follows RFC 8033, section 4.2, with the weights that are the kernel's, 1/8 and 5/4 for each second.
func TestPIEsChance(t *testing.T) {
	p := newPIE(nil)
	chance, before := 0., 0.
	for step := range 2000 {
		delay := 0.015 + 0.08*math.Sin(float64(step)/300) + 0.004*math.Sin(float64(step)/2)
		if delay < 0.001 {
			delay = 0.001
		}
		change := 0.125*(delay-0.015) + 1.25*(delay-before)
		for bound, scale := 0.1, 2.; bound > 0.9e-6 && chance < bound; bound, scale = bound/10, scale*4 {
			change = (0.125*(delay-0.015) + 1.25*(delay-before)) / scale
		}
		if chance >= 0.1 {
			change = min(change, 0.02)
		}
		chance, before = max(0, chance+change), delay
		p.delay = int64(delay * float64(pieTicks))
		p.compute(1)
		if got := float64(p.chance) / float64(pieCertain); math.Abs(got-chance) > 0.02*chance+1e-5 {
			t.Fatalf("step %d, delay %.1f ms: chance %.6f, want %.6f", step, 1000*delay, got, chance)
		}
	}
}

// The drops are spread: none before the chances add up to 0.85, one at 8.5 at the latest.
func TestPIESpreadsDrops(t *testing.T) {
	for _, chance := range []float64{0.01, 0.1, 0.3} {
		s := &Simulation{seed: 1}
		p := newPIE(s.generator(forPIE, 0))
		p.burst, p.delay, p.chance, p.update = 0, pieTarget, uint64(chance*float64(pieCertain)), math.MaxInt64
		const packets = 400000
		dropped := 0.
		for range packets {
			if !p.takes(0, 10*frame) {
				dropped++
			}
		}
		gap, rest := 0., 1.
		for n := 1.; rest > 0; n++ {
			gap += rest // the chance that the n-th packet after a drop comes to be looked at
			switch sum := n * chance; {
			case sum >= 8.5-1e-9:
				rest = 0
			case sum >= 0.85-1e-9:
				rest *= 1 - chance
			}
		}
		near(t, "packets between two drops", packets/dropped, gap, 0.02)
	}
}

// A TCP connection fills a link whose queue is under CoDel or PIE, and its packets wait there for a small part of what they
// wait in a queue without a manager.
func TestManagedQueuesAreShort(t *testing.T) {
	const text = `
phases: {measure: 10 s}
hosts: [{name: user}, {name: server}]
routers: [in]
links:
  - {name: path, between: [in, user], rate: 10 Mbit/s, delay: 10 ms, queue: {QUEUE}, back: {delay: 10 ms}}
  - {name: lan, between: [server, in]}
users:
  - {name: user, from: user, to: server, transport: tcp, cc: cubic, direction: down, traffic: bulk}
`
	for queue, bounds := range map[string][2]float64{
		"packets: 200": {0.1, 0.3}, "packets: 200, aqm: codel": {0.001, 0.01}, "packets: 200, aqm: pie": {0.003, 0.02},
	} {
		s := start(t, strings.ReplaceAll(text, "QUEUE", queue), 1)
		until(t, s, 10*time.Second)
		if d := meanDelay(t, s, 10*time.Second, 40*time.Second); d < bounds[0] || d > bounds[1] {
			t.Errorf("%s: packets wait for %.1f ms, want %.0f to %.0f", queue, 1000*d, 1000*bounds[0], 1000*bounds[1])
		}
		rate := megabits(t, s, 40*time.Second, 60*time.Second)[0]
		near(t, queue+": goodput", rate, 10*1448./1514, 0.06)
	}
}

// With a managed queue too, a link's new rate holds for the packets that wait; a link taken down loses its packets, and carries
// packets again when it is up.
func TestManagedLinkChanges(t *testing.T) {
	text := strings.NewReplacer("AQM", "codel", "RATE", "8").Replace(managed) + `
events:
  - {at: 2 s, link: path, rate: 4 Mbit/s}
  - {at: 4 s, link: path, state: down}
  - {at: 6 s, link: path, state: up, rate: 10 Mbit/s}
`
	s := start(t, text, 1)
	events := s.controls.scenario.Events
	l := &s.links[s.Directions[0].queue]
	before := uint64(0)
	for step, want := range []float64{8 * 1482. / 1440, 4, 0, 8 * 1482. / 1440} {
		for len(events) > 0 && events[0].At.Std() <= time.Duration(2*step)*time.Second {
			until(t, s, events[0].At.Std())
			if err := s.Change(events[0]); err != nil {
				t.Fatal(err)
			}
			events = events[1:]
		}
		until(t, s, time.Duration(2*step+2)*time.Second)
		got := float64(l.left-before) * 1482 * 8 / 2e6
		before = l.left
		if math.Abs(got-want) > 0.25 {
			t.Errorf("step %d: %.2f Mbit/s, want %.2f", step, got, want)
		}
	}
}
