// SPDX-License-Identifier: Apache-2.0

// Package exporter shows the maps to Prometheus: aggregates that survive the subflows, single subflows
// within a bound, and what the machine measures of its own energy. docs/metrics.md lists the metrics.
package exporter

import (
	"cmp"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Options of a Collector.
type Options struct {
	// Read takes a snapshot of the maps; nil where nothing is loaded, which is no failure.
	Read      func() (*telemetry.Snapshot, error)
	MaxSeries int           // of single subflows in a scrape, the busiest first; 0 shows none
	MinAge    time.Duration // from which on a subflow has series
	Sys       string        // where sysfs is
	Log       *slog.Logger
}

// Collector reads everything at each scrape.
type Collector struct {
	Options
	rapl     *energy.RAPL
	overflow prometheus.Counter

	mu     sync.Mutex // scrapes may overlap
	scheds map[schedPlace]telemetry.SchedTotal
}

type schedPlace struct{ scheduler, netns string }

// NewCollector makes a collector; it reads nothing yet.
func NewCollector(o Options) (*Collector, error) {
	rapl, err := energy.NewRAPL(o.Sys)
	if err != nil {
		return nil, err
	}
	return &Collector{Options: o, rapl: rapl, overflow: newOverflow()}, nil
}

// Describe is part of prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{activeDesc, srttDesc, schedActiveDesc, infoDesc, raplDesc, successDesc} {
		out <- d
	}
	describeAll(totalMetrics, out)
	describeAll(schedMetrics, out)
	describeAll(subflowMetrics, out)
	describeAll(lostMetrics, out)
	describeAll(batteryMetrics, out)
	c.overflow.Describe(out)
}

func describeAll[T any](metrics []metric[T], out chan<- *prometheus.Desc) {
	for _, m := range metrics {
		out <- m.desc
	}
}

// Collect is part of prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, part := range []struct {
		name    string
		collect func(chan<- prometheus.Metric) error
	}{{"telemetry", c.collectMaps}, {"rapl", c.collectRAPL}, {"battery", c.collectBatteries}} {
		success := 1.0
		if err := part.collect(out); err != nil {
			c.Log.Error("collector failed", "collector", part.name, "err", err)
			success = 0
		}
		out <- prometheus.MustNewConstMetric(successDesc, gauge, success, part.name)
	}
}

func (c *Collector) collectMaps(out chan<- prometheus.Metric) error {
	snap, err := c.Read()
	if err != nil || snap == nil {
		return err
	}
	for _, m := range lostMetrics {
		if got, ok := m.of(&snap.Lost, nil); ok {
			out <- got
		}
	}
	collectTotals(snap, out)
	c.collectScheds(snap, out)
	c.collectSubflows(snap.Subflows, out)
	return nil
}

// place is what aggregates are kept by.
type place struct{ cc, iface, netns string }

func (p place) labels() []string { return []string{p.cc, p.iface, p.netns} }

func placeOf(f *telemetry.Subflow) place {
	return place{f.CC, f.Interface, netnsLabel(f.NetnsName, f.Netns)}
}

// collectTotals adds up totals of the same labels: an interface that was made anew under its old name has
// two.
func collectTotals(snap *telemetry.Snapshot, out chan<- prometheus.Metric) {
	totals := map[place]*telemetry.Total{}
	active := map[place]int{}
	for _, t := range snap.Totals {
		p := place{t.CC, t.Interface, netnsLabel(t.NetnsName, t.Netns)}
		active[p] = 0
		sum, ok := totals[p]
		if !ok {
			t.RTT = slices.Clone(t.RTT)
			totals[p] = &t
			continue
		}
		add(sum, &t)
	}
	for i := range snap.Subflows {
		active[placeOf(&snap.Subflows[i])]++
	}
	for p, t := range totals {
		for _, m := range totalMetrics {
			if got, ok := m.of(t, p.labels()); ok {
				out <- got
			}
		}
		out <- srttHistogram{t, p.labels()}
	}
	for p, n := range active {
		out <- prometheus.MustNewConstMetric(activeDesc, gauge, float64(n), p.labels()...)
	}
}

func add(sum, t *telemetry.Total) {
	sum.Opened += t.Opened
	sum.Closed += t.Closed
	sum.BytesAcked += t.BytesAcked
	sum.BytesReceived += t.BytesReceived
	sum.BytesRetrans += t.BytesRetrans
	sum.Retrans += t.Retrans
	sum.Losses += t.Losses
	sum.Energy += t.Energy
	sum.RTTSum += t.RTTSum
	for i, n := range t.RTT {
		sum.RTT[i] += n
	}
}

// collectScheds keeps counters from falling: a connection that closes while the maps are read may be in
// the snapshot neither as live nor in the total.
func (c *Collector) collectScheds(snap *telemetry.Snapshot, out chan<- prometheus.Metric) {
	active := map[schedPlace]int{}
	for i := range snap.Connections {
		f := &snap.Connections[i]
		active[schedPlace{f.Scheduler, netnsLabel(f.NetnsName, f.Netns)}]++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.scheds
	c.scheds = map[schedPlace]telemetry.SchedTotal{}
	for _, t := range snap.SchedTotals {
		p := schedPlace{t.Scheduler, netnsLabel(t.NetnsName, t.Netns)}
		if last := before[p]; last.Opened <= t.Opened { // else the maps are new
			t.Decisions = max(t.Decisions, last.Decisions)
			t.Waits = max(t.Waits, last.Waits)
			t.Retransmissions = max(t.Retransmissions, last.Retransmissions)
			t.Bytes = max(t.Bytes, last.Bytes)
		}
		c.scheds[p] = t
		for _, m := range schedMetrics {
			if got, ok := m.of(&t, []string{p.scheduler, p.netns}); ok {
				out <- got
			}
		}
		out <- prometheus.MustNewConstMetric(schedActiveDesc, gauge, float64(active[p]), p.scheduler, p.netns)
	}
}

// collectSubflows shows single subflows of MPTCP connections. Other TCP connections have no token to tell
// them apart by and are in the aggregates only, and so is a subflow that is still joining.
func (c *Collector) collectSubflows(subflows []telemetry.Subflow, out chan<- prometheus.Metric) {
	if c.MaxSeries == 0 {
		return
	}
	shown := slices.DeleteFunc(slices.Clone(subflows), func(f telemetry.Subflow) bool {
		return f.Token == 0 || f.SubflowID == 0 || time.Duration(f.Age) < c.MinAge
	})
	slices.SortFunc(shown, func(a, b telemetry.Subflow) int {
		return cmp.Or(cmp.Compare(busyness(&b), busyness(&a)), cmp.Compare(a.ID, b.ID))
	})
	left := c.MaxSeries
	for i := range shown {
		series := seriesOf(&shown[i])
		if len(series) > left {
			c.overflow.Add(float64(len(shown) - i))
			break
		}
		left -= len(series)
		for _, m := range series {
			out <- m
		}
	}
	c.overflow.Collect(out)
}

// busyness is the rate of bytes in both directions over the subflow's life.
func busyness(f *telemetry.Subflow) float64 {
	return float64(f.BytesSent+f.BytesReceived) / time.Duration(f.Age).Seconds()
}

func seriesOf(f *telemetry.Subflow) []prometheus.Metric {
	labels := append(placeOf(f).labels(), f.Token.String(), strconv.FormatUint(uint64(f.SubflowID), 10))
	info := append(labels[:5:5], f.Local.Addr().String(), strconv.Itoa(int(f.LocalID)),
		f.Remote.Addr().String(), strconv.Itoa(int(f.RemoteID)))
	series := []prometheus.Metric{prometheus.MustNewConstMetric(infoDesc, gauge, 1, info...)}
	for _, m := range subflowMetrics {
		if got, ok := m.of(f, labels); ok {
			series = append(series, got)
		}
	}
	return series
}

func (c *Collector) collectRAPL(out chan<- prometheus.Metric) error {
	zones, err := c.rapl.Read()
	for _, z := range zones {
		out <- prometheus.MustNewConstMetric(raplDesc, counter, z.Joules, z.ID, z.Name)
	}
	return err
}

func (c *Collector) collectBatteries(out chan<- prometheus.Metric) error {
	batteries, err := energy.Batteries(c.Sys)
	for i := range batteries {
		for _, m := range batteryMetrics {
			if got, ok := m.of(&batteries[i], []string{batteries[i].Name}); ok {
				out <- got
			}
		}
	}
	return err
}
