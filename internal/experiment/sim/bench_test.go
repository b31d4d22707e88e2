// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const fatTree = `
phases: {measure: 10 s}
generate:
  - name: host
    fat_tree: {ports: 8}
    access: &link {rate: 100 Mbit/s, delay: %s, queue: {packets: 100}}
    fabric: *link
    mptcp:
      subflows: 8
      endpoints: [{link: eth0, addresses: %d}]
users:
  - {name: all, from: host, to: host, direction: down, traffic: bulk, cc: %s, transport: %s, within: 100 ms}
`

// How many times a packet passes a link in a second of processor time, in a FatTree of 128 hosts that send to each
// other, and how much memory that takes.
func BenchmarkFatTree(b *testing.B) {
	for _, delay := range []string{"10 us", "1 ms"} {
		for _, subflows := range []int{1, 8} {
			cc, transport := "reno", "tcp"
			if subflows > 1 {
				cc, transport = "lia", "mptcp"
			}
			b.Run(fmt.Sprintf("%s/%d", delay, subflows), func(b *testing.B) {
				s := start(b, fmt.Sprintf(fatTree, delay, subflows, cc, transport), 1)
				until(b, s, 500*time.Millisecond)
				before, began := s.PacketHops(), processorTime(b)
				var from, to runtime.MemStats
				runtime.ReadMemStats(&from)
				for b.Loop() {
					until(b, s, s.Now()+100*time.Millisecond)
				}
				runtime.ReadMemStats(&to)
				hops := s.PacketHops() - before
				b.ReportMetric(float64(hops)/(processorTime(b)-began).Seconds()/1e6, "Mhops/s")
				b.ReportMetric(float64(to.Mallocs-from.Mallocs)/float64(hops), "allocs/hop")
				b.ReportMetric(float64(to.HeapInuse+to.StackInuse)/1e6, "MB")
			})
		}
	}
}

// processorTime returns how much of the processors' time this process has had.
func processorTime(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
