// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// FuzzNetwork runs random networks with random users, losses and events. Nothing may get lost uncounted, time may not
// run back, and of a file every byte comes once.
func FuzzNetwork(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		text := randomScenario(rand.New(rand.NewPCG(seed, 0)))
		s := start(t, text, seed)
		defer func() {
			if t.Failed() {
				t.Log(text)
			}
		}()
		for _, e := range s.controls.scenario.Events {
			until(t, s, e.At.Std())
			if err := s.Change(e); err != nil {
				t.Fatal(err)
			}
		}
		until(t, s, 4*time.Second)
		for _, u := range s.Users {
			if !finite(u.Class) {
				continue
			}
			complete := uint64(0)
			for _, file := range u.Transfers() {
				if file.Took > 0 {
					complete += file.Bytes
				}
			}
			if u.Bytes() < complete || u.Bytes() > complete+uint64(u.Class.Size) {
				t.Errorf("%d bytes have come of complete files of %d and one of %d", u.Bytes(), complete, u.Class.Size)
			}
			if u.Done() && u.Bytes() != complete {
				t.Errorf("%d bytes have come of %d", u.Bytes(), complete)
			}
		}
	})
}

// randomScenario describes a few hosts that are linked to one or two of a few routers.
func randomScenario(random *rand.Rand) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	p("phases: {measure: 4 s}")
	hosts, routers := 2+random.IntN(3), 1+random.IntN(3)
	p("hosts:")
	for i := range hosts {
		p("  - {name: h%d}", i)
	}
	var names []string
	for i := range routers {
		names = append(names, fmt.Sprintf("r%d", i))
	}
	p("routers: [%s]", strings.Join(names, ", "))
	shape := func() string {
		var keys []string
		delay := random.IntN(60)
		keys = append(keys, fmt.Sprintf("delay: %d ms", delay))
		if jitter := random.IntN(delay + 1); jitter > 0 && random.IntN(3) == 0 {
			keys = append(keys, fmt.Sprintf("jitter: %d ms", jitter))
			if random.IntN(2) == 0 {
				keys = append(keys, "reorder: true")
			}
		}
		if random.IntN(2) == 0 {
			keys = append(keys, fmt.Sprintf("loss: %d %%", 1<<random.IntN(6)))
		}
		if random.IntN(3) > 0 {
			keys = append(keys, fmt.Sprintf("rate: %d Mbit/s", 1+random.IntN(20)), "queue: "+pick(
				"{packets: 2}", "{packets: 60}", "{bytes: 40 KB}", "{red: {min: 5, max: 15, probability: 0.1}}", "{red: {min: 3, max: 4, probability: 1, ecn: true}}",
				"{red: {min: 5, max: 10, probability: 0.1, end: 20}}"))
		}
		return strings.Join(keys, ", ")
	}
	p("links:")
	links := 0
	link := func(a, c string) {
		p("  - {name: l%d, between: [%s, %s], %s, back: {%s}}", links, a, c, shape(), shape())
		links++
	}
	for i := 1; i < routers; i++ {
		link(names[i-1], names[i])
	}
	for i := range hosts {
		for range 1 + random.IntN(2) {
			link(fmt.Sprintf("h%d", i), pick(names...))
		}
	}
	p("users:")
	for i := range 1 + random.IntN(3) {
		from := random.IntN(hosts)
		to := (from + 1 + random.IntN(hosts-1)) % hosts
		transport := pick("tcp", "mptcp", "mptcp", "udp")
		traffic := pick("bulk", "file, size: 300 KB, files: 3", "bursts, rate: 2 Mbit/s, on: 300 ms, off: 300 ms", "constant, rate: 1 Mbit/s")
		if transport == "udp" {
			traffic = "constant, rate: 3 Mbit/s"
		}
		buffer := pick("", ", receive_buffer: 30 KB", ", send_buffer: 20 KB")
		if transport == "mptcp" && random.IntN(2) == 0 {
			buffer += ", scheduler: " + pick(schedulers()...)
		}
		p("  - {name: u%d, from: h%d, to: h%d, transport: %s, direction: %s, cc: %s, traffic: %s, within: 500 ms%s}", i, from, to,
			transport, pick("up", "down"), pick("reno", "cubic", "dctcp", "lia", "wvegas"), traffic, buffer)
	}
	p("events:")
	p("  - {at: 1 s, link: l%d, state: down}", random.IntN(links))
	p("  - {at: 2 s, link: l%d, rate: 3 Mbit/s}", random.IntN(links))
	p("  - {at: 3 s, link: l%d, delay: 60 ms, loss: 0 %%}", random.IntN(links))
	return b.String()
}
