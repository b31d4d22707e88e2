// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Capacity is how much the shared maps have room for, and how much memory they take when all of them are full.
// Their hash tables take a few MB from the start, their entries take memory as they come.
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

// The room where the user asks for none: one subflow for each 64 KiB of the machine's memory, rounded down to
// a power of two, from 1,024 (64 MiB) to 262,144 (16 GiB). Full maps then take about 2 % of the memory.
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

// sizeMaps gives the maps room for this many live subflows (0: by the machine's memory), and sizes the other
// maps in proportion. Those of totals have 64 entries at least: even a machine with few subflows may run
// several algorithms on several interfaces in several namespaces.
func sizeMaps(maps map[string]*ebpf.MapSpec, subflows int) error {
	if err := checkSubflows(subflows); err != nil {
		return err
	}
	if subflows == 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return fmt.Errorf("read the size of the memory: %w", err)
		}
		subflows = subflowsFor(info.Totalram * uint64(info.Unit))
	}
	for name, entries := range map[MapName]int{
		MapSubflows: subflows, MapTotals: max(subflows/16, 64),
		MapConnections: subflows / 2, MapSchedTotals: max(subflows/64, 64),
	} {
		maps[string(name)].MaxEntries = uint32(entries)
	}
	return nil
}

// checkSubflows returns an error where the maps cannot have room for so many live subflows.
func checkSubflows(n int) error {
	if n != 0 && (n < leastSubflows || n > mostSubflows) {
		return usage("--max-subflows %d: give %d to %d", n, leastSubflows, mostSubflows)
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

// memoryOf returns how many bytes a full map takes. The kernel allocates the elements of a hash one by one, in
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

// allocated returns how many bytes the kernel's allocator takes for n bytes: its next larger size.
func allocated(n uint64) uint64 {
	for _, size := range []uint64{64, 96, 128, 192, 256, 512, 1024, 2048} {
		if n <= size {
			return size
		}
	}
	return (n + 4095) &^ 4095
}
