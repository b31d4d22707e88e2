// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/catalog"
)

var (
	connections = flag.Int("connections", 20, "random connections for each algorithm")
	seed        = flag.Uint64("seed", 1, "of the random connections; 0 = a new one")
)

// step is struct step of testdata/replay.c, outcome its struct outcome.
type step struct {
	NowUs, BytesAcked, PacingRate                                uint64
	Cwnd, Ssthresh, SrttUs8, MinRttUs, RackRttUs                 uint32
	PacketsOut, MaxPacketsOut, MSS, SndUna, SndNxt, SndWnd, GSO  uint32
	Acked                                                        uint32
	Subflow, Event, Backoff, Limited, Pacing, Backup, Stale, End uint8
	Prior                                                        uint32 // PriorSsthresh
}

type outcome struct {
	Result, Cwnd, Ssthresh uint32
	Private                [104]byte
}

const (
	begin = iota
	change
	congAvoid
	ssthresh
	setState
	cwndEvent
	undoCwnd
	release
)

// compileNative has the C compiler compile an algorithm for this machine, in a program of testdata, which it returns.
func compileNative(t *testing.T, program, name string) string {
	t.Helper()
	const root = "../../../../"
	compiled := filepath.Join(t.TempDir(), name)
	compile := exec.Command("clang-19", "-O1", "-fno-strict-aliasing", "-I", root+"bpf", "-I", root+"bpf/include", "-I", root+"test/fuzz",
		"-DALGORITHM="+name, "-o", compiled, filepath.Join("testdata", program))
	if text, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", compile, err, text)
	}
	return compiled
}

// replay notes what happens, and what comes of it.
type replay struct {
	sim      *simulation
	private  uint32 // where in struct tcp_sock the algorithm keeps what it remembers
	list     []*Subflow
	states   []*State
	steps    []step
	outcomes []outcome
}

// do has something happen to a subflow.
func (r *replay) do(t *testing.T, s step) outcome {
	t.Helper()
	r.sim.now = s.NowUs * 1000
	var o outcome
	if s.Event == begin {
		c := r.sim.Connection()
		r.list, r.states = nil, nil
		for range s.Acked {
			state := &State{CwndClamp: ^uint32(0)}
			state.set(s)
			flow, err := c.Subflow(state)
			if err != nil {
				t.Fatal(err)
			}
			r.list, r.states = append(r.list, flow), append(r.states, state)
		}
	} else {
		r.states[s.Subflow].set(s)
		o.Result = r.list[s.Subflow].happen(s)
	}
	flow, state := r.list[s.Subflow], r.states[s.Subflow]
	o.Cwnd, o.Ssthresh = state.Cwnd, state.Ssthresh
	copy(o.Private[:], r.sim.at(flow.sock+uint64(r.private), uint32(len(o.Private))))
	// The key of the live map, which the native one has not.
	clear(o.Private[:8])
	r.steps, r.outcomes = append(r.steps, s), append(r.outcomes, o)
	return o
}

// compare has the same happen to the native program's sockets.
func (r *replay) compare(t *testing.T, program string) {
	t.Helper()
	grown := compareNative(t, program, r.steps, r.outcomes, func(s step, o outcome) bool { return o.Cwnd > s.Cwnd })
	if grown < len(r.steps)/20 {
		t.Errorf("in %d steps windows have grown %d times only", len(r.steps), grown)
	}
}

// compareNative fails the test unless a native program has the same outcome of each step, and counts those that are told.
func compareNative[S any, O comparable](t *testing.T, program string, steps []S, outcomes []O, told func(S, O) bool) (count int) {
	t.Helper()
	input, err := binary.Append(nil, binary.LittleEndian, steps)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(program)
	run.Stdin = bytes.NewReader(input)
	raw, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	wanted := make([]O, len(steps))
	if _, err := binary.Decode(raw, binary.LittleEndian, wanted); err != nil {
		t.Fatal(err)
	}
	for i, want := range wanted {
		if outcomes[i] != want {
			t.Fatalf("step %d, %+v: there is\n%+v, compiled for this machine\n%+v", i, steps[i], outcomes[i], want)
		}
		if told(steps[i], want) {
			count++
		}
	}
	return count
}

func (v *State) set(s step) {
	v.BytesAcked, v.PacingRate, v.PacingStatus, v.GSOMaxSize, v.Backoff = s.BytesAcked, s.PacingRate, uint32(s.Pacing), s.GSO, s.Backoff
	v.Cwnd, v.Ssthresh, v.SrttUs, v.MinRttUs, v.RackRttUs = s.Cwnd, s.Ssthresh, s.SrttUs8, s.MinRttUs, s.RackRttUs
	v.PacketsOut, v.MaxPacketsOut, v.MSS, v.SndUna, v.SndNxt, v.SndWnd = s.PacketsOut, s.MaxPacketsOut, s.MSS, s.SndUna, s.SndNxt, s.SndWnd
	v.PriorSsthresh = s.Prior
	v.CwndLimited, v.Backup, v.Stale, v.Closing = s.Limited != 0, s.Backup != 0, s.Stale != 0, s.End != 0
}

func (s *Subflow) happen(what step) uint32 {
	switch what.Event {
	case congAvoid:
		s.CongAvoid(what.SndUna, what.Acked)
	case ssthresh:
		return s.SSThresh()
	case setState:
		s.SetState(uint8(what.Acked))
	case cwndEvent:
		s.CwndEvent(int(what.Acked))
	case undoCwnd:
		return s.UndoCwnd()
	case release:
		s.Release()
	}
	return 0
}

// The callbacks on connections to which anything happens come, with all that they remember, to what the same C sources
// come to that are compiled for this machine, with sockets that are laid out by C.
func TestCallbacksAsNative(t *testing.T) {
	start := *seed
	if start == 0 {
		start = rand.Uint64()
	}
	t.Logf("repeat with: go test ./internal/experiment/sim/control -run '^%s$' -seed %d", t.Name(), start)
	for _, e := range catalog.Entries {
		if e.Kind != catalog.CC {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			// The native one has no maps, where records of delays would be.
			set := map[string]string{"couple": "always"}
			sim := newSimulation(t, e.Name, set, false)
			spec, err := specOf(catalog.CC, e.Name, set)
			if err != nil {
				t.Fatal(err)
			}
			r := &replay{sim: sim, private: privateAt(t, spec.Types)}
			random := rand.New(rand.NewPCG(start, 0))
			for range *connections {
				r.random(t, random)
			}
			r.compare(t, compileNative(t, "replay.c", e.Name))
		})
	}
}

func privateAt(t *testing.T, types *btf.Spec) uint32 {
	t.Helper()
	_, at, ok := layoutOf(types, "tcp_sock").find("inet_conn.icsk_ca_priv")
	if !ok {
		t.Fatal("struct tcp_sock has no icsk_ca_priv")
	}
	return at
}

// random is one connection's life.
func (r *replay) random(t *testing.T, random *rand.Rand) {
	subflows := 1 + random.Uint32N(4)
	now := 1e6 + random.Uint64N(1<<33)
	first := step{
		NowUs: now, Event: begin, Acked: subflows, Cwnd: 10, Ssthresh: 0x7fffffff, MinRttUs: ^uint32(0), MSS: 1448,
		GSO: 65536, SndWnd: 1 << 20, SndUna: random.Uint32(), Limited: 1,
	}
	if random.IntN(2) == 0 {
		first.Ssthresh = 2 + random.Uint32N(60)
	}
	r.do(t, first)
	all := make([]step, subflows)
	alive := make([]uint8, subflows)
	for i := range all {
		all[i] = first
		all[i].Subflow = uint8(i)
		all[i].SrttUs8 = (1000 + random.Uint32N(200_000)) << 3
		alive[i] = uint8(i)
	}
	rtts := 1 + random.Uint64N(20)
	for range 400 {
		i := random.IntN(len(alive))
		s := &all[alive[i]]
		now += random.Uint64N(uint64(s.SrttUs8>>3) / rtts * 2)
		if random.IntN(200) == 0 {
			now += random.Uint64N(1 << 28)
		}
		s.NowUs, s.Acked = now, 1+random.Uint32N(4)
		s.RackRttUs = s.SrttUs8>>3 + random.Uint32N(s.SrttUs8>>4+1)
		s.SrttUs8 += s.RackRttUs - s.SrttUs8>>3
		s.MinRttUs = min(s.MinRttUs, s.RackRttUs)
		s.BytesAcked += uint64(s.Acked * s.MSS)
		s.SndUna += s.Acked * s.MSS
		s.SndNxt = s.SndUna + s.Cwnd*s.MSS
		s.PacketsOut = random.Uint32N(s.Cwnd + 1)
		s.MaxPacketsOut = s.PacketsOut
		s.PacingRate = uint64(random.Uint32N(1e8))
		s.Limited = one(random.IntN(10) > 0)
		s.Event, s.Backoff = congAvoid, 0
		switch random.IntN(60) {
		case 0, 1:
			// A mark, or a loss.
			s.Event, s.Prior = ssthresh, random.Uint32N(2)*s.Cwnd
		case 2:
			s.Event, s.Acked = setState, random.Uint32N(5)
		case 3:
			s.Event, s.Acked = cwndEvent, random.Uint32N(4)
		case 4:
			s.Event = undoCwnd
		case 5:
			s.Event, s.Backoff, s.Prior = ssthresh, 1, s.Cwnd
		case 6:
			s.Event, s.Backup = change, 1-s.Backup
		case 7:
			s.Event, s.Stale = change, 1-s.Stale
		case 8:
			s.Event, s.Pacing = change, 1-s.Pacing
		case 9:
			// What a sibling's TCP does by itself.
			s.Event, s.Cwnd = change, 1+random.Uint32N(100)
		case 10:
			if len(alive) > 1 && random.IntN(3) == 0 {
				s.Event = release
			}
		}
		o := r.do(t, *s)
		s.Cwnd, s.Ssthresh = o.Cwnd, o.Ssthresh
		switch s.Event {
		case ssthresh:
			s.Ssthresh, s.Cwnd = o.Result, o.Result
			if s.Backoff > 0 {
				s.Cwnd = 1
			}
		case undoCwnd:
			s.Cwnd = max(o.Result, 1)
		case release:
			alive = bytes.Clone(append(alive[:i:i], alive[i+1:]...))
		}
		// Beyond what memory a window needs.
		s.Cwnd = min(s.Cwnd, 1<<20)
	}
	for _, i := range alive {
		s := all[i]
		s.Event = release
		r.do(t, s)
	}
}
