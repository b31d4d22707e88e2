// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/paths"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

func buckets(counts map[int]uint64) []uint64 {
	rtt := make([]uint64, 24)
	for i, n := range counts {
		rtt[i] = n
	}
	return rtt
}

// snapshot is what testdata/scrape.prom shows.
func snapshot() *telemetry.Snapshot {
	return &telemetry.Snapshot{
		Subflows: []telemetry.Subflow{
			{
				ID: 1, Token: 0xab12cd, SubflowID: 1, LocalID: 0, RemoteID: 3, CC: "dts", Netns: 4026531840,
				Interface: "wlan0", Ifindex: 3,
				Local: netip.MustParseAddrPort("10.0.0.1:40000"), Remote: netip.MustParseAddrPort("192.0.2.9:443"),
				Cwnd: 42, Ssthresh: new(uint32(21)), MSS: 1448,
				SRTT: telemetry.Micros(50500 * time.Microsecond), BaseRTT: telemetry.Micros(40 * time.Millisecond),
				DeliveryRate: 1250000, BytesSent: 900000, BytesAcked: 880000, BytesReceived: 1500, BytesRetrans: 2896,
				Retrans: 2, Losses: 1, Coupling: -0.5, Energy: new(1.25), Age: telemetry.Seconds(10 * time.Second),
			},
			{ // has neither lost nor measured anything yet, no profile
				ID: 2, Token: 0x7fffffff, SubflowID: 2, LocalID: 4, CC: "lia", Netns: 4026532222, NetnsName: "phone",
				Interface: "eth1", Ifindex: 2, Backup: true,
				Local: netip.MustParseAddrPort("[2001:db8::1]:40001"), Remote: netip.MustParseAddrPort("[2001:db8::9]:443"),
				Cwnd: 10, MSS: 1428, BytesReceived: 30, Age: telemetry.Seconds(5 * time.Second),
			},
			{ // not multipath
				ID: 3, CC: "dts", Netns: 4026531840, Interface: "wlan0", Cwnd: 99, Age: telemetry.Seconds(time.Hour),
			},
			{ // too young
				ID: 4, Token: 0x7fffffff, SubflowID: 3, CC: "lia", Netns: 4026532222, NetnsName: "phone",
				Interface: "eth1", Cwnd: 10, Age: telemetry.Seconds(5*time.Second - 1),
			},
			{ // still joining; no room for its totals
				ID: 5, Token: 0x7fffffff, CC: "lia", Netns: 4026532333, Interface: "eth1", Age: telemetry.Seconds(time.Minute),
			},
		},
		Totals: []telemetry.Total{
			{
				CC: "dts", Netns: 4026531840, Interface: "wlan0", Ifindex: 3, Opened: 5, Closed: 3,
				BytesAcked: 1000000, BytesReceived: 2000, BytesRetrans: 2896, Retrans: 2, Losses: 1, Energy: 1.5,
				RTTSum: telemetry.Seconds(250 * time.Millisecond), RTT: buckets(map[int]uint64{0: 1, 16: 3, 17: 1}),
			},
			{ // the interface of before, under the same name
				CC: "dts", Netns: 4026531840, Interface: "wlan0", Ifindex: 2, Opened: 1, Closed: 1,
				BytesAcked: 500, Energy: 0.25,
				RTTSum: telemetry.Seconds(10 * time.Second), RTT: buckets(map[int]uint64{16: 1, 23: 1}),
			},
			{
				CC: "lia", Netns: 4026532222, NetnsName: "phone", Interface: "eth1", Opened: 1,
				BytesReceived: 30, RTT: buckets(nil),
			},
		},
		Connections: []telemetry.Connection{
			{ID: 1, Token: 0xab12cd, Scheduler: "minrtt", Netns: 4026531840, Subflows: []telemetry.Scheduled{
				{
					SubflowID: 1, Repeated: 2, Rate: new(12.0),
					Arrival: new(telemetry.Micros(30250 * time.Microsecond)), Held: new(uint64(60000)),
				},
				{SubflowID: 2, Held: new(uint64(1))}, // has closed
			}},
			{ID: 2, Token: 0xab12ce, Scheduler: "minrtt", Netns: 4026531840},
			{ID: 3, Token: 0x7fffffff, Scheduler: "cdd", Netns: 4026532222, NetnsName: "phone", Subflows: []telemetry.Scheduled{
				{SubflowID: 2},
			}},
			{ID: 4, Token: 0x7fffffff, Scheduler: "cdd", Netns: 4026532333, NetnsCookie: 3, Subflows: []telemetry.Scheduled{
				{SubflowID: 2, Held: new(uint64(1))}, // of another namespace
			}},
		},
		SchedTotals: []telemetry.SchedTotal{
			{
				Scheduler: "minrtt", Netns: 4026531840, Opened: 4, Closed: 2,
				Decisions: 1000, Waits: 10, Retransmissions: 3, Repeats: 2, Bytes: 5000000,
			},
			{Scheduler: "cdd", Netns: 4026532222, NetnsName: "phone", Opened: 1, Closed: 1, Decisions: 7, Bytes: 1000},
		},
		Lost: telemetry.Lost{Subflows: 7, Totals: 8, Connections: 10, SchedTotals: 11},
	}
}

// rules are those of testdata/scrape.prom.
func rules() ([]paths.Live, error) {
	rule := func(path, only string, inode uint64) paths.Live {
		l := paths.Live{Inode: inode}
		var pathErr, onlyErr error
		l.Path, pathErr = paths.ParsePath(path)
		l.Only, onlyErr = paths.ParseOnly(only)
		if err := errors.Join(pathErr, onlyErr); err != nil {
			panic(err)
		}
		l.Rank = 1
		return l
	}
	lte, web, again := rule("lte0", "", 4026531840), rule("remote=192.0.2.0/24", "port=443", 4026531840), rule("lte0", "", 4026531840)
	lte.Rank, lte.Used, lte.Quota, lte.Spent = 2, 21_000_000, paths.Quota{Bytes: 20_000_000}, true
	web.Cap, web.Excluded = 625_000, true
	return []paths.Live{lte, web, again}, nil
}

// managers are those of testdata/scrape.prom.
func managers() (Managers, error) {
	return Managers{
		Covered: []Manager{
			{
				Netns: 4026531840,
				Endpoints: []mptcp.Endpoint{
					{ID: 1, Addr: netip.MustParseAddr("10.0.0.1"), Flags: mptcp.EndpointSubflow | mptcp.EndpointFullmesh},
					{ID: 2, Addr: netip.MustParseAddr("10.0.1.1"), Flags: mptcp.EndpointSubflow | mptcp.EndpointBackup},
				},
				Limits:   mptcp.Limits{Subflows: 2, AddAddrAccepted: 4},
				Counters: map[string]uint64{"MPCapableSYNTX": 12, "MPJoinSynTx": 5, "MPCapableFallbackSYNACK": 0, "MPCurrEstab": 3},
			},
			{Netns: 4026532222, NetnsName: "phone", Userspace: true}, // of a kernel that counts nothing
		},
		Others: 1,
	}, nil
}

// machine is a /sys with a RAPL zone and a battery.
func machine(t *testing.T) string {
	t.Helper()
	sys := t.TempDir()
	for name, text := range map[string]string{
		"powercap/intel-rapl:0/name":                "package-0",
		"powercap/intel-rapl:0/max_energy_range_uj": "10000000",
		"powercap/intel-rapl:0/energy_uj":           "5000000",
		"power_supply/BAT0/type":                    "Battery",
		"power_supply/BAT0/status":                  "Discharging",
		"power_supply/BAT0/power_now":               "7500000",
		"power_supply/BAT0/energy_now":              "20000000",
	} {
		path := filepath.Join(sys, "class", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

func collector(t *testing.T, sys string, maxSeries int, read func(context.Context) (*telemetry.Snapshot, error)) *Collector {
	t.Helper()
	c, err := NewCollector(Options{
		Read: read, Paths: rules, Managers: managers, MaxSeries: maxSeries, MinAge: 5 * time.Second, Sys: sys,
		Log: logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func full(t *testing.T) *Collector {
	return collector(t, machine(t), 1000, func(context.Context) (*telemetry.Snapshot, error) { return snapshot(), nil })
}

func golden(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/scrape.prom")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestScrape(t *testing.T) {
	if err := testutil.CollectAndCompare(full(t), strings.NewReader(golden(t))); err != nil {
		t.Error(err)
	}
}

// Peers' addresses are in no label where they are not to be, and nothing else is missing.
func TestNoPeerAddresses(t *testing.T) {
	c := full(t)
	c.options.NoPeerAddresses = true
	want := strings.NewReplacer(`remote="192.0.2.9"`, `remote=""`, `remote="2001:db8::9"`, `remote=""`,
		`path="remote=192.0.2.0/24"`, `path="remote=#2"`).Replace(golden(t))
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if strings.Contains(want, "192.0.2.") || strings.Contains(want, "2001:db8::9") {
		t.Error("an address of a peer is left")
	}
}

// Names that are not UTF-8, which an interface may have, are mended and spoil nothing else.
func TestNamesNotUTF8(t *testing.T) {
	spoilt := map[string]string{
		"wlan0": "wlan\xff0", "eth1": "\xc3(", "dts": "\xed\xa0\x80", "minrtt": "min\x80rtt", "phone": "pho\xf0\x9fne",
	}
	spoil := func(names ...*string) {
		for _, name := range names {
			if bad, ok := spoilt[*name]; ok {
				*name = bad
			}
		}
	}
	snap := snapshot()
	for i := range snap.Subflows {
		f := &snap.Subflows[i]
		spoil(&f.CC, &f.Interface, &f.NetnsName)
	}
	for i := range snap.Totals {
		f := &snap.Totals[i]
		spoil(&f.CC, &f.Interface, &f.NetnsName)
	}
	for i := range snap.Connections {
		f := &snap.Connections[i]
		spoil(&f.Scheduler, &f.NetnsName)
	}
	for i := range snap.SchedTotals {
		f := &snap.SchedTotals[i]
		spoil(&f.Scheduler, &f.NetnsName)
	}
	want := strings.NewReplacer(`"wlan0"`, `"wlan�0"`, `"eth1"`, `"�("`, `"dts"`, `"�"`, `"minrtt"`, `"min�rtt"`, `"phone"`, `"pho�ne"`).
		Replace(golden(t))
	c := collector(t, machine(t), 1000, func(context.Context) (*telemetry.Snapshot, error) { return snap, nil })
	c.options.Managers = func() (Managers, error) {
		all, err := managers()
		spoil(&all.Covered[1].NetnsName)
		return all, err
	}
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// Series that have the same labels once their names are mended are added up, or shown once where they cannot be.
func TestSameLabels(t *testing.T) {
	subflow := telemetry.Subflow{Token: 1, SubflowID: 1, CC: "dts", Netns: 1, Age: telemetry.Seconds(time.Minute), Cwnd: 5}
	total := telemetry.Total{CC: "dts", Netns: 1, Opened: 2}
	sched := telemetry.SchedTotal{Netns: 1, Decisions: 7}
	var snap telemetry.Snapshot
	for i, name := range []string{"a\xff", "a\xfe"} {
		subflow.Interface, total.Interface, sched.Scheduler = name, name, name
		total.RTT = buckets(map[int]uint64{3: 1})[:10+10*i]
		snap.Subflows = append(snap.Subflows, subflow)
		snap.Totals = append(snap.Totals, total)
		snap.SchedTotals = append(snap.SchedTotals, sched)
	}
	got := gather(t, collector(t, t.TempDir(), 1000, func(context.Context) (*telemetry.Snapshot, error) { return &snap, nil }))
	for name, want := range map[string]float64{
		"mpcc_subflows_opened_total": 4, "mpcc_subflows_active": 2, "mpcc_subflow_cwnd_packets": 5, "mpcc_sched_decisions_total": 14,
	} {
		if n := len(got[name].Metric); n != 1 {
			t.Errorf("%s: %d series, want 1", name, n)
			continue
		}
		m := got[name].Metric[0]
		if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != want {
			t.Errorf("%s is %g, want %g", name, v, want)
		}
	}
	if n := got["mpcc_srtt_seconds"].Metric[0].Histogram.GetSampleCount(); n != 2 {
		t.Errorf("%d RTTs in the histogram, want 2", n)
	}
}

// A zone that cannot be read spoils neither the other zones nor the rest of the scrape.
func TestPartOfTheMachine(t *testing.T) {
	sys := machine(t)
	zone := filepath.Join(sys, "class", "powercap", "intel-rapl:1")
	if err := os.Mkdir(zone, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"name": "package-1", "max_energy_range_uj": "10000000", "energy_uj": "gone"} {
		if err := os.WriteFile(filepath.Join(zone, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := collector(t, sys, 1000, func(context.Context) (*telemetry.Snapshot, error) { return snapshot(), nil })
	const ok = `mpcc_collector_success{collector="rapl"} `
	want := strings.Replace(golden(t), ok+"1", ok+"0", 1)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(full(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// gather returns the families of a scrape by name.
func gather(t *testing.T, c prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

// The native histogram holds what the classic one does, by the rules of schema 0: bucket n ends at 2^n s.
func TestNativeHistogram(t *testing.T) {
	for _, m := range gather(t, full(t))["mpcc_srtt_seconds"].Metric {
		if m.Label[0].GetValue() != "dts" {
			continue
		}
		h := m.Histogram
		got := map[int32]int64{}
		var index int32
		var n int64
		deltas := h.PositiveDelta
		for _, span := range h.PositiveSpan {
			index += span.GetOffset()
			for range span.GetLength() {
				n += deltas[0]
				deltas = deltas[1:]
				if n != 0 {
					got[index] = n
				}
				index++
			}
		}
		// 2^-4 s is 62.5 ms; what is above 4 s counts as at most 8 s.
		want := map[int32]int64{-4: 4, -3: 1, 3: 1}
		if diff := cmp.Diff(want, got); diff != "" || len(deltas) != 0 {
			t.Errorf("%s%d deltas left", diff, len(deltas))
		}
		if h.GetSchema() != 0 || h.GetZeroThreshold() != 1.0/1048576 || h.GetZeroCount() != 1 || h.GetSampleCount() != 7 {
			t.Errorf("schema %d, zero threshold %g, zero count %d, count %d",
				h.GetSchema(), h.GetZeroThreshold(), h.GetZeroCount(), h.GetSampleCount())
		}
		return
	}
	t.Error("there is no histogram of dts")
}

// A connection that closes while the maps are read must not make a counter fall; new maps start from 0.
func TestSchedulerCountersDoNotFall(t *testing.T) {
	var now telemetry.SchedTotal
	c := collector(t, t.TempDir(), 0, func(context.Context) (*telemetry.Snapshot, error) {
		return &telemetry.Snapshot{SchedTotals: []telemetry.SchedTotal{now}}, nil
	})
	for _, step := range []struct{ opened, decisions, bytes, wantDecisions, wantBytes uint64 }{
		{2, 100, 5000, 100, 5000},
		{2, 40, 2000, 100, 5000},
		{3, 140, 4000, 140, 5000},
		{1, 5, 50, 5, 50},
	} {
		now = telemetry.SchedTotal{Scheduler: "minrtt", Netns: 1, Opened: step.opened, Decisions: step.decisions, Bytes: step.bytes}
		got := gather(t, c)
		for name, want := range map[string]uint64{
			"mpcc_sched_decisions_total": step.wantDecisions, "mpcc_sched_assigned_bytes_total": step.wantBytes,
		} {
			if v := got[name].Metric[0].Counter.GetValue(); v != float64(want) {
				t.Errorf("%+v: %s is %g", step, name, v)
			}
		}
	}
}

// crowd is n subflows; the one with token i moves i bytes a second.
func crowd(n int) *telemetry.Snapshot {
	snap := &telemetry.Snapshot{}
	for i := 1; i <= n; i++ {
		snap.Subflows = append(snap.Subflows, telemetry.Subflow{
			ID: uint64(n - i), Token: telemetry.Token(i), SubflowID: 1, CC: "dts", Interface: "eth0",
			SRTT: 1, BaseRTT: 1, DeliveryRate: 1, Ssthresh: new(uint32(1)), Energy: new(1.0),
			BytesSent: uint64(i) * 100, Age: telemetry.Seconds(100 * time.Second),
		})
		snap.Connections = append(snap.Connections, telemetry.Connection{
			Token:    telemetry.Token(i),
			Subflows: []telemetry.Scheduled{{SubflowID: 1, Rate: new(1.0), Arrival: new(telemetry.Micros(1)), Held: new(uint64(1))}},
		})
	}
	return snap
}

func TestSubflowSeriesAreBounded(t *testing.T) {
	const each = 20 // mpcc_subflow_* of a subflow that has them all
	for _, test := range []struct{ max, shown int }{{each - 1, 0}, {each, 1}, {3*each + 5, 3}, {1000, 10}, {0, 0}} {
		c := collector(t, t.TempDir(), test.max, func(context.Context) (*telemetry.Snapshot, error) { return crowd(10), nil })
		for scrape := 1; scrape <= 2; scrape++ {
			series := 0
			var tokens []string
			families := gather(t, c)
			for name, f := range families {
				if !strings.HasPrefix(name, "mpcc_subflow_") || name == "mpcc_subflow_overflow_total" {
					continue
				}
				series += len(f.Metric)
				if name == "mpcc_subflow_cwnd_packets" {
					for _, m := range f.Metric {
						tokens = append(tokens, m.Label[4].GetValue())
					}
				}
			}
			if series != test.shown*each {
				t.Errorf("max %d: %d series, want %d", test.max, series, test.shown*each)
			}
			var busiest []string
			for i := 10; i > 10-test.shown; i-- {
				busiest = append(busiest, fmt.Sprintf("%08x", i))
			}
			slices.Sort(busiest)
			slices.Sort(tokens)
			if diff := cmp.Diff(busiest, tokens); diff != "" {
				t.Errorf("max %d: %s", test.max, diff)
			}
			overflow := families["mpcc_subflow_overflow_total"]
			if test.max == 0 {
				if overflow != nil {
					t.Error("single subflows are off, but overflow is shown")
				}
			} else if got, want := overflow.Metric[0].Counter.GetValue(), float64(scrape*(10-test.shown)); got != want {
				t.Errorf("max %d, scrape %d: overflow %g, want %g", test.max, scrape, got, want)
			}
		}
	}
}

// With nothing loaded, no series; with maps that cannot be read, none either, and a failure.
func TestNothingToRead(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		success string
	}{"not loaded": {nil, "1"}, "unreadable": {errors.New("no"), "0"}} {
		t.Run(name, func(t *testing.T) {
			c := collector(t, t.TempDir(), 1000, func(context.Context) (*telemetry.Snapshot, error) { return nil, test.err })
			c.options.Paths = func() ([]paths.Live, error) { return nil, test.err }
			c.options.Managers = func() (Managers, error) { return Managers{}, test.err }
			want := `# HELP mpcc_collector_success Whether a collector could read what there is to read; 1 also where there is nothing.
# TYPE mpcc_collector_success gauge
mpcc_collector_success{collector="battery"} 1
mpcc_collector_success{collector="mptcp"} ` + test.success + `
mpcc_collector_success{collector="paths"} ` + test.success + `
mpcc_collector_success{collector="rapl"} 1
mpcc_collector_success{collector="telemetry"} ` + test.success + `
# HELP mpcc_pm_namespaces_covered Network namespaces whose path manager and MPTCP counters are shown.
# TYPE mpcc_pm_namespaces_covered gauge
mpcc_pm_namespaces_covered 0
# HELP mpcc_pm_namespaces_not_covered Network namespaces with a name that the exporter may not look into.
# TYPE mpcc_pm_namespaces_not_covered gauge
mpcc_pm_namespaces_not_covered 0
`
			if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		})
	}
}
