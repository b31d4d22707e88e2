// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/mpcc/mpcc/bpf/obj"
)

// Maps are the pinned maps that the programs and their readers share (bpf/include/mpcc/telemetry.h,
// sched_telemetry.h).
type Maps struct {
	subflows, totals, counters, energy *ebpf.Map
	connections, sums, lost            *ebpf.Map // of packet schedulers
}

// OpenMaps opens the pinned maps; ErrNotLoaded where they are not all there, and those that are are ours.
func OpenMaps() (*Maps, error) {
	spec, err := obj.LoadMaps()
	if err != nil {
		return nil, err
	}
	m := &Maps{}
	missing := false
	for name, target := range m.byName() {
		got, err := ebpf.LoadPinnedMap(filepath.Join(mapDir, name), nil)
		if errors.Is(err, fs.ErrNotExist) {
			missing = true
			continue
		}
		if err == nil {
			*target = got
			err = spec.Maps[name].Compatible(got)
		}
		if err != nil {
			m.Close()
			return nil, explain("open the maps", err)
		}
	}
	if !missing {
		return m, nil
	}
	m.Close()
	if err := checkFS(); err != nil {
		return nil, &plainError{message: "nothing is loaded, or not to be seen: " + err.Error(), kind: ErrNotLoaded}
	}
	return nil, ErrNothingLoaded
}

func (m *Maps) byName() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		obj.MapsMapMpccSubflows:  &m.subflows,
		obj.MapsMapMpccTotals:    &m.totals,
		obj.MapsMapMpccCounters:  &m.counters,
		obj.MapsMapMpccEnergy:    &m.energy,
		obj.MapsMapMpccSchedConn: &m.connections,
		obj.MapsMapMpccSchedSums: &m.sums,
		obj.MapsMapMpccSchedLost: &m.lost,
	}
}

// makeMaps creates and pins those of the maps that are not there.
func makeMaps() error {
	if err := checkFS(); err != nil {
		return err
	}
	if err := os.MkdirAll(mapDir, 0o700); err != nil {
		return err
	}
	spec, err := obj.LoadMaps()
	if err != nil {
		return err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: mapDir}})
	if err != nil {
		return explain("create the maps", err)
	}
	coll.Close()
	return nil
}

// Close lets go of the maps; they stay pinned.
func (m *Maps) Close() {
	for _, target := range m.byName() {
		if *target != nil {
			(*target).Close()
		}
	}
}

// collect reads a whole hash map. Entries that come and go meanwhile may or may not be among them.
func collect[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	all := map[K]V{}
	var key K
	var value V
	it := m.Iterate()
	for it.Next(&key, &value) {
		all[key] = value
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("read map %s: %w", m.String(), err)
	}
	return all, nil
}

// Subflows reads the live state of every subflow, by its identity.
func (m *Maps) Subflows() (map[uint64]obj.MapsMpccSubflow, error) {
	return collect[uint64, obj.MapsMpccSubflow](m.subflows)
}

// Totals reads what outlives the subflows.
func (m *Maps) Totals() (map[obj.MapsMpccTotalKey]obj.MapsMpccTotal, error) {
	return collect[obj.MapsMpccTotalKey, obj.MapsMpccTotal](m.totals)
}

// Counters reads what could not be recorded.
func (m *Maps) Counters() (obj.MapsMpccCounterSet, error) {
	var c obj.MapsMpccCounterSet
	return c, m.counters.Lookup(uint32(0), &c)
}

// Connections reads the live state of every connection under a packet scheduler, by its identity.
func (m *Maps) Connections() (map[uint64]obj.MapsMpccSchedConnection, error) {
	return collect[uint64, obj.MapsMpccSchedConnection](m.connections)
}

// SchedTotals reads what packet schedulers did in connections that are no more.
func (m *Maps) SchedTotals() (map[obj.MapsMpccSchedTotalKey]obj.MapsMpccSchedTotal, error) {
	return collect[obj.MapsMpccSchedTotalKey, obj.MapsMpccSchedTotal](m.sums)
}

// SchedCounters reads what could not be recorded of packet schedulers.
func (m *Maps) SchedCounters() (obj.MapsMpccSchedCounterSet, error) {
	var c obj.MapsMpccSchedCounterSet
	return c, m.lost.Lookup(uint32(0), &c)
}

// Profiles reads the energy profiles.
func (m *Maps) Profiles() (map[obj.MapsMpccEnergyKey]obj.MapsMpccEnergyProfile, error) {
	return collect[obj.MapsMpccEnergyKey, obj.MapsMpccEnergyProfile](m.energy)
}

// SetProfile sets the energy profile of an interface, whether or not anything is loaded yet.
func SetProfile(key obj.MapsMpccEnergyKey, p obj.MapsMpccEnergyProfile) error {
	open := func() (*Maps, error) {
		if err := makeMaps(); err != nil {
			return nil, err
		}
		return OpenMaps()
	}
	return changeProfiles(open, func(m *Maps) error { return m.energy.Put(key, p) })
}

// DeleteProfile removes the energy profile of an interface; it need not have one.
func DeleteProfile(key obj.MapsMpccEnergyKey) error {
	err := changeProfiles(OpenMaps, func(m *Maps) error { return m.energy.Delete(key) })
	if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, ErrNotLoaded) {
		return nil
	}
	return err
}

func changeProfiles(open func() (*Maps, error), change func(*Maps) error) error {
	if err := checkRights(); err != nil {
		return err
	}
	unlock, err := lock()
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
		return err
	}
	return sweep()
}

// inUse tells whether connections still write to the maps or the user keeps profiles in them.
func (m *Maps) inUse() (bool, error) {
	subflows, err := m.Subflows()
	if err != nil {
		return false, err
	}
	connections, err := m.Connections()
	if err != nil {
		return false, err
	}
	profiles, err := m.Profiles()
	if err != nil {
		return false, err
	}
	return len(subflows)+len(connections)+len(profiles) > 0, nil
}

// CString is the text of a C array up to its first zero byte.
func CString(b []uint8) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
