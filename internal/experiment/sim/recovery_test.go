// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

const oneFile = `
phases: {measure: 10 s}
hosts: [{name: user}, {name: server}]
routers: [in]
links:
  - {name: path, between: [in, user], rate: 100 Mbit/s, delay: 20 ms, queue: {packets: 1000}, back: {delay: 20 ms}}
  - {name: lan, between: [server, in]}
users:
  - {name: user, from: user, to: server, direction: down, transport: tcp, traffic: file, size: 289600 B}
`

// lose runs a file of 200 segments whose segments are lost as often as the script says, and returns what was lost, what
// was sent again, how many timeouts there were and how long it took.
func lose(t *testing.T, script map[uint32]int) (lost uint64, again uint32, timeouts uint32, took time.Duration) {
	t.Helper()
	s := start(t, oneFile, 1)
	// What is to be lost goes on to a link that loses everything, behind the one on which it is seen.
	hole := int32(len(s.links))
	s.link("hole", scenario.Shape{Loss: 100})
	s.hops = append(s.hops, arrived, hole, arrived)
	behind := int32(len(s.hops)) - 3
	l := &s.links[0]
	seen := l.end
	sent := map[uint32]int{}
	for !s.Users[0].Done() && s.Now() < 20*time.Second {
		until(t, s, s.Now()+time.Millisecond)
		for ; seen != l.end; seen++ {
			p := &s.packets[l.at(seen).packet]
			if p.kind != data {
				continue
			}
			if sent[p.segment]++; sent[p.segment] <= script[p.segment] {
				l.at(seen).hop = behind
			}
		}
		if len(s.sockets) > 0 {
			timeouts, again = max(timeouts, s.sockets[0].retransmits), s.sockets[0].TotalRetrans
		}
	}
	if !s.Users[0].Done() {
		t.Fatal("the file has not come")
	}
	return s.links[hole].lost, again, timeouts, s.Users[0].Transfers()[0].Took
}

// Losses that SACKs show are repaired by as many retransmissions, without a timeout, also of a retransmission that is
// lost (RFC 8985) and of the last segments, which nothing follows that could be SACKed: by a probe after
// two RTTs or, of a single segment, before the timeout of 200 ms and an RTT.
func TestRecovery(t *testing.T) {
	_, _, _, clean := lose(t, nil)
	const rtt = 40 * time.Millisecond
	for _, c := range []struct {
		name   string
		script map[uint32]int
		again  uint32
		longer time.Duration // at most, than without losses
	}{
		{"one", map[uint32]int{60: 1}, 1, 3 * rtt},
		{"three in a row", map[uint32]int{60: 1, 61: 1, 62: 1}, 3, 3 * rtt},
		{"every other", map[uint32]int{60: 1, 62: 1, 64: 1, 66: 1, 68: 1}, 5, 4 * rtt},
		{"a retransmission", map[uint32]int{60: 2}, 2, 4 * rtt},
		{"the last", map[uint32]int{199: 1}, 1, 3*rtt + 200*time.Millisecond + 8*time.Millisecond},
		{"the last four", map[uint32]int{196: 1, 197: 1, 198: 1, 199: 1}, 4, 5*rtt + 12*time.Millisecond},
	} {
		lost, again, timeouts, took := lose(t, c.script)
		if want := uint64(sum(c.script)); lost != want {
			t.Errorf("%s: %d packets were lost, not %d", c.name, lost, want)
		}
		if again != c.again || timeouts > 0 {
			t.Errorf("%s: %d segments were sent again with %d timeouts, want %d with none", c.name, again, timeouts, c.again)
		}
		if took > clean+c.longer {
			t.Errorf("%s: it took %v longer, want at most %v", c.name, took-clean, c.longer)
		}
	}
}

func sum(script map[uint32]int) (n int) {
	for _, times := range script {
		n += times
	}
	return n
}
