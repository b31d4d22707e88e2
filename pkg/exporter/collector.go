// SPDX-License-Identifier: Apache-2.0

// Package exporter shows Multipath TCP under mpcc's congestion controls and packet schedulers to Prometheus:
// totals that outlive the subflows, the live subflows up to a number of series, and what the machine measures
// of its own energy. docs/metrics.md lists the metrics.
//
// NewCollector makes a prometheus.Collector for a program that has a registry of its own. Serve is the whole
// server that mpcc exporter runs. To read the maps that mpcc pins takes root; no capability is needed. The
// package changes nothing of the process it runs in.
package exporter

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// readTime is how long a scrape may read the maps, the wait for its turn included. Prometheus gives up after
// 10 s by default; before that, the exporter can still say what took so long.
const readTime = 8 * time.Second

// Options of a Collector. The zero value shows everything but single subflows.
type Options struct {
	// Read returns what the maps hold now, and nil without an error where nothing is loaded. What it returns
	// with an error is not shown. One goroutine at a time calls it. The default reads the machine's maps.
	Read func(context.Context) (*telemetry.Snapshot, error)
	// MaxSeries is how many series of single subflows a scrape has at most, the busiest subflows first. A
	// subflow has up to 16.
	MaxSeries int
	// MinAge is the age from which on a subflow has series of its own.
	MinAge time.Duration
	// Sys is where sysfs is mounted, /sys by default.
	Sys string
	// Log gets a line for what a scrape could not read. By default there is no log.
	Log *slog.Logger
}

// Collector is a prometheus.Collector that reads everything anew at each scrape. It never makes a scrape
// fail: what cannot be read is missing, which the metric mpcc_collector_success tells and the log explains.
type Collector struct {
	options  Options
	rapl     *energy.RAPL
	overflow prometheus.Counter

	turn   chan struct{}                   // full while a snapshot is read and used
	scheds map[labels]telemetry.SchedTotal // as last sent; for the holder of turn only
}

// NewCollector returns a collector that has read nothing yet, and an error where Options.Sys is no folder.
func NewCollector(o Options) (*Collector, error) {
	if o.Read == nil {
		o.Read = telemetry.Take
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Sys = cmp.Or(o.Sys, "/sys")
	rapl, err := energy.NewRAPL(o.Sys)
	if err != nil {
		return nil, err
	}
	return &Collector{options: o, rapl: rapl, overflow: newOverflow(), turn: make(chan struct{}, 1)}, nil
}

// Describe sends the descriptions of all metrics, as prometheus.Collector asks for.
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

// Collect reads everything and sends it, as prometheus.Collector asks for. The context that it gives to
// Options.Read ends after 8 s. Several goroutines may call it at once.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	for _, part := range []struct {
		name    string
		collect func() ([]prometheus.Metric, error)
	}{
		{"telemetry", func() ([]prometheus.Metric, error) { return c.collectMaps(ctx) }},
		{"rapl", c.collectRAPL},
		{"battery", c.collectBatteries},
	} {
		success := 1.0
		metrics, err := part.collect()
		if err != nil {
			c.options.Log.Error("collector failed", "collector", part.name, "err", err)
			success = 0
		}
		for _, m := range metrics {
			out <- m
		}
		out <- sample(successDesc, gauge, success, labelsOf(part.name))
	}
}

// read takes a snapshot and calls use with it, which is nil where nothing is loaded. Only then is the next one
// taken: snapshots are used in the order in which they were taken, and only one is read at a time.
func (c *Collector) read(ctx context.Context, use func(*telemetry.Snapshot)) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return errors.New("the scrapes before this one are still reading the maps")
	}
	snap, err := c.options.Read(ctx)
	if err == nil {
		use(snap)
	}
	return err
}

func (c *Collector) collectMaps(ctx context.Context) (metrics []prometheus.Metric, err error) {
	err = c.read(ctx, func(snap *telemetry.Snapshot) {
		if snap == nil {
			return
		}
		metrics = slices.Concat(
			show(lostMetrics, &snap.Lost, labelsOf()),
			collectTotals(snap),
			c.collectScheds(snap),
			c.collectSubflows(snap.Subflows))
	})
	return metrics, err
}

func placeOf(cc, iface, netnsName string, netns uint64) labels {
	return labelsOf(cc, iface, netnsLabel(netnsName, netns))
}

func placeOfSubflow(f *telemetry.Subflow) labels {
	return placeOf(f.CC, f.Interface, f.NetnsName, f.Netns)
}

// collectTotals adds up totals of the same labels: an interface that was made anew under its old name has
// two.
func collectTotals(snap *telemetry.Snapshot) (metrics []prometheus.Metric) {
	totals := map[labels]*telemetry.Total{}
	active := map[labels]int{}
	for i := range snap.Totals {
		t := &snap.Totals[i]
		place := placeOf(t.CC, t.Interface, t.NetnsName, t.Netns)
		if totals[place] == nil {
			totals[place] = &telemetry.Total{}
			active[place] = 0
		}
		add(totals[place], t)
	}
	for i := range snap.Subflows {
		active[placeOfSubflow(&snap.Subflows[i])]++
	}
	for place, t := range totals {
		metrics = append(metrics, show(totalMetrics, t, place)...)
		if len(t.RTT) > 1 {
			metrics = append(metrics, srttHistogram{t, place})
		}
	}
	for place, n := range active {
		metrics = append(metrics, sample(activeDesc, gauge, float64(n), place))
	}
	return metrics
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
	if missing := len(t.RTT) - len(sum.RTT); missing > 0 {
		sum.RTT = append(sum.RTT, make([]uint64, missing)...)
	}
	for i, n := range t.RTT {
		sum.RTT[i] += n
	}
}

// collectScheds keeps counters from falling: a connection that closes while the maps are read may be in the
// snapshot neither as a live one nor in the total.
func (c *Collector) collectScheds(snap *telemetry.Snapshot) (metrics []prometheus.Metric) {
	active := map[labels]int{}
	for i := range snap.Connections {
		f := &snap.Connections[i]
		active[labelsOf(f.Scheduler, netnsLabel(f.NetnsName, f.Netns))]++
	}
	totals := map[labels]telemetry.SchedTotal{}
	for _, t := range snap.SchedTotals {
		place := labelsOf(t.Scheduler, netnsLabel(t.NetnsName, t.Netns))
		sum := totals[place]
		sum.Opened += t.Opened
		sum.Closed += t.Closed
		sum.Decisions += t.Decisions
		sum.Waits += t.Waits
		sum.Retransmissions += t.Retransmissions
		sum.Bytes += t.Bytes
		totals[place] = sum
	}
	for place, t := range totals {
		if last := c.scheds[place]; last.Opened <= t.Opened { // otherwise the maps were made anew
			t.Decisions = max(t.Decisions, last.Decisions)
			t.Waits = max(t.Waits, last.Waits)
			t.Retransmissions = max(t.Retransmissions, last.Retransmissions)
			t.Bytes = max(t.Bytes, last.Bytes)
		}
		totals[place] = t
		metrics = append(metrics, show(schedMetrics, &t, place)...)
		metrics = append(metrics, sample(schedActiveDesc, gauge, float64(active[place]), place))
	}
	c.scheds = totals
	return metrics
}

// collectSubflows shows single subflows of MPTCP connections. Other TCP connections have no token to tell
// them apart by and are in the totals only, and so is a subflow that is still joining.
func (c *Collector) collectSubflows(subflows []telemetry.Subflow) (metrics []prometheus.Metric) {
	if c.options.MaxSeries <= 0 {
		return nil
	}
	shown := slices.DeleteFunc(slices.Clone(subflows), func(f telemetry.Subflow) bool {
		return f.Token == 0 || f.SubflowID == 0 || time.Duration(f.Age) < c.options.MinAge
	})
	slices.SortFunc(shown, func(a, b telemetry.Subflow) int {
		return cmp.Or(cmp.Compare(busyness(&b), busyness(&a)), cmp.Compare(a.ID, b.ID))
	})
	seen := map[labels]bool{}
	for i := range shown {
		l := subflowLabelsOf(&shown[i])
		if seen[l] {
			continue
		}
		seen[l] = true
		series := seriesOf(&shown[i], l)
		if len(metrics)+len(series) > c.options.MaxSeries {
			c.overflow.Add(float64(len(shown) - i))
			break
		}
		metrics = append(metrics, series...)
	}
	return append(metrics, c.overflow)
}

// busyness is the rate of bytes in both directions over the subflow's life.
func busyness(f *telemetry.Subflow) float64 {
	return float64(f.BytesSent+f.BytesReceived) / time.Duration(f.Age).Seconds()
}

func subflowLabelsOf(f *telemetry.Subflow) labels {
	return placeOfSubflow(f) + labelsOf(f.Token.String(), strconv.FormatUint(uint64(f.SubflowID), 10))
}

func seriesOf(f *telemetry.Subflow, l labels) []prometheus.Metric {
	addresses := labelsOf(f.Local.Addr().String(), strconv.Itoa(int(f.LocalID)),
		f.Remote.Addr().String(), strconv.Itoa(int(f.RemoteID)))
	return append(show(subflowMetrics, f, l), sample(infoDesc, gauge, 1, l+addresses))
}

// collectRAPL returns the zones that could be read, with an error about the others.
func (c *Collector) collectRAPL() (metrics []prometheus.Metric, err error) {
	zones, err := c.rapl.Read()
	for _, z := range zones {
		metrics = append(metrics, sample(raplDesc, counter, z.Joules, labelsOf(z.ID, z.Name)))
	}
	return metrics, err
}

func (c *Collector) collectBatteries() (metrics []prometheus.Metric, err error) {
	batteries, err := energy.Batteries(c.options.Sys)
	for i := range batteries {
		metrics = append(metrics, show(batteryMetrics, &batteries[i], labelsOf(batteries[i].Name))...)
	}
	return metrics, err
}
