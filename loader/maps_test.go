// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/test/said"
)

func newMap(t *testing.T, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// squares returns more entries than fit into one batch. No bucket of a hash of this size holds a whole batch.
func squares() map[uint64]uint64 {
	all := map[uint64]uint64{}
	for i := uint64(1); i <= 3*batch; i++ {
		all[i] = i * i
	}
	return all
}

func TestReadWholeHash(t *testing.T) {
	m := newMap(t, &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 4 * batch})
	want := squares()
	for k, v := range want {
		if err := m.Put(k, v); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read[uint64, uint64](&Maps{byName: map[MapName]*ebpf.Map{"squares": m}}, "squares")
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%d entries of %d, %v", len(got), len(want), err)
	}
	// Batches of one entry: a bucket that holds several does not fit.
	got = map[uint64]uint64{}
	err = visitBatches(m, 1, 1, func(k uint64, v []uint64) { got[k] = v[0] })
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%d entries of %d with small batches, %v", len(got), len(want), err)
	}
}

func TestReadPerCPUHash(t *testing.T) {
	m := newMap(t, &ebpf.MapSpec{Type: ebpf.PerCPUHash, KeySize: 8, ValueSize: 8, MaxEntries: 4 * batch})
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64][]uint64{}
	for k, v := range squares() {
		want[k] = make([]uint64, cpus)
		for cpu := range want[k] {
			want[k][cpu] = v + uint64(cpu)
		}
		if err := m.Put(k, want[k]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadPerCPU[uint64, uint64](&Maps{byName: map[MapName]*ebpf.Map{"squares": m}}, "squares")
	if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%d entries of %d, %v", len(got), len(want), err)
	}
	got = map[uint64][]uint64{}
	err = visitEntries(m, cpus, func(k uint64, v []uint64) { got[k] = slices.Clone(v) })
	if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%d entries of %d one by one, %v", len(got), len(want), err)
	}
}

// Entries that stay are visited once each while others come and go, in batches and one by one.
func TestVisitWhileEntriesComeAndGo(t *testing.T) {
	const staying = 2 * batch
	m := newMap(t, &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 4 * batch})
	for i := range uint64(staying) {
		if err := m.Put(i, i); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		const passing = uint64(1 << 32)
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			err := m.Put(passing+i, i)
			if i >= batch {
				err = errors.Join(err, m.Delete(passing+i-batch))
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	one := &Maps{byName: map[MapName]*ebpf.Map{"passing": m}}
	for range 20 {
		for way, visit := range map[string]func(func(uint64)) error{
			"in batches": func(f func(uint64)) error {
				return Visit(one, "passing", func(key uint64, _ *uint64) { f(key) })
			},
			"one by one": func(f func(uint64)) error {
				return visitEntries(m, 1, func(key uint64, _ []uint64) { f(key) })
			},
		} {
			times, stayed := map[uint64]int{}, 0
			err := visit(func(key uint64) {
				times[key]++
				if key < staying {
					stayed++
				}
			})
			if err != nil {
				t.Errorf("%s: %v", way, err)
			}
			if stayed != staying && way == "in batches" {
				t.Errorf("%s: %d of %d entries that stay", way, stayed, staying)
			}
			for key, n := range times {
				if n != 1 {
					t.Errorf("%s: entry %d is visited %d times", way, key, n)
				}
			}
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A type of map that has no batches on any kernel: its entries are read one by one.
func TestReadWithoutBatches(t *testing.T) {
	m := newMap(t, &ebpf.MapSpec{Type: ebpf.DevMapHash, KeySize: 4, ValueSize: 4, MaxEntries: 8})
	const loopback = uint32(1)
	if err := m.Put(uint32(7), loopback); err != nil {
		t.Fatal(err)
	}
	if err := visitBatches(m, 8, 1, func(uint32, []uint32) {}); !errors.Is(err, ebpf.ErrNotSupported) {
		t.Fatalf("it has batches, or none for another reason: %v", err)
	}
	got, err := Read[uint32, uint32](&Maps{byName: map[MapName]*ebpf.Map{"devices": m}}, "devices")
	if err != nil || !maps.Equal(got, map[uint32]uint32{7: loopback}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestReadOfOtherSizes(t *testing.T) {
	m := &Maps{byName: map[MapName]*ebpf.Map{
		"small": newMap(t, &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 8}),
	}}
	if err := m.byName["small"].Put(uint32(1), uint32(2)); err != nil {
		t.Fatal(err)
	}
	_, err := Read[uint64, uint64](m, "small")
	said.InALine(t, err, "read map small: ")
	_, err = Read[uint32, uint32](m, "large")
	said.InALine(t, err, `there is no shared map "large"`)
}

// MapName has a constant for each of the programs' shared maps, and no other.
func TestMapNames(t *testing.T) {
	var names, want []string
	for name, spec := range sized(t, 0) {
		if spec.Pinning == ebpf.PinByName {
			want = append(want, name)
		}
	}
	for _, name := range []MapName{
		MapSubflows, MapTotals, MapCounters, MapEnergy, MapConnections, MapSchedTotals, MapSchedCounters,
		MapShares, MapPathRules, MapPathUses,
	} {
		names = append(names, string(name))
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("there are %q, the programs have %q", names, want)
	}
}

func sized(t *testing.T, subflows int) map[string]*ebpf.MapSpec {
	t.Helper()
	spec, err := obj.LoadMaps()
	if err != nil {
		t.Fatal(err)
	}
	if err := sizeMaps(spec.Maps, subflows); err != nil {
		t.Fatal(err)
	}
	return spec.Maps
}

func TestSizesAreInProportion(t *testing.T) {
	for _, v := range []struct{ subflows, connections, totals, schedTotals int }{
		{leastSubflows, 8, 64, 64},
		{1024, 512, 64, 64},
		{16384, 8192, 1024, 256},
		{mostSubflows, 2097152, 262144, 65536},
	} {
		maps := sized(t, v.subflows)
		for name, want := range map[MapName]int{
			MapSubflows: v.subflows, MapConnections: v.connections, MapTotals: v.totals,
			MapSchedTotals: v.schedTotals, MapEnergy: 1024, MapCounters: 1,
		} {
			if got := int(maps[string(name)].MaxEntries); got != want {
				t.Errorf("%d subflows: %s has room for %d, want %d", v.subflows, name, got, want)
			}
		}
	}
	for _, wrong := range []int{-1, leastSubflows - 1, mostSubflows + 1} {
		err := sizeMaps(sized(t, 0), wrong)
		said.InALine(t, err, "give 16 to 4194304")
		if !errors.Is(err, ErrUsage) {
			t.Errorf("%d: %v is no usage error", wrong, err)
		}
	}
}

func TestSizeByMemory(t *testing.T) {
	for _, v := range []struct {
		memory uint64
		want   int
	}{
		{0, 1024}, {16 << 20, 1024}, {128 << 20, 2048}, {1 << 30, 16384}, {3 << 30, 32768}, {8<<30 - 1, 65536},
		{16 << 30, 262144}, {1 << 40, 262144},
	} {
		if got := subflowsFor(v.memory); got != v.want {
			t.Errorf("%d bytes: room for %d subflows, want %d", v.memory, got, v.want)
		}
	}
}

// Capacity's memory is at least what the kernel reports for full maps, and not much more. It is a little more
// because the kernel does not report what its allocator rounds up.
func TestMemoryOfFullMaps(t *testing.T) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range sized(t, 4096) {
		if spec.Pinning != ebpf.PinByName {
			continue
		}
		spec.Pinning = ebpf.PinNone
		m := newMap(t, spec)
		if spec.Type != ebpf.Array {
			fill(t, m, cpus)
		}
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		kernel, known := info.Memlock()
		if !known {
			t.Fatal("the kernel does not tell a map's memory")
		}
		told := memoryOf(m, cpus)
		t.Logf("%s: %d bytes, by the kernel %d", name, told, kernel)
		if slack := uint64(4096); told+slack < kernel || told > 2*kernel {
			t.Errorf("%s: full it takes %d bytes, told are %d", name, kernel, told)
		}
	}
}

// fill puts as many entries into a map as go in.
func fill(t *testing.T, m *ebpf.Map, cpus int) {
	t.Helper()
	key := make([]byte, m.KeySize())
	var value any = make([]byte, m.ValueSize())
	if m.Type() == ebpf.PerCPUHash {
		one := make([][]byte, cpus)
		for i := range one {
			one[i] = make([]byte, m.ValueSize())
		}
		value = one
	}
	for i := range m.MaxEntries() {
		nativeEndian.PutUint32(key, i)
		if err := m.Put(key, value); err != nil {
			t.Fatalf("entry %d of %d: %v", i, m.MaxEntries(), err)
		}
	}
}
