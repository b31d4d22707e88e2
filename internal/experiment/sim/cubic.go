// SPDX-License-Identifier: Apache-2.0

package sim

// cubic is the kernel's CUBIC (net/ipv4/tcp_cubic.c, RFC 9438) in its integer arithmetic, with HyStart. The cube root
// is exact, where the kernel's is within 0.2 %.
type cubic struct {
	*socket
	count, lastMax, lastCwnd uint32
	lastTime                 int64 // jiffies
	origin                   uint32
	toOrigin                 uint32 // time until the origin, in 2⁻¹⁰ s
	leastDelay               uint32 // µs
	epoch                    int64  // jiffies; 0: none
	ackCount, renoCwnd       uint32

	samples    uint8
	found      bool
	roundStart int64 // µs
	roundEnd   uint32
	lastAck    int64
	roundDelay uint32
}

const (
	cubicBeta      = 717 // of 1024
	cubicScale     = 410 // 1024 · C / 1 s
	cubicReno      = 15  // 8 · (1 + β) / 3 / (1 - β)
	hz             = 1_000_000_000 / jiffy
	trainGap       = 2000 // µs
	hystartLeast   = 16   // packets
	hystartSamples = 8
)

func newCubic(k *socket) *cubic {
	c := &cubic{socket: k}
	c.newRound()
	return c
}

func (c *cubic) newRound() {
	c.roundStart = c.sim.micros()
	c.lastAck = c.roundStart
	c.roundEnd = c.next
	c.roundDelay, c.samples = ^uint32(0), 0
}

func (c *cubic) CwndEvent(event int) {
	if event != eventTxStart || c.epoch == 0 {
		return
	}
	if now := c.sim.jiffies(); now > c.lastSend { // it was idle: the curve waits
		c.epoch = min(c.epoch+now-c.lastSend, now)
	}
}

func (c *cubic) CongAvoid(_, acked uint32) {
	if !cwndLimited(&c.state) {
		return
	}
	if slowStart(&c.state) {
		if acked = slowStartBy(&c.state, acked); acked == 0 {
			return
		}
	}
	c.update(acked)
	additive(&c.state, c.count, acked)
}

// update is bictcp_update.
func (c *cubic) update(acked uint32) {
	cwnd, now := c.Cwnd, c.sim.jiffies()
	c.ackCount += acked
	if c.lastCwnd == cwnd && now-c.lastTime <= hz/32 {
		return
	}
	if c.epoch == 0 || now != c.lastTime {
		c.lastCwnd, c.lastTime = cwnd, now
		c.follow(cwnd, acked, now)
	}
	delta := cwnd * cubicReno >> 3
	for c.ackCount > delta {
		c.ackCount -= delta
		c.renoCwnd++
	}
	if c.renoCwnd > cwnd {
		c.count = min(c.count, cwnd/(c.renoCwnd-cwnd))
	}
	c.count = max(c.count, 2)
}

// follow sets how many ACKs grow the window by one, to be on the curve.
func (c *cubic) follow(cwnd, acked uint32, now int64) {
	if c.epoch == 0 {
		c.epoch, c.ackCount, c.renoCwnd = max(now, 1), acked, cwnd
		c.toOrigin, c.origin = 0, cwnd
		if c.lastMax > cwnd {
			c.toOrigin = cubeRoot((1 << 40) / cubicScale * uint64(c.lastMax-cwnd))
			c.origin = c.lastMax
		}
	}
	t := uint64(now-c.epoch+toJiffies(int64(c.leastDelay))) << 10 / hz
	off := t - uint64(c.toOrigin)
	if t < uint64(c.toOrigin) {
		off = uint64(c.toOrigin) - t
	}
	delta := uint32(cubicScale * off * off * off >> 40)
	target := c.origin + delta
	if t < uint64(c.toOrigin) {
		target = c.origin - delta
	}
	c.count = 100 * cwnd
	if target > cwnd {
		c.count = cwnd / (target - cwnd)
	}
	if c.lastMax == 0 {
		c.count = min(c.count, 20)
	}
}

// cubeRoot returns the cube root, rounded down.
func cubeRoot(a uint64) uint32 {
	root := uint64(0)
	for bit := uint64(1) << 20; bit > 0; bit >>= 1 {
		if try := root | bit; try*try*try <= a {
			root = try
		}
	}
	return uint32(root)
}

func (c *cubic) SSThresh() uint32 {
	c.epoch = 0
	if c.Cwnd < c.lastMax {
		c.lastMax = c.Cwnd * (1024 + cubicBeta) / (2 * 1024)
	} else {
		c.lastMax = c.Cwnd
	}
	return max(c.Cwnd*cubicBeta/1024, 2)
}

func (c *cubic) SetState(ca uint8) {
	if ca == caLoss {
		*c = cubic{socket: c.socket, samples: c.samples, roundStart: c.roundStart, roundEnd: c.roundEnd}
		c.newRound()
	}
}

func (c *cubic) PktsAcked(_ uint32, rttUs int32, _ uint32) {
	if rttUs < 0 || c.epoch > 0 && c.sim.jiffies()-c.epoch < hz {
		return
	}
	delay := max(1, uint32(rttUs))
	if c.leastDelay == 0 || c.leastDelay > delay {
		c.leastDelay = delay
	}
	if !c.found && slowStart(&c.state) {
		c.hystart(delay)
	}
}

// hystart ends slow start where ACKs come in a long train, or the delay grows.
func (c *cubic) hystart(delay uint32) {
	if c.una > c.roundEnd {
		c.newRound()
	}
	if c.Cwnd < hystartLeast {
		return
	}
	if now := c.sim.micros(); now-c.lastAck <= trainGap {
		c.lastAck = now
		threshold := int64(c.leastDelay)
		if c.PacingRate > 0 {
			threshold += min(1000, int64(uint64(c.GSOMaxSize)*4*1e6/c.PacingRate))
		}
		if now-c.roundStart > threshold>>1 {
			c.leave()
		}
	}
	c.roundDelay = min(c.roundDelay, delay)
	if c.samples < hystartSamples {
		c.samples++
	} else if c.roundDelay > c.leastDelay+min(max(c.leastDelay>>3, 4000), 16000) {
		c.leave()
	}
}

func (c *cubic) leave() { c.found, c.Ssthresh = true, c.Cwnd }

func (c *cubic) UndoCwnd() uint32 { return max(c.Cwnd, c.PriorCwnd) }
func (*cubic) InAck(uint32)       {}
func (*cubic) Release()           {}
