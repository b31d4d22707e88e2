// SPDX-License-Identifier: Apache-2.0

// Package scrape is about scrapes of the exporter while there are very many subflows. make bench runs its benchmark.
package scrape

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/exporter"
	"github.com/mpcc/mpcc/pkg/telemetry"
	"github.com/mpcc/mpcc/test/loaded"
)

const (
	crowd = 100_000 // subflows in the maps
	shown = 2_000   // of them with series of their own, 16 each
)

// pinned opens a map that must have room for so many entries.
func pinned(b testing.TB, name loader.MapName, n uint64) *ebpf.Map {
	b.Helper()
	m, err := ebpf.LoadPinnedMap("/sys/fs/bpf/mpcc/maps/"+string(name), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	if room := m.MaxEntries(); uint64(room) < n {
		b.Fatalf("%s has room for %d entries on this machine", name, room)
	}
	return m
}

// fill loads dts and puts so many subflows into the maps, two for each connection, and returns the map of subflows.
func fill(b testing.TB, n uint64) *ebpf.Map {
	b.Helper()
	loaded.DTS(b, nil)
	subflows, connections := pinned(b, loader.MapSubflows, n), pinned(b, loader.MapConnections, n/2)
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		b.Fatal(err)
	}
	us := uint64(now.Nano() / 1000)
	for i := range n {
		f := obj.MapsMpccSubflow{
			OpenedUs: us - 60e6, UpdatedUs: us - 1e4, BytesSent: i * 1000, BytesAcked: i * 990, DeliveryRate: 1e6,
			NetnsCookie: 1 + i%4, Netns: uint32(4026531840 + i%4), Cwnd: 10, Ssthresh: 20, SrttUs8: 80000, BaseRttUs: 9000, Mss: 1448,
			Token: uint32(i/2 + 1), SubflowId: uint32(i%2 + 1), Ifindex: uint32(2 + i%2), Family: unix.AF_INET, Priced: 1, EnergyNj: 1e9,
		}
		binary.BigEndian.PutUint32(f.Local[:], uint32(10<<24+i%256))
		binary.BigEndian.PutUint32(f.Remote[:], uint32(11<<24+i))
		copy(f.Cc[:], "dts")
		copy(f.Ifname[:], []string{"wlan0", "lte0"}[i%2])
		if err := subflows.Put(1<<40+i, f); err != nil {
			b.Fatal(err)
		}
	}
	for i := range n / 2 {
		c := obj.MapsMpccSchedConnection{
			OpenedUs: us - 60e6, UpdatedUs: us - 1e4, Decisions: i, NetnsCookie: 1 + i%4, Netns: uint32(4026531840 + i%4),
			Token: uint32(i + 1), Count: 2,
		}
		copy(c.Scheduler[:], "minrtt")
		for j := range c.Count {
			c.Subflows[j].SubflowId, c.Subflows[j].Bytes = j+1, i*500
		}
		if err := connections.Put(1<<40+i, c); err != nil {
			b.Fatal(err)
		}
	}
	return subflows
}

// What is selected while the maps are read is what would be of all that they hold.
func TestSelectedOfMany(t *testing.T) {
	fill(t, 3000)
	all, err := telemetry.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Subflows) != 3000 || all.LeftOut != 0 {
		t.Fatalf("%d subflows, %d left out", len(all.Subflows), all.LeftOut)
	}
	for _, selected := range []telemetry.Selection{
		{}, {Most: 1}, {Most: 100, Joined: true, MinAge: time.Second}, {Most: 5000, Joined: true}, {Most: 10, MinAge: time.Hour},
	} {
		got, err := telemetry.TakeSelected(t.Context(), selected)
		if err != nil {
			t.Fatal(err)
		}
		want := all.Select(selected)
		byPlace := func(a, b telemetry.Live) int {
			return cmp.Or(cmp.Compare(a.NetnsCookie, b.NetnsCookie), cmp.Compare(a.Interface, b.Interface))
		}
		slices.SortFunc(got.Live, byPlace)
		slices.SortFunc(want.Live, byPlace)
		// They are older by now.
		same := gocmp.FilterPath(func(p gocmp.Path) bool { return p.Last().Type() == reflect.TypeFor[telemetry.Seconds]() }, gocmp.Ignore())
		if diff := gocmp.Diff(want, got, same, gocmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("%+v: %s", selected, diff)
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	subflows := fill(b, crowd)
	b.Run("one-by-one", func(b *testing.B) { // how maps are read where there are no batches, without a scrape around it
		for b.Loop() {
			var id uint64
			var f obj.MapsMpccSubflow
			n := 0
			for entries := subflows.Iterate(); entries.Next(&id, &f); {
				n++
			}
			if n != crowd {
				b.Fatalf("%d subflows", n)
			}
		}
	})
	for _, way := range []struct {
		name      string
		maxSeries int
		limit     time.Duration
	}{
		{"aggregates", 0, 100 * time.Millisecond},
		{"2000-subflows", 16 * shown, time.Second},
	} {
		b.Run(way.name, func(b *testing.B) {
			collector, err := exporter.NewCollector(exporter.Options{MaxSeries: way.maxSeries, MinAge: time.Second})
			if err != nil {
				b.Fatal(err)
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(collector)
			var series int
			for b.Loop() {
				series = scrape(b, registry)
			}
			b.ReportMetric(float64(series), "series")
			b.ReportMetric(memory(), "MB")
			if took := b.Elapsed() / time.Duration(b.N); took > way.limit {
				b.Errorf("a scrape takes %v, which is to be below %v", took, way.limit)
			}
		})
	}
}

// scrape returns how many series it has.
func scrape(b *testing.B, registry *prometheus.Registry) (series int) {
	b.Helper()
	families, err := registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	text := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		series += len(f.Metric)
		if err := text.Encode(f); err != nil {
			b.Fatal(err)
		}
	}
	return series
}

// memory is how much the process has taken from the kernel.
func memory() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys) / 1e6
}
