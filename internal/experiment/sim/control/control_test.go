// SPDX-License-Identifier: Apache-2.0

package control

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/reference"
)

// asPublished are the tunables as the algorithms' sources have them, which is what the reference computes.
var asPublished = map[string]string{loader.Paper: ""}

// simulation is an algorithm and its clock.
type simulation struct {
	*Algorithm
	now uint64 // nanoseconds
}

func newSimulation(t testing.TB, name string, set map[string]string, interpret bool) *simulation {
	t.Helper()
	sim := &simulation{now: 1e9}
	spec, err := specOf(catalog.CC, name, set)
	if err != nil {
		t.Fatal(err)
	}
	if sim.Algorithm, err = load(spec, name, func() uint64 { return sim.now }, rand.Uint32, interpret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sim.Err(); err != nil {
			t.Error(err)
		}
		sim.Close()
	})
	return sim
}

// stateOf is a socket in congestion avoidance whose window is used up. Every socket sends through the same interface to the
// same peer, so that couple=shared couples the subflows of a connection without a verdict on their bottlenecks.
func stateOf(s reference.Subflow) *State {
	minRTT := uint32(s.BaseRTT)
	if minRTT == 0 {
		minRTT = ^uint32(0)
	}
	return &State{
		Cwnd: uint32(s.Cwnd), CwndClamp: ^uint32(0), Ssthresh: 1, SrttUs: uint32(s.SRTT * 8), MinRttUs: minRTT,
		RackRttUs: uint32(s.SRTT), PacketsOut: 1, MaxPacketsOut: 1, MSS: 1448, CwndLimited: true,
		Backup: s.Backup != 0, Stale: s.Stale != 0, Closing: s.Closing != 0, Interface: 1, Peer: 1,
	}
}

// connect makes a connection of these subflows, with the losses that they have seen.
func connect(t testing.TB, sim *simulation, subflows []reference.Subflow) (list []*Subflow, states []*State) {
	t.Helper()
	c := sim.Connection()
	for _, s := range subflows {
		state := stateOf(s)
		flow, err := c.Subflow(state)
		if err != nil {
			t.Fatal(err)
		}
		if s.BytesBetweenLosses > 0 {
			state.BytesAcked = uint64(s.BytesBetweenLosses)
			flow.SSThresh()
		}
		state.BytesAcked = uint64(s.BytesBetweenLosses) + uint64(s.BytesSinceLoss)
		list, states = append(list, flow), append(states, state)
	}
	return list, states
}

func algorithm(t *testing.T, name string) reference.Algorithm {
	t.Helper()
	a, err := reference.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The most segments that one ACK counts for: in so many, the increase of one shows to five digits.
const manySegments = 65535

// onRule are the algorithms whose increase and decrease are those of mpcc_eval, of what a State holds. The others' hang
// on what they remember of rounds and periods.
var onRule = []string{"balia", "coupled", "dts", "dwc", "ecmtcp", "emreno", "ewtcp", "lia", "olia"}

// Random connections, in any of which a subflow gets an ACK and then a loss, against the reference.
func TestDecisionsOfRandomConnections(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range onRule {
		a := algorithm(t, name)
		sim := newSimulation(t, name, asPublished, false)
		for range 400 {
			subflows := a.Random(r)
			for i := range subflows {
				subflows[i].PricePJ, subflows[i].Group = 0, 0
			}
			list, states := connect(t, sim, subflows)
			i := r.IntN(len(subflows))
			want := a.Decide(subflows, nil)[i]
			before := states[i].Cwnd
			list[i].CongAvoid(0, manySegments)
			increase := (float64(states[i].Cwnd) - float64(before)) / manySegments
			// A window that shrinks ends at the floor.
			if up := want.Up - want.Down; math.Abs(increase-up) > 1.0/manySegments+max(a.Precision, 1e-6)*(want.Up+want.Down) && float64(before)+up*manySegments > 1 {
				t.Fatalf("%s: subflow %d grows by %v a segment, want %v\n%+v", name, i, increase, up, subflows)
			}
			states[i].Cwnd = before
			if got := float64(list[i].SSThresh()); got != want.AfterLoss {
				t.Fatalf("%s: subflow %d has %v packets after a loss, want %v\n%+v", name, i, got, want.AfterLoss, subflows)
			}
			for _, s := range list {
				s.Release()
			}
		}
	}
}

// The window in time: a decision is made once in an RTT, on what the siblings are by then, and fractions add up.
func TestWindowInTime(t *testing.T) {
	for _, name := range []string{"lia", "olia", "dts"} {
		a := algorithm(t, name)
		sim := newSimulation(t, name, asPublished, false)
		subflows := []reference.Subflow{
			{Cwnd: 20, SRTT: 50000, BaseRTT: 40000, BytesBetweenLosses: 1e6, BytesSinceLoss: 5e5},
			{Cwnd: 30, SRTT: 20000, BaseRTT: 15000, BytesBetweenLosses: 3e6, BytesSinceLoss: 1e5},
		}
		list, states := connect(t, sim, subflows)
		want := []float64{20, 30}
		var up, credit [2]float64
		decided := []uint64{0, 0}
		for tick := range 4000 {
			sim.now += 1e6
			i := tick % 2
			// What TCP does between callbacks is seen too.
			if tick%500 == 499 {
				subflows[1-i].SRTT += 1000
				states[1-i].SrttUs += 1000 << 3
			}
			if sim.now-decided[i] >= uint64(subflows[i].SRTT)*1000 {
				for j := range subflows {
					subflows[j].Cwnd = float64(states[j].Cwnd)
				}
				d := a.Decide(subflows, nil)[i]
				up[i], decided[i] = d.Up-d.Down, sim.now
			}
			list[i].CongAvoid(0, 1)
			credit[i] += up[i]
			if whole := math.Trunc(credit[i]); whole != 0 {
				want[i], credit[i] = want[i]+whole, credit[i]-whole
			}
			if math.Abs(float64(states[i].Cwnd)-want[i]) > 1 {
				t.Fatalf("%s: after %d ms subflow %d has %d packets, want %v", name, tick, i, states[i].Cwnd, want[i])
			}
		}
		if states[0].Cwnd < 22 || states[1].Cwnd < 40 {
			t.Errorf("%s: the windows are %d and %d: they have hardly grown", name, states[0].Cwnd, states[1].Cwnd)
		}
	}
}

// A subflow's record of delays says how many siblings it judges, of how many subflows.
func TestRecordCountsSubflows(t *testing.T) {
	sim := newSimulation(t, "lia", nil, false)
	list, _ := connect(t, sim, slices.Repeat([]reference.Subflow{{Cwnd: 20, SRTT: 50000, BaseRTT: 40000}}, 8))
	for range 100 {
		sim.now += 20e6
		for _, s := range list {
			s.CongAvoid(0, 1)
		}
	}
	records, err := sim.m.Map("mpcc_bottlenecks")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := specOf(catalog.CC, "lia", nil)
	if err != nil {
		t.Fatal(err)
	}
	var record *btf.Struct
	if err := spec.Types.TypeByName("mpcc_delays", &record); err != nil {
		t.Fatal(err)
	}
	for id := range uint64(8) {
		value := records.Lookup(binary.LittleEndian.AppendUint64(nil, 1+id))
		if value == nil {
			t.Fatalf("subflow %d has no record", 1+id)
		}
		want := map[string]uint16{"siblings": uint16(7 - id), "subflows": 8}
		for _, m := range record.Members {
			if n, ok := want[m.Name]; ok {
				if got := binary.LittleEndian.Uint16(value[m.Offset.Bytes():]); got != n {
					t.Errorf("subflow %d: %d %s, want %d", 1+id, got, m.Name, n)
				}
				delete(want, m.Name)
			}
		}
		if len(want) > 0 {
			t.Errorf("a record lacks %v", want)
		}
	}
}

// OLIA forgets a loss that was none: it grows as before, from the window before.
func TestUndo(t *testing.T) {
	a := algorithm(t, "olia")
	sim := newSimulation(t, "olia", asPublished, false)
	subflows := []reference.Subflow{
		{Cwnd: 40, SRTT: 50000, BytesBetweenLosses: 1e6, BytesSinceLoss: 2e6}, {Cwnd: 20, SRTT: 50000, BytesBetweenLosses: 3e6},
		{Cwnd: 20, SRTT: 50000, BytesBetweenLosses: 2e6},
	}
	list, states := connect(t, sim, subflows)
	grows := func(want reference.Decision) {
		t.Helper()
		const segments = 4000
		before := states[0].Cwnd
		list[0].CongAvoid(0, segments)
		got := (float64(states[0].Cwnd) - float64(before)) / segments
		if math.Abs(got-want.Up+want.Down) > 2.0/segments {
			t.Errorf("it grows by %v a segment, want %v", got, want.Up-want.Down)
		}
		states[0].Cwnd = before
	}
	undone := a.Decide(subflows, nil)[0]
	states[0].PriorCwnd = states[0].Cwnd
	states[0].Cwnd = list[0].SSThresh()
	states[0].BytesAcked += 10_000_000
	lost := []reference.Subflow{{Cwnd: 20, SRTT: 50000, BytesBetweenLosses: 2e6, BytesSinceLoss: 1e7}, subflows[1], subflows[2]}
	grows(a.Decide(lost, nil)[0])
	states[0].BytesAcked -= 10_000_000
	if states[0].Cwnd = list[0].UndoCwnd(); states[0].Cwnd != 40 {
		t.Errorf("the window is %d again, want 40", states[0].Cwnd)
	}
	// The decision that stands is from before the undo.
	sim.now += 1e8
	grows(undone)
}

// A subflow that is left alone is Reno, with the tunables of the papers.
func TestSiblingLeaves(t *testing.T) {
	sim := newSimulation(t, "lia", asPublished, false)
	list, states := connect(t, sim, []reference.Subflow{{Cwnd: 16, SRTT: 50000}, {Cwnd: 16, SRTT: 50000}, {Cwnd: 16, SRTT: 50000}})
	for _, want := range []uint32{144, 64, 16} {
		sim.now += 1e8
		states[0].Cwnd = 16
		list[0].SSThresh() // The fraction of a packet is void.
		list[0].CongAvoid(0, want-1)
		short := states[0].Cwnd
		list[0].CongAvoid(0, 2)
		if short != 16 || states[0].Cwnd != 17 {
			t.Errorf("%d subflows: the window is %d and %d around segment %d, want 16 and 17", len(list), short, states[0].Cwnd, want)
		}
		if n := len(list); n > 1 {
			list[n-1].Release()
			list = list[:n-1]
		}
	}
}

// What is not MPTCP goes to the kernel's CUBIC, unless it is told otherwise.
func TestPlainSocket(t *testing.T) {
	for tunable, want := range map[string]string{"kernel": "cubic", "own": ""} {
		sim := newSimulation(t, "dts", map[string]string{"plain": tunable}, false)
		state := stateOf(reference.Subflow{Cwnd: 10, SRTT: 50000})
		s, err := sim.Socket(state)
		if err != nil {
			t.Fatal(err)
		}
		s.CongAvoid(0, 40) // CUBIC adds a packet for every 20 before the first loss
		if grown := state.Cwnd > 10; s.HandedTo() != want || grown != (want == "") {
			t.Errorf("plain=%s: it was handed to %q and has %d packets", tunable, s.HandedTo(), state.Cwnd)
		}
		s.Release()
	}
}

// Slow start is the kernel's: up to ssthresh, and what is left over is for congestion avoidance.
func TestSlowStart(t *testing.T) {
	sim := newSimulation(t, "lia", asPublished, false)
	state := stateOf(reference.Subflow{Cwnd: 10, SRTT: 50000})
	state.Ssthresh = 20
	s, err := sim.Connection().Subflow(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ acked, want uint32 }{{3, 13}, {6, 19}, {20, 20}, {2, 21}} {
		if s.CongAvoid(0, step.acked); state.Cwnd != step.want {
			t.Fatalf("after %d segments the window is %d, want %d", step.acked, state.Cwnd, step.want)
		}
	}
	state.CwndLimited = false
	if s.CongAvoid(0, 100); state.Cwnd != 21 {
		t.Errorf("a window that is not used up grows to %d", state.Cwnd)
	}
}

// wVegas, by its rounds: without a queue, with one, and after an idle restart, which forgets the smallest RTT.
func TestRounds(t *testing.T) {
	const restart = 1 // CA_EVENT_CWND_RESTART
	a := algorithm(t, "wvegas")
	sim := newSimulation(t, "wvegas", asPublished, false)
	subflows := []reference.Subflow{{Cwnd: 30, Ssthresh: 1, SRTT: 40000, BaseRTT: 40000, Alpha: 2}, {Cwnd: 10, SRTT: 50000}}
	list, states := connect(t, sim, subflows)
	round := func(rtt uint32) uint32 {
		states[0].RackRttUs, states[0].SrttUs = rtt, rtt<<3
		for range 4 {
			list[0].CongAvoid(states[0].SndUna, 1)
		}
		states[0].SndNxt += 100_000
		sim.now += uint64(rtt) * 1000
		states[0].SndUna = states[0].SndNxt - 50_000
		list[0].CongAvoid(states[0].SndUna, 1)
		return states[0].Cwnd
	}
	states[0].SndNxt = 1 << 20
	states[0].SndUna = states[0].SndNxt
	for _, step := range []struct {
		rtt, base float64
		event     bool
	}{{40000, 40000, false}, {60000, 40000, false}, {60000, 60000, true}} {
		if step.event {
			list[0].CwndEvent(restart)
		}
		subflows[0].Cwnd, subflows[0].SRTT, subflows[0].BaseRTT = float64(states[0].Cwnd), step.rtt, step.base
		want := a.Decide(subflows, nil)[0].Window
		if got := round(uint32(step.rtt)); float64(got) != want || want == subflows[0].Cwnd {
			t.Errorf("RTT %v above %v: the window is %d, want %v, from %v", step.rtt, step.base, got, want, subflows[0].Cwnd)
		}
	}
}

// Interfaces' power shifts traffic, where the algorithm takes it into account.
func TestPrices(t *testing.T) {
	a := algorithm(t, "emreno")
	sim := newSimulation(t, "emreno", asPublished, false)
	profiles := []EnergyProfile{{UpUwPerMbps: 300, BaseUw: 500_000}, {UpUwPerMbps: 50, BaseUw: 1_200_000}}
	subflows := []reference.Subflow{{Cwnd: 20, SRTT: 50000}, {Cwnd: 30, SRTT: 20000}}
	c := sim.Connection()
	var list []*Subflow
	var states []*State
	for i, p := range profiles {
		if err := sim.SetEnergy(uint32(i+1), p); err != nil {
			t.Fatal(err)
		}
		state := stateOf(subflows[i])
		state.Interface = uint32(i + 1)
		s, err := c.Subflow(state)
		if err != nil {
			t.Fatal(err)
		}
		list, states = append(list, s), append(states, state)
		bits := subflows[i].Cwnd * float64(state.MSS) * 8
		subflows[i].PricePJ = float64(p.UpUwPerMbps) + math.Floor(float64(p.BaseUw)*subflows[i].SRTT/bits)
	}
	priced, without := a.Decide(subflows, nil), a.Decide([]reference.Subflow{{Cwnd: 20, SRTT: 50000}, {Cwnd: 30, SRTT: 20000}}, nil)
	differs := false
	for i := range list {
		before := states[i].Cwnd
		list[i].CongAvoid(0, manySegments)
		if got := float64(states[i].Cwnd-before) / manySegments; math.Abs(got-priced[i].Up) > 1.0/manySegments {
			t.Errorf("subflow %d grows by %v a segment, want %v", i, got, priced[i].Up)
		}
		states[i].Cwnd = before
		differs = differs || math.Abs(priced[i].Up-without[i].Up) > 10.0/manySegments
	}
	if !differs {
		t.Error("these prices change nothing")
	}
}

// script has every algorithm meet ACKs, losses, undos, timeouts, subflows that come and go, and siblings that change.
func script(t *testing.T, name string, interpret bool) (digest [sha256.Size]byte, moves int) {
	r := rand.New(rand.NewPCG(3, 4))
	sim := newSimulation(t, name, map[string]string{"couple": "shared"}, interpret)
	for i := range uint32(3) {
		if err := sim.SetEnergy(1+i, EnergyProfile{UpUwPerMbps: 100 * i, DownUwPerMbps: 50, BaseUw: 1_000_000 / (1 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	h := sha256.New()
	var list []*Subflow
	var states []*State
	c := sim.Connection()
	for range 600 {
		if len(list) == 0 || len(list) < 6 && r.IntN(100) == 0 {
			state := stateOf(reference.Subflow{Cwnd: float64(1 + r.IntN(50)), SRTT: float64(10_000 + r.IntN(100_000))})
			state.Ssthresh, state.Interface, state.Peer = r.Uint32N(60), 1+r.Uint32N(3), r.Uint32N(3)
			s, err := c.Subflow(state)
			if err != nil {
				t.Fatal(err)
			}
			list, states = append(list, s), append(states, state)
		}
		sim.now += r.Uint64N(5e6)
		i := r.IntN(len(list))
		s, v := list[i], states[i]
		v.SrttUs += r.Uint32N(2000)
		v.RackRttUs = v.SrttUs>>3 + r.Uint32N(20_000)
		v.MinRttUs = min(v.MinRttUs, v.RackRttUs)
		v.BytesAcked += 1448
		v.BytesSent += 1448
		v.SndUna += 1448
		v.SndNxt = v.SndUna + 1448*v.Cwnd
		switch r.IntN(60) {
		case 0:
			v.PriorCwnd, v.PriorSsthresh = v.Cwnd, v.Ssthresh
			v.Ssthresh = s.SSThresh()
			v.Cwnd = v.Ssthresh
			s.SetState(3)
			v.CAState = 3
		case 1:
			v.Cwnd = s.UndoCwnd()
			s.SetState(0)
			v.CAState = 0
		case 2:
			v.Ssthresh = s.SSThresh()
			v.Cwnd, v.Backoff = 1, v.Backoff+1
			s.SetState(4)
			v.CAState = 4
		case 3:
			s.CwndEvent(1)
		case 4:
			v.Backup = !v.Backup
		case 5:
			s.Release()
			list, states = append(list[:i], list[i+1:]...), append(states[:i], states[i+1:]...)
		default:
			v.Backoff = 0
			s.PktsAcked(1, int32(v.RackRttUs), v.PacketsOut)
			before := v.Cwnd
			s.CongAvoid(v.SndUna, 1+r.Uint32N(3))
			s.InAck(0)
			if v.Cwnd != before {
				moves++
			}
		}
		if err := binary.Write(h, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), moves
}

// wazero's compiler and its interpreter, which other machines have, come to the same.
func TestInterpretedAsCompiled(t *testing.T) {
	for _, name := range append([]string{"cdd", "dtsx", "mpcubic", "wvegas"}, onRule...) {
		compiled, moves := script(t, name, false)
		if interpreted, _ := script(t, name, true); interpreted != compiled {
			t.Errorf("%s: interpreted it comes to something else", name)
		}
		// The same on every machine, for who compares two.
		t.Logf("%s: %x", name, compiled)
		if moves < 50 {
			t.Errorf("%s: callbacks have moved windows %d times only", name, moves)
		}
	}
}

// What came and went leaves no memory behind.
func TestMemoryIsUsedAgain(t *testing.T) {
	sim := newSimulation(t, "dts", map[string]string{"couple": "shared"}, false)
	come := func() {
		list, _ := connect(t, sim, make([]reference.Subflow, 3))
		plain, err := sim.Socket(&State{})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			sim.now += 1e8
			for _, s := range list {
				s.CongAvoid(0, 1)
			}
		}
		for _, s := range append(list, plain) {
			s.Release()
		}
	}
	come()
	before := sim.m.Allocate(8)
	for range 100 {
		come()
	}
	if after := sim.m.Allocate(8); after != before+8 {
		t.Errorf("they left %d bytes", after-before-8)
	}
}

// Repeats of an experiment run side by side, with nothing in common but what was compiled.
func TestSideBySide(t *testing.T) {
	var digests [4][sha256.Size]byte
	t.Run("all", func(t *testing.T) {
		for i := range digests {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				digests[i], _ = script(t, "dts", false)
			})
		}
	})
	for i, digest := range digests {
		if digest != digests[0] {
			t.Errorf("run %d comes to something else", i)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	sim := newSimulation(t, "lia", nil, false)
	list, _ := connect(t, sim, []reference.Subflow{{Cwnd: 20, SRTT: 50000}, {Cwnd: 20, SRTT: 50000}})
	if n := testing.AllocsPerRun(1000, func() {
		sim.now += 1e6
		list[0].CongAvoid(0, 1)
		list[0].PktsAcked(1, 50000, 10)
		list[0].SSThresh()
	}); n != 0 {
		t.Errorf("a callback allocates %v times", n)
	}
}

func TestLoadRefuses(t *testing.T) {
	if _, err := Load("reno", nil, nil, nil); err == nil {
		t.Error("reno is no algorithm of the catalog, and was loaded")
	}
	if _, err := Load("lia", map[string]string{"min_cwnd": "1"}, nil, nil); !errors.Is(err, loader.ErrUsage) {
		t.Errorf("lia has no min_cwnd, and the error is %v", err)
	}
}

// What an ACK costs, one tenth of a millisecond after the other.
func BenchmarkCongAvoid(b *testing.B) {
	for _, c := range []struct {
		name, algorithm string
		set             map[string]string
	}{
		{"reno", "lia", map[string]string{"alone": "reno", "slow_start": "standard"}}, {"lia", "lia", nil}, {"dts", "dts", nil}, {"olia", "olia", nil},
	} {
		for _, subflows := range []int{1, 2, 8} {
			if c.name == "reno" && subflows > 1 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", c.name, subflows), func(b *testing.B) {
				sim := newSimulation(b, c.algorithm, c.set, false)
				list, states := connect(b, sim, make([]reference.Subflow, subflows))
				for _, s := range states {
					s.Cwnd, s.SrttUs, s.MinRttUs, s.RackRttUs = 10, 50000<<3, 40000, 50000
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					sim.now += 1e5
					list[i].CongAvoid(0, 1)
					if states[i].Cwnd > 1000 {
						states[i].Cwnd = 10
					}
					if i++; i == subflows {
						i = 0
					}
				}
			})
		}
	}
}
