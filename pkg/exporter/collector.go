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
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/paths"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// readTime is how long a scrape may read the maps, the wait for its turn included. Prometheus gives up after
// 10 s by default; before that, the exporter can still say what took so long.
const readTime = 8 * time.Second

// Options of a Collector. The zero value shows everything but single subflows.
type Options struct {
	// Read returns what the maps hold now, and nil without an error where nothing is loaded. What it returns
	// with an error is not shown. One goroutine at a time calls it. The default reads the machine's maps, and of
	// very many subflows no more than it needs.
	Read func(context.Context) (*telemetry.Snapshot, error)
	// Paths returns the rules of paths, none where there are none. The default reads the machine's maps.
	Paths func() ([]paths.Live, error)
	// Managers returns MPTCP in network namespaces. The default looks at those that the process may enter at that
	// time; for one that gives up its capabilities, it is the method Read of Namespaces.
	Managers func() (Managers, error)
	// NoPeerAddresses leaves out the peers' addresses, also those in rules of paths.
	NoPeerAddresses bool
	// MaxSeries is how many series of single subflows a scrape has at most, the busiest subflows first. A
	// subflow has up to 20.
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
	parts    singleflight.Group // of a scrape

	turn   chan struct{}                   // full while a snapshot is read and used
	scheds map[labels]telemetry.SchedTotal // as last sent; for the holder of turn only
}

// NewCollector returns a collector that has read nothing yet, and an error where Options.Sys is no folder.
func NewCollector(o Options) (*Collector, error) {
	if o.Paths == nil {
		o.Paths = paths.List
	}
	if o.Managers == nil {
		o.Managers = readManagers
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
	for _, d := range []*prometheus.Desc{
		activeDesc, srttDesc, schedActiveDesc, flaggedDesc, eventsDesc, coveredDesc, othersDesc, infoDesc, raplDesc, successDesc,
	} {
		out <- d
	}
	describeAll(totalMetrics, out)
	describeAll(schedMetrics, out)
	describeAll(pathMetrics, out)
	describeAll(managerMetrics, out)
	describeAll(subflowMetrics, out)
	describeAll(scheduledMetrics, out)
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
// Options.Read ends after 8 s. Several goroutines may call it at once: a part that is being read for one of them is
// for the others too.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	type part struct {
		name string
		read <-chan singleflight.Result
	}
	var parts []part
	for name, collect := range map[string]func() ([]prometheus.Metric, error){
		"telemetry": c.collectMaps,
		"paths":     c.collectPaths,
		"mptcp":     c.collectManagers,
		"rapl":      c.collectRAPL,
		"battery":   c.collectBatteries,
	} {
		parts = append(parts, part{name, c.parts.DoChan(name, func() (any, error) { return collect() })})
	}
	for _, p := range parts {
		metrics, err := wait(ctx, p.read)
		success := 1.0
		if err != nil {
			c.options.Log.Error("collector failed", "collector", p.name, "err", err)
			success = 0
		}
		for _, m := range metrics {
			out <- m
		}
		out <- sample(successDesc, gauge, success, labelsOf(p.name))
	}
}

// wait returns what a part has read, also the little that it could. A part that takes too long has nothing.
func wait(ctx context.Context, part <-chan singleflight.Result) ([]prometheus.Metric, error) {
	select {
	case r := <-part:
		return r.Val.([]prometheus.Metric), r.Err
	case <-ctx.Done():
	}
	select {
	case r := <-part: // both were there
		return r.Val.([]prometheus.Metric), r.Err
	default:
		return nil, fmt.Errorf("it has read for %v and is not done", readTime)
	}
}

var errBusy = errors.New("those who came before are still reading the maps")

// read takes a snapshot and calls use with it, which is nil where nothing is loaded. Only then is the next one
// taken: snapshots are used in the order in which they were taken, and only one is read at a time.
func (c *Collector) read(ctx context.Context, selected telemetry.Selection, use func(*telemetry.Snapshot)) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return errBusy
	}
	snap, err := c.take(ctx, selected)
	if err == nil {
		use(snap)
	}
	return err
}

func (c *Collector) take(ctx context.Context, selected telemetry.Selection) (*telemetry.Snapshot, error) {
	if c.options.Read == nil {
		return telemetry.TakeSelected(ctx, selected)
	}
	snap, err := c.options.Read(ctx)
	if err == nil && snap != nil {
		snap = snap.Select(selected)
	}
	return snap, err
}

func (c *Collector) collectMaps() (metrics []prometheus.Metric, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	selected := telemetry.Selection{Joined: true, MinAge: c.options.MinAge}
	if c.options.MaxSeries > 0 {
		selected.Most = c.options.MaxSeries/leastSeries + 1 // the last one will not fit
		selected.Connections = true
	}
	err = c.read(ctx, selected, func(snap *telemetry.Snapshot) {
		if snap == nil {
			return
		}
		metrics = slices.Concat(
			show(lostMetrics, &snap.Lost, labelsOf()),
			collectTotals(snap),
			c.collectScheds(snap),
			c.collectSubflows(snap))
	})
	return metrics, err
}

func placeOf(cc, iface, netnsName string, netns uint64) labels {
	return labelsOf(cc, iface, netnsLabel(netnsName, netns))
}

// leastSeries is how many series a subflow has at least, one of them its mpcc_subflow_info.
var leastSeries = len(show(subflowMetrics, &telemetry.Subflow{}, labelsOf("", "", "", "", ""))) + 1

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
	for _, l := range snap.Live {
		active[placeOf(l.CC, l.Interface, l.NetnsName, l.Netns)] += l.Subflows
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
	totals := map[labels]telemetry.SchedTotal{}
	for _, t := range snap.SchedTotals {
		place := labelsOf(t.Scheduler, netnsLabel(t.NetnsName, t.Netns))
		sum := totals[place]
		sum.Opened += t.Opened
		sum.Closed += t.Closed
		sum.Decisions += t.Decisions
		sum.Waits += t.Waits
		sum.Retransmissions += t.Retransmissions
		sum.Repeats += t.Repeats
		sum.Bytes += t.Bytes
		sum.Active += t.Active
		totals[place] = sum
	}
	for place, t := range totals {
		if last := c.scheds[place]; last.Opened <= t.Opened { // otherwise the maps were made anew
			t.Decisions = max(t.Decisions, last.Decisions)
			t.Waits = max(t.Waits, last.Waits)
			t.Retransmissions = max(t.Retransmissions, last.Retransmissions)
			t.Repeats = max(t.Repeats, last.Repeats)
			t.Bytes = max(t.Bytes, last.Bytes)
		}
		totals[place] = t
		metrics = append(metrics, show(schedMetrics, &t, place)...)
		metrics = append(metrics, sample(schedActiveDesc, gauge, float64(t.Active), place))
	}
	c.scheds = totals
	return metrics
}

// collectPaths leaves out a rule with the labels of another: of an interface whose name is not UTF-8, or of a namespace
// that is gone, whose inode number came again.
func (c *Collector) collectPaths() (metrics []prometheus.Metric, err error) {
	rules, err := c.options.Paths()
	names, seen := netns.Names(), map[labels]bool{}
	for i := range rules {
		r := &rules[i]
		path := r.Path.String()
		if c.options.NoPeerAddresses && strings.HasPrefix(path, "remote=") {
			path = fmt.Sprintf("remote=#%d", i+1)
		}
		l := labelsOf(path, r.Only.String(), netnsLabel(names[r.Inode], r.Inode))
		if !seen[l] {
			seen[l] = true
			metrics = append(metrics, show(pathMetrics, r, l)...)
		}
	}
	return metrics, err
}

// collectManagers has all events also while there were none of a kind, so that the first one is seen as one more.
func (c *Collector) collectManagers() (metrics []prometheus.Metric, err error) {
	all, err := c.options.Managers()
	seen := map[labels]bool{}
	for i := range all.Covered {
		m := &all.Covered[i]
		l := labelsOf(netnsLabel(m.NetnsName, m.Netns))
		if seen[l] {
			continue
		}
		seen[l] = true
		metrics = append(metrics, show(managerMetrics, m, l)...)
		for name, flag := range endpointFlags {
			n := 0
			for _, e := range m.Endpoints {
				if e.Flags&flag != 0 {
					n++
				}
			}
			metrics = append(metrics, sample(flaggedDesc, gauge, float64(n), l+labelsOf(name)))
		}
		for event, n := range m.Counters {
			if event != establishedCounter {
				metrics = append(metrics, sample(eventsDesc, counter, float64(n), l+labelsOf(event)))
			}
		}
	}
	metrics = append(metrics, sample(coveredDesc, gauge, float64(len(all.Covered)), labelsOf()),
		sample(othersDesc, gauge, float64(all.Others), labelsOf()))
	return metrics, err
}

// collectSubflows shows single subflows of MPTCP connections. Other TCP connections have no token to tell
// them apart by and are in the totals only, and so is a subflow that is still joining.
func (c *Collector) collectSubflows(snap *telemetry.Snapshot) (metrics []prometheus.Metric) {
	if c.options.MaxSeries <= 0 {
		return nil
	}
	shown := snap.Subflows
	slices.SortFunc(shown, func(a, b telemetry.Subflow) int {
		return cmp.Or(cmp.Compare(b.Busyness(), a.Busyness()), cmp.Compare(a.ID, b.ID))
	})
	c.overflow.Add(float64(snap.LeftOut))
	scheduled := scheduledOf(snap)
	seen := map[labels]bool{}
	for i := range shown {
		f := &shown[i]
		l := subflowLabelsOf(f)
		if seen[l] {
			continue
		}
		seen[l] = true
		series := append(show(subflowMetrics, f, l), sample(infoDesc, gauge, 1, l+c.addressesOf(f)))
		if g := scheduled[subflowKey{f.NetnsCookie, f.Token, f.SubflowID}]; g != nil {
			series = append(series, show(scheduledMetrics, g, l)...)
		}
		if len(metrics)+len(series) > c.options.MaxSeries {
			c.overflow.Add(float64(len(shown) - i))
			break
		}
		metrics = append(metrics, series...)
	}
	return append(metrics, c.overflow)
}

// subflowKey tells apart the subflows that are live at a time.
type subflowKey struct {
	netnsCookie uint64
	token       telemetry.Token
	subflowID   uint32
}

// scheduledOf returns what packet schedulers did with subflows.
func scheduledOf(snap *telemetry.Snapshot) map[subflowKey]*telemetry.Scheduled {
	scheduled := map[subflowKey]*telemetry.Scheduled{}
	for i := range snap.Connections {
		conn := &snap.Connections[i]
		for j := range conn.Subflows {
			g := &conn.Subflows[j]
			scheduled[subflowKey{conn.NetnsCookie, conn.Token, g.SubflowID}] = g
		}
	}
	return scheduled
}

func subflowLabelsOf(f *telemetry.Subflow) labels {
	return placeOfSubflow(f) + labelsOf(f.Token.String(), strconv.FormatUint(uint64(f.SubflowID), 10))
}

// addressesOf are those of infoLabels.
func (c *Collector) addressesOf(f *telemetry.Subflow) labels {
	return labelsOf(f.Local.Addr().String(), strconv.Itoa(int(f.LocalID)), c.peer(f.Remote.Addr().String()), strconv.Itoa(int(f.RemoteID)))
}

// peer is a peer's address as far as it may be shown.
func (c *Collector) peer(address string) string {
	if c.options.NoPeerAddresses {
		return ""
	}
	return address
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
