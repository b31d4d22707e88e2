// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Capacity is what the shared maps have room for, and the memory that they take when all of them are full.
// They take memory as they fill, but for some MB of tables.
type Capacity struct {
	Subflows    int    `json:"subflows"`    // live ones, of all congestion controls
	Connections int    `json:"connections"` // live ones, of all packet schedulers
	Bytes       uint64 `json:"bytes"`       // of memory, at the most
}

// The room that a user may ask for.
const (
	leastSubflows = 16
	mostSubflows  = 1 << 22
)

// The room where the user does not: a subflow for each 64 KiB of the machine's memory, rounded down to a
// power of two, from 1,024 (64 MiB) to 262,144 (16 GiB). Full maps then take about 2 % of the memory.
const (
	memoryPerSubflow = 64 << 10
	leastByMemory    = 1 << 10
	mostByMemory     = 1 << 18
)

func subflowsFor(memory uint64) int {
	n := memory / memoryPerSubflow
	for n&(n-1) != 0 {
		n &= n - 1
	}
	return int(min(max(n, leastByMemory), mostByMemory))
}

// sizeMaps gives the maps room for so many subflows, 0 for as many as suit the machine, and for the rest in
// proportion. Totals have room for as many namespaces, interfaces and algorithms at the least as a machine
// has that runs a few of each.
func sizeMaps(maps map[string]*ebpf.MapSpec, subflows int) error {
	if subflows == 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return fmt.Errorf("read the size of the memory: %w", err)
		}
		subflows = subflowsFor(info.Totalram * uint64(info.Unit))
	}
	if subflows < leastSubflows || subflows > mostSubflows {
		return usage("--max-subflows %d: give %d to %d", subflows, leastSubflows, mostSubflows)
	}
	for name, entries := range map[MapName]int{
		MapSubflows: subflows, MapTotals: max(subflows/16, 64),
		MapConnections: subflows / 2, MapSchedTotals: max(subflows/64, 64),
	} {
		maps[string(name)].MaxEntries = uint32(entries)
	}
	return nil
}

// Capacity returns what the maps have room for.
func (m *Maps) Capacity() (Capacity, error) {
	c := Capacity{
		Subflows:    int(m.byName[MapSubflows].MaxEntries()),
		Connections: int(m.byName[MapConnections].MaxEntries()),
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return c, err
	}
	for _, one := range m.byName {
		c.Bytes += memoryOf(one, cpus)
	}
	return c, nil
}

// memoryOf is what a map takes when it is full. The kernel allocates the elements of a hash one by one, in
// the sizes that its allocator has (kernel/bpf/hashtab.c, kernel/bpf/memalloc.c).
func memoryOf(m *ebpf.Map, cpus int) uint64 {
	const (
		bucket  = 16
		element = 48 // struct htab_elem
		link    = 8  // of the list of free elements
	)
	align := func(n uint32) uint64 { return (uint64(n) + 7) &^ 7 }
	entries, key, value := uint64(m.MaxEntries()), align(m.KeySize()), align(m.ValueSize())
	buckets := bucket << bits.Len64(entries-1)
	switch m.Type() {
	case ebpf.Hash:
		return uint64(buckets) + entries*allocated(element+key+value+link)
	case ebpf.PerCPUHash:
		pointer := allocated(link + 8)
		return uint64(buckets) + entries*(allocated(element+key+8+link)+pointer+uint64(cpus)*value)
	default:
		return entries * value
	}
}

// allocated is what the kernel's allocator takes for so many bytes, up to a page.
func allocated(n uint64) uint64 {
	for _, size := range []uint64{64, 96, 128, 192, 256, 512, 1024, 2048} {
		if n <= size {
			return size
		}
	}
	return (n + 4095) &^ 4095
}
