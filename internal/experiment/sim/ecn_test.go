// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"strings"
	"testing"
	"time"
)

// A queue that marks from a number of packets on.
const marking = `
phases: {measure: 10 s}
hosts: [{name: a}, {name: b}, {name: server}]
routers: [in]
links:
  - {name: path, between: [in, a], rate: 10 Mbit/s, delay: 10 ms, queue: {red: {min: 10, max: 11, probability: 1, ecn: true}}, back: {delay: 10 ms}}
  - {name: other, between: [in, b], rate: 10 Mbit/s, delay: 10 ms, queue: {red: {min: 10, max: 11, probability: 1, ecn: true}}, back: {delay: 10 ms}}
  - {name: lan, between: [server, in]}
users:
  - {name: first, from: a, to: server, direction: down, transport: tcp, cc: FIRST, traffic: bulk}
  - {name: second, from: SECOND, to: server, direction: down, transport: tcp, cc: reno, traffic: bulk}
`

func retransmitted(u *User) (segments uint64) {
	for _, f := range u.Subflows() {
		segments += f.Tally().Retransmitted
	}
	return segments
}

// DCTCP fills a link whose queue marks, and keeps the queue near the threshold, without a loss. Alpha is as in the steady
// state of Alizadeh, Javanmard and Prabhakar, Analysis of DCTCP, for the window W at which marks begin: √(2/W), if all packets of an RTT are marked then; here it is those behind the queue's tenth.
func TestDCTCP(t *testing.T) {
	s := start(t, strings.NewReplacer("FIRST", "dctcp", "SECOND", "b").Replace(marking), 1)
	// The window of slow start is too large for the queue.
	until(t, s, 5*time.Second)
	_, droppedBefore, _ := s.Queue(&s.Directions[0])
	againBefore := retransmitted(s.Users[0])
	rate := megabits(t, s, 5*time.Second, 15*time.Second)[0]
	near(t, "goodput", rate, 10*1448./1514, 0.02)
	var sum, alpha float64
	most, samples := 0, 0
	d := s.Users[0].subflows[0].socket.cc.(*dctcp)
	queue := &s.links[s.Directions[0].queue]
	for now := 15 * time.Second; now < 25*time.Second; now += 7 * time.Millisecond {
		until(t, s, now)
		most = max(most, queue.waiting)
		sum, alpha, samples = sum+float64(queue.waiting), alpha+float64(d.alpha)/dctcpMost, samples+1
	}
	if mean := sum / float64(samples); mean < 4 || mean > 14 || most > 25 {
		t.Errorf("%.1f packets wait on average, %d at most", mean, most)
	}
	window := 10e6/8/1514*0.0208 + 10 // and the packet under way
	near(t, "alpha", alpha/float64(samples), math.Sqrt(2/window), 0.4)
	_, dropped, marked := s.Queue(&s.Directions[0])
	again := retransmitted(s.Users[0])
	if marked == 0 || dropped > droppedBefore || again > againBefore {
		t.Errorf("%d packets were marked, %d dropped, %d sent again", marked, dropped-droppedBefore, again-againBefore)
	}
	// Reno on a host without DCTCP asks for no ECN: its packets are dropped.
	if second := s.Users[1]; retransmitted(second) == 0 {
		t.Error("without ECN nothing was dropped")
	}
}

// On a host whose connections ask for ECN, Reno halves its window for a mark as for a loss (RFC 3168).
func TestECN(t *testing.T) {
	s := start(t, strings.NewReplacer("FIRST", "dctcp", "SECOND", "a").Replace(marking), 1)
	until(t, s, 10*time.Second)
	before := retransmitted(s.Users[1])
	rates := megabits(t, s, 10*time.Second, 40*time.Second)
	near(t, "goodput of both", rates[0]+rates[1], 10*1448./1514, 0.02)
	second := s.Users[1]
	if n := retransmitted(second); n > before {
		t.Errorf("%d segments were sent again", n-before)
	}
	// Reno yields to DCTCP, which reduces by less.
	if rates[1] > rates[0]/2 || rates[1] < 0.2 {
		t.Errorf("reno has %.2f Mbit/s, dctcp %.2f", rates[1], rates[0])
	}
	if k := second.subflows[0].socket; k.Ssthresh >= infiniteSsthresh || k.deliveredCE == 0 {
		t.Errorf("ssthresh is %d, after %d marked segments", k.Ssthresh, k.deliveredCE)
	}
}
