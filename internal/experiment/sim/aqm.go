// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"time"
)

// manager drops packets of a queue before it is full. Times are in nanoseconds; backlogs are the bytes that wait, without the
// packet in question. The kernel's managers mark nothing unless told to, and the lab does not tell them.
type manager interface {
	// takes says whether the queue takes a packet that comes at a time.
	takes(at int64, backlog int) bool
	// passes says whether the first packet, which came at a time and leaves now, goes on.
	passes(now, came int64, backlog int) bool
	// idle says that a packet could leave, and none waits.
	idle()
}

// newManager returns the manager of a scenario's name. The random numbers are PIE's.
func newManager(name string, random *rand.PCG) manager {
	if name == "codel" {
		return &codel{}
	}
	return newPIE(random)
}

// manage goes on with a link whose queue has a manager, when a packet is through or comes to the empty queue. CoDel drops
// packets at the head of the queue, and the packets behind then leave earlier. So a packet's time of leaving is known only
// when the packet before has left; until then the time of its flight is that of its arrival at the queue.
func (s *Simulation) manage(number int32) {
	l := &s.links[number]
	s.arrive(l)
	if l.sending {
		l.sending = false
		s.forward(l, l.takeFirst())
	}
	for l.first != l.queued {
		f := *l.at(l.first)
		if l.manager.passes(s.now, f.out, l.backlog-int(f.size)) {
			l.sending = true
			s.set(l.timer, l.serve(s.now, frameTime(f.size, l.rate)))
			return
		}
		l.takeFirst()
		s.refuse(l, f.packet)
	}
	l.manager.idle()
	if l.first != l.end {
		s.set(l.timer, l.at(l.first).out)
	}
}

// arrive puts the packets that have reached a manager's queue by now into the queue, and drops those that the manager refuses.
func (s *Simulation) arrive(l *link) {
	for l.queued != l.end && l.at(l.queued).out <= s.now {
		f := *l.at(l.queued)
		if l.waiting < l.limit && l.manager.takes(f.out, l.backlog) {
			l.queued++
			l.waiting++
			l.backlog += int(f.size)
			continue
		}
		for i := l.queued; i != l.first; i-- {
			*l.at(i) = *l.at(i - 1)
		}
		l.first++
		l.queued++
		s.refuse(l, f.packet)
	}
}

// takeFirst takes the first packet out of the queue of a manager.
func (l *link) takeFirst() flight {
	f := *l.at(l.first)
	l.first++
	l.waiting--
	l.backlog -= int(f.size)
	return f
}

// codel is controlled delay as the kernel has it (include/net/codel_impl.h, RFC 8289): packets are dropped once the least delay
// has been above the target for an interval, the n-th of them an interval / √n after the one before.
type codel struct {
	above     int64 // from when on packets may be dropped; 0: the delay is below the target
	next      int64 // when the next one is dropped
	dropping  bool
	owes      bool   // next is still the time of the last drop: only a further packet that is due moves next on
	count     uint32 // dropped since that began
	lastCount uint32 // count at the last beginning
	inverse   uint16 // 1 / √count, in 2⁻¹⁶
}

const (
	codelTarget   = int64(5 * time.Millisecond)
	codelInterval = int64(100 * time.Millisecond)
)

func (c *codel) takes(int64, int) bool { return true }

func (c *codel) idle() { c.above, c.dropping, c.owes = 0, false, false }

func (c *codel) passes(now, came int64, backlog int) bool {
	if !c.due(now, came, backlog) {
		c.dropping, c.owes = false, false
		return true
	}
	if !c.dropping {
		c.begin(now)
		return false
	}
	if c.owes {
		c.next, c.owes = c.after(c.next), false
	}
	if now < c.next {
		return true
	}
	c.count++
	c.newton()
	c.owes = true
	return false
}

// due says whether the delay was above the target for an interval.
func (c *codel) due(now, came int64, backlog int) bool {
	if now-came < codelTarget || backlog <= frame {
		c.above = 0
		return false
	}
	if c.above == 0 {
		c.above = now + codelInterval
		return false
	}
	return now > c.above
}

// begin begins to drop, where it left off if that is not long ago.
func (c *codel) begin(now int64) {
	c.dropping = true
	if since := c.count - c.lastCount; since > 1 && now-c.next < 16*codelInterval {
		c.count = since
		c.newton()
	} else {
		c.count, c.inverse = 1, 1<<16-1
	}
	c.lastCount = c.count
	c.next = c.after(now)
}

// newton brings inverse a step of Newton's nearer to 1 / √count.
func (c *codel) newton() {
	inverse := uint64(c.inverse) << 16
	c.inverse = uint16(((3<<32 - uint64(c.count)*(inverse*inverse>>32)) >> 2 * inverse >> 31) >> 16)
}

// after returns the time of the drop that follows one at a time.
func (c *codel) after(at int64) int64 { return at + codelInterval*int64(c.inverse)>>16 }

// pie is the proportional integral controller enhanced, as the kernel has it (net/sched/sch_pie.c, RFC 8033): packets that come
// are dropped with a chance that follows the delay of the packets that have left. Its times are in ticks of 64 ns, chances in
// units of 2⁻⁵⁶.
type pie struct {
	delay, before int64 // of the last packet that has left, and as the chance was computed last
	burst         int64 // for how long nothing is dropped
	left          int64 // when a packet has left last; -1: none yet
	chance        uint64
	sum           uint64 // of the chances since the last drop
	update        int64  // when the chance is computed next, in nanoseconds
	random        *rand.PCG
}

const (
	pieTick     = 64
	pieTicks    = int64(time.Second) / pieTick // in a second
	pieTarget   = int64(15*time.Millisecond) / pieTick
	pieBurst    = int64(150*time.Millisecond) / pieTick
	pieDelayed  = int64(250*time.Millisecond) / pieTick // from which on the chance rises by 2 % more
	pieInterval = 4 * jiffy                             // 15 ms, in whole jiffies
	pieFirst    = int64(time.Second / 2)
	pieCertain  = uint64(1)<<56 - 1
	pieAlpha    = 2       // of 16, for each second that the delay differs from the target
	pieBeta     = 20      // of 16, for each second that the delay has risen by
	pieRarest   = 1000000 // the weights of a chance below 1 in so many are the smallest
)

func newPIE(random *rand.PCG) *pie {
	p := &pie{random: random, update: pieFirst}
	p.begin()
	return p
}

func (p *pie) begin() { p.burst, p.left, p.sum = pieBurst, -1, 0 }

func (p *pie) idle() {}

func (p *pie) takes(at int64, backlog int) bool {
	p.until(at, backlog)
	if !p.drops(backlog) {
		return true
	}
	p.sum = 0
	return false
}

func (p *pie) drops(backlog int) bool {
	if p.burst > 0 || p.delay < pieTarget/2 && p.chance < pieCertain/5 || backlog < 2*frame {
		return false
	}
	if p.sum += p.chance; p.chance == 0 {
		p.sum = 0
	}
	if p.sum < pieCertain/100*85 {
		return false
	}
	return p.sum >= pieCertain/2*17 || p.random.Uint64()>>8 < p.chance
}

// passes notes the delay of a packet that leaves: none, if nothing waits behind it.
func (p *pie) passes(now, came int64, backlog int) bool {
	p.until(now, backlog)
	tick := now / pieTick
	p.delay = tick - came/pieTick
	if backlog == 0 {
		p.delay = 0
	}
	if p.left >= 0 {
		p.burst = max(0, p.burst-(tick-p.left))
	}
	p.left = tick
	return true
}

// until computes the chance as often as it is time to, up to a time.
func (p *pie) until(now int64, backlog int) {
	for ; p.update <= now; p.update += pieInterval {
		p.compute(backlog)
	}
}

func (p *pie) compute(backlog int) {
	changes := p.delay > 0 || backlog == 0
	alpha := pieAlpha * (pieCertain / uint64(pieTicks)) >> 4
	beta := pieBeta * (pieCertain / uint64(pieTicks)) >> 4
	if p.chance < pieCertain/10 {
		alpha, beta = alpha>>1, beta>>1
		for power := uint64(100); p.chance < pieCertain/power && power <= pieRarest; power *= 10 {
			alpha, beta = alpha>>2, beta>>2
		}
	}
	delta := int64(alpha)*(p.delay-pieTarget) + int64(beta)*(p.delay-p.before)
	if delta > int64(pieCertain/50) && p.chance >= pieCertain/10 {
		delta = int64(pieCertain / 100 * 2)
	}
	if p.delay > pieDelayed {
		delta += int64(pieCertain / 50)
	}
	// The kernel's chance has eight bits more than it needs, and wraps where it would be negative.
	p.chance = uint64(max(0, int64(p.chance)+delta))
	if p.delay == 0 && p.before == 0 && changes {
		p.chance -= p.chance / 64
	}
	if p.delay < pieTarget/2 && p.before < pieTarget/2 && p.chance == 0 {
		p.begin()
	}
	p.before = p.delay
}
