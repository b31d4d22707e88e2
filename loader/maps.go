// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/obj"
)

// MapName names one of the shared maps.
type MapName string

// The shared maps. docs/maps.md tells of their keys and values; each may change with a version of mpcc, and
// package telemetry with it.
const (
	MapSubflows      MapName = "mpcc_subflows"   // live state of each subflow
	MapTotals        MapName = "mpcc_totals"     // sums that outlive them, for each CPU
	MapCounters      MapName = "mpcc_counters"   // what could not be recorded
	MapEnergy        MapName = "mpcc_energy"     // energy profiles
	MapConnections   MapName = "mpcc_sched_conn" // live state of each connection under a packet scheduler
	MapSchedTotals   MapName = "mpcc_sched_sums" // sums that outlive them, for each CPU
	MapSchedCounters MapName = "mpcc_sched_lost" // what could not be recorded of packet schedulers
	MapShares        MapName = "mpcc_shares"     // entries that each network namespace has
	MapPathRules     MapName = "mpcc_path_rules" // the user's rules for paths
	MapPathUses      MapName = "mpcc_path_uses"  // what these have carried
)

// Maps are the pinned maps that the programs and their readers share. Package telemetry reads them as
// values with units.
type Maps struct {
	byName map[MapName]*ebpf.Map
}

// OpenMaps opens the pinned maps to be read, which takes only the permission to read their files. The error wraps
// ErrNotLoaded where they are not all there.
func OpenMaps() (*Maps, error) { return openMaps(&ebpf.LoadPinOptions{ReadOnly: true}) }

func openMapsToChange() (*Maps, error) { return openMaps(nil) }

func openMaps(o *ebpf.LoadPinOptions) (*Maps, error) {
	spec, err := obj.LoadMaps()
	if err != nil {
		return nil, err
	}
	m, complete, err := openPinned(spec, o)
	if err != nil || complete {
		return m, err
	}
	m.Close()
	if err := checkFS(); err != nil {
		return nil, &plainError{message: "nothing is loaded, or its maps cannot be opened: " + err.Error(), kind: ErrNotLoaded}
	}
	return nil, ErrNothingLoaded
}

// Close lets go of the maps; they stay pinned.
func (m *Maps) Close() {
	for _, one := range m.byName {
		one.Close()
	}
}

// openPinned opens the maps of spec that are pinned, and reports whether all of them are. The maps may have any
// number of entries, which it writes to spec; anything else that differs from spec is an error.
func openPinned(spec *ebpf.CollectionSpec, o *ebpf.LoadPinOptions) (m *Maps, complete bool, err error) {
	m, complete = &Maps{byName: map[MapName]*ebpf.Map{}}, true
	for name, s := range spec.Maps {
		if s.Pinning != ebpf.PinByName {
			continue
		}
		got, err := ebpf.LoadPinnedMap(filepath.Join(mapDir, name), o)
		if errors.Is(err, fs.ErrNotExist) {
			complete = false
			continue
		}
		if err == nil {
			m.byName[MapName(name)] = got
			s.MaxEntries = got.MaxEntries()
			err = s.Compatible(got)
		}
		if err != nil {
			m.Close()
			return nil, false, explain("open the maps", err)
		}
	}
	return m, complete, nil
}

// makeMaps opens the shared maps. It first makes and pins those that are missing, with room for this many live
// subflows (0: the default), and reports whether any was.
func makeMaps(subflows int) (m *Maps, made bool, err error) {
	if err := checkFS(); err != nil {
		return nil, false, err
	}
	spec, err := obj.LoadMaps()
	if err != nil {
		return nil, false, err
	}
	if err := sizeMaps(spec.Maps, subflows); err != nil {
		return nil, false, err
	}
	m, complete, err := openPinned(spec, nil)
	if err != nil || complete {
		return m, false, err
	}
	m.Close()
	if err := os.MkdirAll(mapDir, 0o700); err != nil {
		return nil, false, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: mapDir}, Cache: types})
	if err != nil {
		return nil, false, explain("create the maps", err)
	}
	coll.Close()
	m, err = openMapsToChange()
	return m, true, err
}

func makeAllMaps() (*Maps, error) {
	m, _, err := makeMaps(0)
	return m, err
}

// changeMaps has change write to the shared maps, while no other process changes anything. Maps that are then of no use
// are removed.
func changeMaps(ctx context.Context, open func() (*Maps, error), change func(*Maps) error) error {
	if err := checkRights(); err != nil {
		return err
	}
	if err := checkWritable(); err != nil {
		return err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	m, err := open()
	if err != nil {
		return err
	}
	defer m.Close()
	if err := change(m); err != nil {
		return errors.Join(err, sweep(ctx))
	}
	return sweep(ctx)
}

// Read returns a whole map. K and V must have the size and the layout that the map has, by its definition
// in bpf/include/mpcc; the error tells if a size differs. Entries that come and go meanwhile may or may not
// be among them.
func Read[K comparable, V any](m *Maps, name MapName) (map[K]V, error) {
	all := map[K]V{}
	err := Visit(m, name, func(key K, value *V) { all[key] = *value })
	return all, err
}

// Visit is Read for maps that are too large to have them whole in memory: it visits each entry once, in no order. The
// value is good until visit returns.
func Visit[K comparable, V any](m *Maps, name MapName, visit func(K, *V)) error {
	return visitMap(m, name, 1, func(key K, values []V) { visit(key, &values[0]) })
}

// ReadPerCPU is Read for a map that has a value for each CPU.
func ReadPerCPU[K comparable, V any](m *Maps, name MapName) (map[K][]V, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	all := map[K][]V{}
	err = visitMap(m, name, cpus, func(key K, values []V) { all[key] = slices.Clone(values) })
	return all, err
}

// visitMap visits the entries of a map. values is how many values each of them has: one, or one for each CPU.
func visitMap[K comparable, V any](m *Maps, name MapName, values int, visit func(K, []V)) error {
	one, known := m.byName[name]
	if !known {
		return fmt.Errorf("there is no shared map %q", name)
	}
	err := visitBatches(one, batch/values+1, values, visit)
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = visitEntries(one, values, visit)
	}
	if err != nil {
		return fmt.Errorf("read map %s: %w", name, err)
	}
	return nil
}

// batch is how many values are read at a time.
const batch = 1024

// visitBatches reads so many entries at a time. The kernel goes from bucket to bucket, each of which it gives as it is at
// one moment: no entry is seen twice, and none is left out that is there all the time.
func visitBatches[K comparable, V any](m *ebpf.Map, size, values int, visit func(K, []V)) error {
	var cursor ebpf.MapBatchCursor
	keys, all := make([]K, size), make([]V, size*values)
	for {
		n, err := m.BatchLookup(&cursor, keys, all, nil)
		if errors.Is(err, unix.ENOSPC) { // the kernel gives whole buckets of a hash, and this one holds more
			size *= 2
			keys, all = make([]K, size), make([]V, size*values)
			continue
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			visit(keys[i], all[i*values:(i+1)*values])
		}
		if err != nil {
			return nil // those were the last
		}
	}
}

// visitEntries serves kernels, and types of maps, that have no batches. Where the entry that it is at goes, the kernel
// starts again from the first one.
func visitEntries[K comparable, V any](m *ebpf.Map, values int, visit func(K, []V)) error {
	var key K
	all := make([]V, values)
	var out any = &all[0]
	if m.Type() == ebpf.PerCPUHash {
		out = &all
	}
	seen := map[K]bool{}
	it := m.Iterate()
	for it.Next(&key, out) {
		if !seen[key] {
			seen[key] = true
			visit(key, all)
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return err
	}
	return nil
}

// inUse tells whether connections still write to the maps or the user keeps profiles or rules in them.
func (m *Maps) inUse() (bool, error) {
	for _, name := range []MapName{MapSubflows, MapConnections, MapEnergy, MapPathRules} {
		first, err := m.byName[name].NextKeyBytes(nil)
		if err != nil {
			return false, fmt.Errorf("read map %s: %w", name, err)
		}
		if first != nil {
			return true, nil
		}
	}
	return false, nil
}
