// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/paths"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Names of labels.
var (
	totalLabels   = []string{"cc", "iface", "netns"}
	schedLabels   = []string{"scheduler", "netns"}
	pathLabels    = []string{"path", "only", "netns"}
	managerLabels = []string{"netns"}
	flagLabels    = []string{"netns", "flag"}
	eventLabels   = []string{"netns", "event"}
	subflowLabels = []string{"cc", "iface", "netns", "token", "subflow"}
	infoLabels    = append(subflowLabels[:5:5], "local", "local_id", "remote", "remote_id")
	zoneLabels    = []string{"zone", "name"}
	batteryLabels = []string{"battery"}
)

// metric is a metric of a T: its description, and how to read it from a T.
type metric[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*T) (v float64, ok bool) // not ok: there is nothing to show
}

// show returns those of the metrics that t has a value for.
func show[T any](metrics []metric[T], t *T, l labels) []prometheus.Metric {
	var shown []prometheus.Metric
	for _, m := range metrics {
		if v, ok := m.value(t); ok {
			shown = append(shown, sample(m.desc, m.kind, v, l))
		}
	}
	return shown
}

func describe(name, help string, labelNames []string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labelNames, nil)
}

// describeEnergy has source as a label: model for what is computed, else what measured it.
func describeEnergy(name, help string, labelNames []string, source string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labelNames, prometheus.Labels{"source": source})
}

func always[T any, V uint64 | uint32 | float64](read func(*T) V) func(*T) (float64, bool) {
	return func(t *T) (float64, bool) { return float64(read(t)), true }
}

// truth reads a yes or no, as 1 or 0.
func truth[T any](read func(*T) bool) func(*T) (float64, bool) {
	return func(t *T) (float64, bool) {
		if read(t) {
			return 1, true
		}
		return 0, true
	}
}

// unlessZero reads a value that is 0 while it is unknown: there is nothing to show then.
func unlessZero[T any, V uint64 | uint32 | float64](read func(*T) V) func(*T) (float64, bool) {
	return func(t *T) (float64, bool) { v := float64(read(t)); return v, v != 0 }
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// What a congestion control did on an interface of a namespace; it survives the subflows.
var totalMetrics = []metric[telemetry.Total]{
	{describe("mpcc_subflows_opened_total", "Subflows that started.", totalLabels), counter,
		always(func(t *telemetry.Total) uint64 { return t.Opened })},
	{describe("mpcc_subflows_closed_total", "Subflows that ended.", totalLabels), counter,
		always(func(t *telemetry.Total) uint64 { return t.Closed })},
	{describe("mpcc_acked_bytes_total", "Bytes sent and acknowledged.", totalLabels), counter,
		always(func(t *telemetry.Total) uint64 { return t.BytesAcked })},
	{describe("mpcc_received_bytes_total", "Bytes received.", totalLabels), counter,
		always(func(t *telemetry.Total) uint64 { return t.BytesReceived })},
	{describe("mpcc_retransmitted_bytes_total", "Bytes sent again.", totalLabels), counter,
		always(func(t *telemetry.Total) uint64 { return t.BytesRetrans })},
	{describe("mpcc_retransmitted_segments_total", "Segments sent again.", totalLabels), counter,
		always(func(t *telemetry.Total) uint64 { return t.Retrans })},
	{describe("mpcc_loss_events_total", "Loss events: times the window was cut for a loss.", totalLabels), counter,
		always(func(t *telemetry.Total) uint64 { return t.Losses })},
	{describeEnergy("mpcc_energy_joules_total", "Energy by the power profile of the interface.", totalLabels, "model"), counter,
		unlessZero(func(t *telemetry.Total) float64 { return t.Energy })},
}

var (
	activeDesc = describe("mpcc_subflows_active", "Subflows that are live.", totalLabels)
	srttDesc   = describe("mpcc_srtt_seconds", "Smoothed RTT at each refresh of a subflow's state: at most once per RTT and once per 100 ms.", totalLabels)
)

// What a packet scheduler did in a namespace, in live connections and in those of before.
var schedMetrics = []metric[telemetry.SchedTotal]{
	{describe("mpcc_sched_connections_opened_total", "Connections that made a first decision.", schedLabels), counter,
		always(func(t *telemetry.SchedTotal) uint64 { return t.Opened })},
	{describe("mpcc_sched_connections_closed_total", "Connections that ended.", schedLabels), counter,
		always(func(t *telemetry.SchedTotal) uint64 { return t.Closed })},
	{describe("mpcc_sched_decisions_total", "Decisions on which subflows send next.", schedLabels), counter,
		always(func(t *telemetry.SchedTotal) uint64 { return t.Decisions })},
	{describe("mpcc_sched_waits_total", "Decisions to wait although a subflow had room.", schedLabels), counter,
		always(func(t *telemetry.SchedTotal) uint64 { return t.Waits })},
	{describe("mpcc_sched_retransmissions_total", "Decisions on which subflows send again what another carried.", schedLabels), counter,
		always(func(t *telemetry.SchedTotal) uint64 { return t.Retransmissions })},
	{describe("mpcc_sched_repeats_total", "Decisions to send again on other subflows all that a slow one held.", schedLabels), counter,
		always(func(t *telemetry.SchedTotal) uint64 { return t.Repeats })},
	{describe("mpcc_sched_assigned_bytes_total", "Bytes handed to subflows.", schedLabels), counter,
		always(func(t *telemetry.SchedTotal) uint64 { return t.Bytes })},
}

var schedActiveDesc = describe("mpcc_sched_connections_active", "Connections that are live.", schedLabels)

// A path that has a rule (mpcc path).
var pathMetrics = []metric[paths.Live]{
	{describe("mpcc_path_rank", "Rank of a path; 1 is the best.", pathLabels), gauge,
		always(func(l *paths.Live) uint32 { return l.Rank })},
	{describe("mpcc_path_used_bytes", "Bytes handed to subflows of a path, as far as its quota counts them.", pathLabels), gauge,
		always(func(l *paths.Live) uint64 { return l.Used })},
	{describe("mpcc_path_quota_bytes", "Quota of a path, in all or a month; absent without one.", pathLabels), gauge,
		unlessZero(func(l *paths.Live) uint64 { return l.Quota.Bytes })},
	{describe("mpcc_path_quota_used_up", "1 for a path that is a backup since its quota is used up.", pathLabels), gauge,
		truth(func(l *paths.Live) bool { return l.Spent })},
	{describe("mpcc_path_cap_bytes_per_second", "Rate that a path is handed data at, at most; absent without a cap.", pathLabels), gauge,
		unlessZero(func(l *paths.Live) uint64 { return uint64(l.Cap) })},
	{describe("mpcc_path_excluded", "1 for a path that is used only where nothing else is alive.", pathLabels), gauge,
		truth(func(l *paths.Live) bool { return l.Excluded })},
}

// MPTCP in a network namespace: its path manager, and what the kernel counts.
var (
	managerMetrics = []metric[Manager]{
		{describe("mpcc_pm_endpoints", "Endpoints of the in-kernel path manager.", managerLabels), gauge,
			func(m *Manager) (float64, bool) { return float64(len(m.Endpoints)), true }},
		{describe("mpcc_pm_subflows_limit", "Subflows that the in-kernel path manager makes for a connection, at most, beside the first.", managerLabels), gauge,
			always(func(m *Manager) uint32 { return m.Limits.Subflows })},
		{describe("mpcc_pm_add_addr_accepted_limit", "Addresses announced by the peer that the in-kernel path manager takes for a connection, at most.", managerLabels), gauge,
			always(func(m *Manager) uint32 { return m.Limits.AddAddrAccepted })},
		{describe("mpcc_pm_userspace", "1 where new connections are left to a userspace path manager.", managerLabels), gauge,
			truth(func(m *Manager) bool { return m.Userspace })},
		{describe("mpcc_mptcp_connections_established", "MPTCP connections that are established.", managerLabels), gauge,
			func(m *Manager) (float64, bool) { n, known := m.Counters[establishedCounter]; return float64(n), known }},
	}
	flaggedDesc = describe("mpcc_pm_flagged_endpoints", "Endpoints of the in-kernel path manager that have a flag.", flagLabels)
	eventsDesc  = describe("mpcc_mptcp_events_total", "What the kernel counts of MPTCP, by nstat's names without MPTcpExt.", eventLabels)
	coveredDesc = describe("mpcc_pm_namespaces_covered", "Network namespaces whose path manager and MPTCP counters are shown.", nil)
	othersDesc  = describe("mpcc_pm_namespaces_not_covered", "Network namespaces with a name that the exporter may not look into.", nil)
)

// establishedCounter is the only one of the kernel's counters of MPTCP that falls, too.
const establishedCounter = "MPCurrEstab"

// endpointFlags are the flags of an endpoint by the names of ip mptcp.
var endpointFlags = map[string]mptcp.EndpointFlags{
	"signal": mptcp.EndpointSignal, "subflow": mptcp.EndpointSubflow, "backup": mptcp.EndpointBackup,
	"fullmesh": mptcp.EndpointFullmesh, "implicit": mptcp.EndpointImplicit,
}

// One live subflow.
var subflowMetrics = []metric[telemetry.Subflow]{
	{describe("mpcc_subflow_cwnd_packets", "Congestion window.", subflowLabels), gauge,
		always(func(f *telemetry.Subflow) uint32 { return f.Cwnd })},
	{describe("mpcc_subflow_ssthresh_packets", "Slow start threshold; absent before the first loss.", subflowLabels), gauge,
		func(f *telemetry.Subflow) (float64, bool) { return optional(f.Ssthresh) }},
	{describe("mpcc_subflow_mss_bytes", "Maximum segment size.", subflowLabels), gauge,
		always(func(f *telemetry.Subflow) uint32 { return f.MSS })},
	{describe("mpcc_subflow_srtt_seconds", "Smoothed RTT.", subflowLabels), gauge,
		unlessZero(func(f *telemetry.Subflow) float64 { return time.Duration(f.SRTT).Seconds() })},
	{describe("mpcc_subflow_base_rtt_seconds", "Smallest RTT of the subflow's life.", subflowLabels), gauge,
		unlessZero(func(f *telemetry.Subflow) float64 { return time.Duration(f.BaseRTT).Seconds() })},
	{describe("mpcc_subflow_delivery_rate_bytes_per_second", "The kernel's latest estimate of the delivery rate.", subflowLabels), gauge,
		unlessZero(func(f *telemetry.Subflow) uint64 { return f.DeliveryRate })},
	{describe("mpcc_subflow_coupling", "The quantity by which the congestion control couples subflows; mpcc list -v names it.", subflowLabels), gauge,
		always(func(f *telemetry.Subflow) float64 { return f.Coupling })},
	{describe("mpcc_subflow_backup", "1 for a backup subflow.", subflowLabels), gauge,
		truth(func(f *telemetry.Subflow) bool { return f.Backup })},
	{describe("mpcc_subflow_sent_bytes_total", "Bytes sent, with retransmissions.", subflowLabels), counter,
		always(func(f *telemetry.Subflow) uint64 { return f.BytesSent })},
	{describe("mpcc_subflow_acked_bytes_total", "Bytes sent and acknowledged.", subflowLabels), counter,
		always(func(f *telemetry.Subflow) uint64 { return f.BytesAcked })},
	{describe("mpcc_subflow_received_bytes_total", "Bytes received.", subflowLabels), counter,
		always(func(f *telemetry.Subflow) uint64 { return f.BytesReceived })},
	{describe("mpcc_subflow_retransmitted_bytes_total", "Bytes sent again.", subflowLabels), counter,
		always(func(f *telemetry.Subflow) uint64 { return f.BytesRetrans })},
	{describe("mpcc_subflow_retransmitted_segments_total", "Segments sent again.", subflowLabels), counter,
		always(func(f *telemetry.Subflow) uint32 { return f.Retrans })},
	{describe("mpcc_subflow_loss_events_total", "Loss events: times the window was cut for a loss.", subflowLabels), counter,
		always(func(f *telemetry.Subflow) uint32 { return f.Losses })},
	{describeEnergy("mpcc_subflow_energy_joules_total", "Energy by the power profile of the interface; absent without one.", subflowLabels, "model"), counter,
		func(f *telemetry.Subflow) (float64, bool) { return optional(f.Energy) }},
}

// What a packet scheduler did with a live subflow, and what it expects of the subflow.
var scheduledMetrics = []metric[telemetry.Scheduled]{
	{describe("mpcc_subflow_expected_rate_bytes_per_second", "Rate that the packet scheduler expects.", subflowLabels), gauge,
		func(g *telemetry.Scheduled) (float64, bool) { v, ok := optional(g.Rate); return v * 1e6 / 8, ok }},
	{describe("mpcc_subflow_expected_arrival_seconds", "How long a byte takes that the packet scheduler sends there now.", subflowLabels), gauge,
		func(g *telemetry.Scheduled) (float64, bool) {
			if g.Arrival == nil {
				return 0, false
			}
			return time.Duration(*g.Arrival).Seconds(), true
		}},
	{describe("mpcc_subflow_held_bytes", "Bytes handed to the subflow and not acknowledged, as of the last decision.", subflowLabels), gauge,
		func(g *telemetry.Scheduled) (float64, bool) { return optional(g.Held) }},
	{describe("mpcc_subflow_repeats_total", "Decisions to send again on other subflows all that this one held.", subflowLabels), counter,
		always(func(g *telemetry.Scheduled) uint64 { return g.Repeated })},
}

var infoDesc = describe("mpcc_subflow_info", "Addresses of a subflow, and the ids by which MPTCP knows them; always 1.", infoLabels)

func newOverflow() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mpcc_subflow_overflow_total",
		Help: "Subflows left out of scrapes for the limit on series, added up over the scrapes.",
	})
}

// What could not be recorded.
var lostMetrics = []metric[telemetry.Lost]{
	{describe("mpcc_lost_subflows_total", "Subflows that are counted nowhere else: the map of live ones, or their namespace's share of it, was full.", nil), counter,
		always(func(l *telemetry.Lost) uint64 { return l.Subflows })},
	{describe("mpcc_lost_aggregates_total", "Refreshes of subflows that are missing in the aggregates: their map, or their namespace's share of it, was full.", nil), counter,
		always(func(l *telemetry.Lost) uint64 { return l.Totals })},
	{describe("mpcc_lost_sched_connections_total", "Connections under packet schedulers that are counted nowhere else: the map of live ones, or their namespace's share of it, was full.", nil), counter,
		always(func(l *telemetry.Lost) uint64 { return l.Connections })},
	{describe("mpcc_lost_sched_aggregates_total", "Connections that are missing in the schedulers' aggregates: their map was full.", nil), counter,
		always(func(l *telemetry.Lost) uint64 { return l.SchedTotals })},
}

// What the machine measures: the energy of all its parts, not of its network interfaces alone.
var (
	raplDesc = describeEnergy("mpcc_host_energy_joules_total",
		"Energy of a RAPL zone since the exporter started. Zones contain each other: never add them.", zoneLabels, "rapl")
	batteryMetrics = []metric[energy.Battery]{
		{describeEnergy("mpcc_host_battery_discharge_watts", "Power a battery gives; absent while it gives none.", batteryLabels, "battery"), gauge,
			func(b *energy.Battery) (float64, bool) { return optional(b.Discharge) }},
		{describeEnergy("mpcc_host_battery_energy_joules", "Energy left in a battery.", batteryLabels, "battery"), gauge,
			func(b *energy.Battery) (float64, bool) { return optional(b.Energy) }},
	}
)

var successDesc = describe("mpcc_collector_success",
	"Whether a collector could read what there is to read; 1 also where there is nothing.", []string{"collector"})

func optional[V uint32 | uint64 | float64](v *V) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v), true
}

// netnsLabel returns the name that ip netns knows a namespace by, or else its inode number.
func netnsLabel(name string, inode uint64) string {
	if name != "" {
		return name
	}
	return strconv.FormatUint(inode, 10)
}
