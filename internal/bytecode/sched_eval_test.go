// SPDX-License-Identifier: Apache-2.0

package bytecode_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/test/reference"
	"github.com/mpcc/mpcc/test/reference/sched"
)

// own is what a packet scheduler keeps for itself, beside the variable eval.
const own = "eval_own"

// scenes are the bytes of eval and of own.
type scenes struct{ eval, own []byte }

func (s scenes) clone() scenes { return scenes{slices.Clone(s.eval), slices.Clone(s.own)} }

// schedule is the whole decision in the kernel.
func (ev *evaluation) schedule(t *testing.T, given scenes) scenes {
	t.Helper()
	after := given.clone()
	for name, image := range map[string][]byte{"eval": after.eval, own: after.own} {
		if err := ev.kernel.Variables[name].Set(image); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ev.kernel.Programs["mpcc_eval"].Run(&ebpf.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, image := range map[string][]byte{"eval": after.eval, own: after.own} {
		if err := ev.kernel.Variables[name].Get(image); err != nil {
			t.Fatal(err)
		}
	}
	return after
}

func (e evaluating) schedule(t *testing.T, given scenes) (after scenes) {
	t.Helper()
	for name, image := range map[string][]byte{"eval": given.eval, own: given.own} {
		v, err := e.m.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		copy(v, image)
		defer func() {
			if name == own {
				after.own = slices.Clone(v)
			} else {
				after.eval = slices.Clone(v)
			}
		}()
	}
	if _, err := e.p.Run(0); err != nil {
		t.Fatal(err)
	}
	return after
}

// compareScenes fails the test if a machine leaves other bytes than the kernel. It returns them.
func (ev *evaluation) compareScenes(t *testing.T, given scenes, names ...string) scenes {
	t.Helper()
	want := ev.schedule(t, given)
	for _, name := range names {
		got := ev.machines[name].schedule(t, given)
		if !bytes.Equal(got.eval, want.eval) || !bytes.Equal(got.own, want.own) {
			t.Fatalf("%s leaves\n%x\n%x\nthe kernel\n%x\n%x\nof\n%x\n%x", name, got.eval, got.own, want.eval, want.own, given.eval, given.own)
		}
	}
	return want
}

// scene writes a connection as the C structs have it.
func (ev *evaluation) scene(t *testing.T, scene sched.Scene) scenes {
	t.Helper()
	raw, err := json.Marshal(scene)
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Connection, Memory map[string]float64
		Subflows           []map[string]float64
	}
	if err := json.Unmarshal(raw, &values); err != nil {
		t.Fatal(err)
	}
	s := scenes{make([]byte, ev.size), make([]byte, ev.ownSize)}
	for _, part := range []struct {
		s     *btf.Struct
		image []byte
	}{{ev.eval, s.eval}, {ev.own, s.own}} {
		for _, m := range part.s.Members {
			at := m.Offset.Bytes()
			switch m.Name {
			case "count":
				binary.LittleEndian.PutUint32(part.image[at:], uint32(len(scene.Subflows)))
			case "demand":
				writeFields(t, m.Type, part.image[at:], values.Connection)
			case "memory":
				writeFields(t, m.Type, part.image[at:], values.Memory)
			case "lanes":
				a := btf.UnderlyingType(m.Type).(*btf.Array)
				size, err := btf.Sizeof(a.Type)
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range values.Subflows {
					writeFields(t, a.Type, part.image[int(at)+i*size:], v)
				}
			}
		}
	}
	return s
}

// writeFields writes values into a struct, and into those within it, by the names of fields.
func writeFields(t *testing.T, of btf.Type, image []byte, values map[string]float64) {
	t.Helper()
	for _, m := range btf.UnderlyingType(of).(*btf.Struct).Members {
		to := image[m.Offset.Bytes():]
		key, times := m.Name, 1.
		if us, ok := strings.CutSuffix(key, "_us8"); ok {
			key, times = us+"_us", 8
		}
		value, given := values[key]
		inner, isStruct := btf.UnderlyingType(m.Type).(*btf.Struct)
		switch {
		case isStruct && inner.Name != "mpcc_num":
			writeFields(t, inner, to, values)
		case !given:
		case isStruct:
			fraction, exponent := math.Frexp(value)
			binary.LittleEndian.PutUint32(to, uint32(math.Ldexp(fraction, 32)))
			binary.LittleEndian.PutUint32(to[4:], uint32(int32(exponent-32)))
		default:
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], uint64(value*times))
			copy(to, b[:size])
		}
	}
}

// All vectors of packet schedulers give in a machine, to the bit, what they give in the kernel, with what the scheduler
// remembers, and so do connections drawn at random, and bytes that are no connection at all.
func TestSchedulersAsInKernel(t *testing.T) {
	r := random(t)
	for _, e := range catalog.Entries {
		if e.Kind != catalog.Sched {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			ev := newEvaluation(t, e)
			var set reference.Tunables
			ran, chose := 0, 0
			for _, folder := range []string{"sched", "derived/sched"} {
				v, err := sched.ReadVectors(filepath.Join("../../testdata/vectors", folder, e.Name+".json"))
				if err != nil {
					t.Fatal(err)
				}
				for i, c := range v.Cases {
					if !maps.Equal(c.Set, set) {
						set = c.Set
						ev.set(t, set)
					}
					given := ev.scene(t, c.Scene)
					if after := ev.compareScenes(t, given, chosen(i)...); !bytes.Equal(after.eval, given.eval) {
						chose++
					}
					ran++
				}
			}
			if chose < ran/2 {
				t.Errorf("of %d vectors %d decide anything", ran, chose)
			}
			ev.set(t, nil)
			for i := range *inputs {
				s := scenes{make([]byte, ev.size), make([]byte, ev.ownSize)}
				if i%4 == 3 {
					for _, image := range [][]byte{s.eval, s.own} {
						for j := range image {
							image[j] = byte(r.Uint32())
						}
					}
					binary.LittleEndian.PutUint32(s.eval, 1+r.Uint32N(sched.MaxSubflows))
				} else {
					drawn, err := sched.Of(e.Name)
					if err != nil {
						t.Fatal(err)
					}
					s = ev.scene(t, drawn.Random(r))
				}
				ev.compareScenes(t, s, chosen(i)...)
			}
			t.Logf("%d vectors, %d random inputs", ran, *inputs)
		})
	}
}
