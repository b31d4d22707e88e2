// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// laneStep is struct lane_step of testdata/schedule.c, schedulerStep its struct step, schedulerOutcome its struct outcome.
type laneStep struct {
	Expires, BytesSent, BytesRetrans                                                   uint64
	SrttUs8, RttvarUs, Cwnd, Ssthresh, MSS, PacketsOut, SackedOut, LostOut, RetransOut uint32
	SndUna, SndNxt, WriteSeq, HighSeq, Queued, Buffer, RateDelivered, RateIntervalUs   uint32
	LeastRTTUs                                                                         uint32
	CAState, Backup, Stale, StaleCount, Active, Revives, Carries, Pad                  uint8
}

type schedulerStep struct {
	NowNs, Jiffies, Una, Nxt, Next, Written, WndEnd, Timeout uint64
	Burst, Queued, Buffer                                    int32
	Event, Count, Resends, Piece, Pad                        uint32
	Lanes                                                    [4]laneStep
}

type schedulerOutcome struct {
	Timeout, Buffer               uint64
	Result, Burst                 int32
	Scheduled, Resent, Stale, Pad uint32
	Own                           [1024]byte
}

const (
	beginStream = iota
	send
	retransmit
	releaseStream
)

// scheduling notes what happens to connections under a packet scheduler, and what comes of it.
type scheduling struct {
	s        *Scheduler
	own      uint32 // where in struct sched_state the scheduler keeps what it remembers
	present  schedulerStep
	stream   *Stream
	resent   uint32
	asked    uint64 // bytes of buffer, last
	steps    []schedulerStep
	outcomes []schedulerOutcome
}

func newScheduling(t *testing.T, name string) *scheduling {
	t.Helper()
	spec, err := specOf(catalog.Sched, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	state := layoutOf(spec.Types, "sched_state")
	_, own, ok := state.find("own")
	if !ok {
		t.Fatal("struct sched_state has no field own")
	}
	g := &scheduling{own: own}
	clock, jiffies := func() uint64 { return g.present.NowNs }, func() uint64 { return g.present.Jiffies }
	if g.s, err = loadScheduler(spec, name, clock, jiffies, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.s.Close() })
	for i := range uint32(len(g.present.Lanes)) {
		if err := g.s.SetEnergy(i+1, EnergyProfile{UpUwPerMbps: 100000 / (i + 1), BaseUw: 300000 * (i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// do has something happen.
func (g *scheduling) do(t *testing.T, step schedulerStep) schedulerOutcome {
	t.Helper()
	g.present, g.resent = step, 0
	if step.Event == beginStream {
		g.stream = g.s.Stream(1)
		g.stream.Resend = func() bool {
			g.resent = 1
			return g.present.Resends != 0
		}
		g.stream.ResendOf = func(l *Lane) bool {
			g.resent = 2 + uint32(slices.Index(g.stream.lanes, l))
			return g.present.Resends != 0
		}
		for i := range step.Count {
			l := &Lane{State: &State{Interface: i + 1}, LeastRTO: 50}
			l.Active = func() bool {
				if g.present.Lanes[i].Revives != 0 {
					l.Stale = false
				}
				return g.present.Lanes[i].Active != 0 && !l.Stale
			}
			l.Carries = func(uint64) bool { return g.present.Lanes[i].Carries != 0 }
			g.stream.Add(l)
		}
	}
	st := g.stream
	st.Una, st.Nxt, st.Next, st.Written, st.WndEnd, st.Timeout = step.Una, step.Nxt, step.Next, step.Written, step.WndEnd, step.Timeout
	st.Burst, st.Queued, st.Buffer, st.Piece = step.Burst, step.Queued, step.Buffer, uint16(step.Piece)
	for i, l := range st.lanes {
		l.set(&step.Lanes[i])
	}
	st.Needed = 0
	o := schedulerOutcome{}
	switch step.Event {
	case send:
		o.Result = int32(st.run(g.s.send))
	case retransmit:
		o.Result = int32(st.run(g.s.retransmit))
	case releaseStream:
		st.run(g.s.release)
	}
	o.Timeout, o.Buffer, o.Burst, o.Resent = st.Timeout, st.Needed, st.Burst, g.resent
	if o.Buffer > 0 && o.Buffer != g.asked { // it is reckoned every 100 ms, and asked for again meanwhile
		g.checkBuffer(t, &step, o.Buffer)
		g.asked = o.Buffer
	}
	for i, l := range st.lanes {
		o.Scheduled |= uint32(one(l.Scheduled)) << i
		o.Stale |= uint32(one(l.Stale)) << i
	}
	states, err := g.s.m.Map("mpcc_sched_state")
	if err != nil {
		t.Fatal(err)
	}
	if v := states.Lookup(binary.LittleEndian.AppendUint64(nil, st.address)); v != nil {
		copy(o.Own[:], v[g.own:])
	}
	if err := g.s.Err(); err != nil {
		t.Fatal(err)
	}
	if step.Event == releaseStream {
		// Release has the program run once more, which then finds nothing to do.
		st.Release()
	}
	g.steps, g.outcomes = append(g.steps, step), append(g.outcomes, o)
	return o
}

// checkBuffer compares the send buffer that is asked for with three times what all subflows send in the longest of their RTTs.
func (g *scheduling) checkBuffer(t *testing.T, step *schedulerStep, got uint64) {
	t.Helper()
	longest, want := 0., 0.
	for i, l := range g.stream.lanes {
		if step.Lanes[i].Active != 0 && !l.Stale {
			longest = max(longest, float64(l.SrttUs))
		}
	}
	for i, l := range g.stream.lanes {
		if step.Lanes[i].Active != 0 && !l.Stale {
			want += 3 * float64(l.Cwnd) * float64(l.MSS) * min(longest/float64(l.SrttUs), 1024)
		}
	}
	if math.Abs(float64(got)-want) > want/1000+8 {
		t.Errorf("at %d ns a buffer of %d bytes is asked for, want %.0f", step.NowNs, got, want)
	}
}

func (l *Lane) set(s *laneStep) {
	l.Timer, l.BytesSent, l.BytesRetrans = s.Expires, s.BytesSent, s.BytesRetrans
	l.SrttUs, l.RttvarUs, l.Cwnd, l.Ssthresh, l.MSS = s.SrttUs8, s.RttvarUs, s.Cwnd, s.Ssthresh, s.MSS
	l.PacketsOut, l.SackedOut, l.LostOut, l.RetransOut = s.PacketsOut, s.SackedOut, s.LostOut, s.RetransOut
	l.SndUna, l.SndNxt, l.WriteSeq, l.HighSeq = s.SndUna, s.SndNxt, s.WriteSeq, s.HighSeq
	l.Queued, l.Buffer, l.RateDelivered, l.RateIntervalUs = int32(s.Queued), int32(s.Buffer), s.RateDelivered, s.RateIntervalUs
	l.MinRttUs = s.LeastRTTUs
	l.CAState, l.Backup, l.Stale, l.StaleCount, l.Scheduled = s.CAState, s.Backup != 0, s.Stale != 0, s.StaleCount, false
}

// random is one connection's life.
func (g *scheduling) random(t *testing.T, r *rand.Rand) {
	step := schedulerStep{NowNs: 1e9 + r.Uint64N(1<<40), Count: 1 + r.Uint32N(4), Event: beginStream, Timeout: 50, Buffer: 1 << 16}
	for i := range step.Count {
		step.Lanes[i] = laneStep{
			SrttUs8: (1000 + r.Uint32N(200_000)) << 3, RttvarUs: r.Uint32N(50_000), Cwnd: 10, Ssthresh: 0x7fffffff, MSS: 1420,
			LeastRTTUs: 1000, Buffer: 100_000, Active: 1, Backup: one(r.IntN(5) == 0),
		}
	}
	step.Jiffies = step.NowNs / 4e6
	g.do(t, step)
	step.WndEnd = 1 << 18
	for range 300 {
		step.NowNs += r.Uint64N(20e6)
		if r.IntN(50) == 0 {
			step.NowNs += r.Uint64N(1 << 37) // a minute, for trials
		}
		step.Jiffies = step.NowNs / 4e6
		step.Event = send
		if r.IntN(8) == 0 {
			step.Event = retransmit
		}
		step.Resends = r.Uint32N(2)
		step.Piece = 1 + r.Uint32N(1<<15)
		step.change(r)
		o := g.do(t, step)
		step.Timeout, step.Burst = o.Timeout, o.Burst
		for i := range step.Count {
			l := &step.Lanes[i]
			l.Stale = uint8(o.Stale >> i & 1)
			if o.Scheduled>>i&1 == 0 || step.Event != send {
				continue
			}
			handed := min(uint64(max(o.Burst, 4056)), step.Written-step.Next)
			step.Next += handed
			step.Nxt = max(step.Nxt, step.Next)
			step.Burst -= int32(handed)
			l.WriteSeq += uint32(handed)
		}
		if o.Resent != 0 && step.Resends != 0 {
			step.Next = step.Una
		}
	}
	step.Event = releaseStream
	g.do(t, step)
}

// change is what goes on between decisions.
func (s *schedulerStep) change(r *rand.Rand) {
	s.Written += r.Uint64N(200_000)
	s.Una += r.Uint64N(s.Nxt - s.Una + 1)
	if r.IntN(20) == 0 {
		s.Una = s.Nxt
	}
	s.Next = max(s.Next, s.Una)
	s.WndEnd = max(s.WndEnd, s.Una+r.Uint64N(1<<19))
	s.Queued = int32(min(s.Written-s.Una, 1<<21))
	for i := range s.Count {
		l := &s.Lanes[i]
		l.SndNxt += r.Uint32N(l.WriteSeq - l.SndNxt + 1)
		if r.IntN(3) == 0 {
			l.SndNxt = l.WriteSeq
		}
		l.SndUna += r.Uint32N(l.SndNxt - l.SndUna + 1)
		l.BytesSent, l.BytesRetrans = l.BytesSent+r.Uint64N(60_000), l.BytesRetrans+r.Uint64N(100)
		l.SrttUs8 = l.SrttUs8 - l.SrttUs8>>4 + r.Uint32N(l.SrttUs8>>3+100)
		l.LeastRTTUs = 1 + r.Uint32N(l.SrttUs8>>3)
		l.Carries = one(r.IntN(3) == 0)
		l.Cwnd = 1 + r.Uint32N(60)
		l.PacketsOut = r.Uint32N(l.Cwnd + 3)
		l.SackedOut, l.LostOut, l.RetransOut = r.Uint32N(3), r.Uint32N(3), r.Uint32N(3)
		l.Queued = (l.WriteSeq - l.SndUna) * 3 / 2
		l.RateDelivered, l.RateIntervalUs = r.Uint32N(100), r.Uint32N(100_000)
		l.Expires = 0
		if r.IntN(4) > 0 {
			l.Expires = s.Jiffies + r.Uint64N(100)
		}
		l.Revives = 0
		switch r.IntN(60) {
		case 0:
			l.Stale = 1 - l.Stale
		case 1:
			l.StaleCount = uint8(r.IntN(6))
		case 2:
			l.CAState, l.HighSeq = uint8(r.IntN(5)), l.SndNxt
		case 3:
			l.Active = 1 - l.Active
		case 4:
			l.Ssthresh = 2 + r.Uint32N(40)
		case 5:
			l.Revives = 1
		}
	}
}

// The decisions of connections to which anything happens come, with all that the schedulers keep between them, to what the
// same C sources come to that are compiled for this machine, with sockets that are laid out by C.
func TestSchedulersAsNative(t *testing.T) {
	start := *seed
	if start == 0 {
		start = rand.Uint64()
	}
	t.Logf("repeat with: go test ./internal/experiment/sim/control -run '^%s$' -seed %d", t.Name(), start)
	for _, e := range catalog.Entries {
		if e.Kind != catalog.Sched {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			g := newScheduling(t, e.Name)
			r := rand.New(rand.NewPCG(start, 0))
			for range *connections {
				g.random(t, r)
			}
			g.compare(t, compileNative(t, "schedule.c", e.Name))
		})
	}
}

// compare has the same happen to the native program's connections.
func (g *scheduling) compare(t *testing.T, program string) {
	t.Helper()
	chose := compareNative(t, program, g.steps, g.outcomes, func(_ schedulerStep, o schedulerOutcome) bool { return o.Scheduled != 0 })
	if chose < len(g.steps)/5 {
		t.Errorf("of %d decisions %d chose a subflow", len(g.steps), chose)
	}
	asked := 0
	for _, o := range g.outcomes {
		if o.Buffer > 0 {
			asked++
		}
	}
	if asked < len(g.steps)/5 {
		t.Errorf("of %d decisions %d asked for a send buffer", len(g.steps), asked)
	}
}
