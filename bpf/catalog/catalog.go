// SPDX-License-Identifier: Apache-2.0

// Package catalog is the one table of what mpcc brings: each algorithm with its source, its rule and what it
// is good for. It is data alone; the algorithm's BPF object (package obj) has the code and the tunables.
package catalog

import (
	"fmt"
	"strings"

	"github.com/mpcc/mpcc/internal/nearest"
)

// Kind tells which part of the kernel an algorithm plugs into.
type Kind string

// The kinds.
const (
	CC    Kind = "cc"    // tcp_congestion_ops
	Sched Kind = "sched" // mptcp_sched_ops
)

// Noun returns what people call an algorithm of the kind.
func (k Kind) Noun() string {
	if k == Sched {
		return "packet scheduler"
	}
	return "congestion control"
}

// Entry is one algorithm.
type Entry struct {
	Kind   Kind
	Name   string // what the kernel calls it too, below 16 characters
	Title  string
	Source string // paper and equation
	Rule   string // in the source's notation
	// Coupling names the quantity by which a congestion control couples subflows; mpcc status shows its value.
	Coupling string
	// State is what it keeps per subflow beside the socket's own, in the source's words.
	State string
	// Good and Bad say what it is for, and where it is a bad idea.
	Good, Bad string
	// Priced algorithms take the energy profiles of the interfaces into account.
	Priced bool
	// Differs says what a packet scheduler does otherwise than its source beside the rule by which it chooses:
	// what it sends again, and when it uses backups; "" where the source is silent.
	Differs string
	// Reconstruction says which parts of the rule mpcc had to fill in, because the source leaves them open; "" if
	// none.
	Reconstruction string
}

// Entries lists every algorithm.
var Entries = []Entry{
	{
		Kind: CC, Name: "balia",
		Title:    "Balanced Linked Adaptation",
		Source:   "draft-walid-mptcp-congestion-control-04; Peng et al., IEEE/ACM ToN 2016",
		Rule:     "w_r += x_r / (rtt_r (sum x_k)^2) (1 + y_r)/2 (4 + y_r)/5, y_r = max x_k / x_r; loss: w_r -= w_r/2 min(y_r, 1.5)",
		Coupling: "y",
		State:    "nothing",
		Good:     "sharing a bottleneck fairly while reacting fast to change",
		Bad:      "paths that share nothing: slower to fill them than uncoupled control",
	},
	{
		Kind: CC, Name: "cdd",
		Title:          "Delay-difference window control over LIA",
		Source:         "Tao, Yan, CDD-MPTCP, sections 2.1 and 2.2, Algorithm 1",
		Rule:           "LIA; every 0.5 s on the slowest path, while theta > theta_max: w = (w/theta + w)/2",
		Coupling:       "theta",
		Reconstruction: "RTTs for one-way delays, beta, theta_0, and the stop without a queue",
		State:          "theta, time of the next cut",
		Good:           "small receive buffers over paths whose queues differ",
		Bad:            "large receive buffers: there it is LIA, or with rule=algorithm gives up the slow path for nothing",
	},
	{
		Kind: CC, Name: "coupled",
		Title:    "Fully coupled control",
		Source:   "Wischik et al., NSDI 2011; Zhao, Liu, Wang, On Energy-Efficient Congestion Control for Multipath TCP, section IV",
		Rule:     "w_r += w_r/W^2, loss w_r/2 (variant b); w_r += 1/W, loss W/2 (variant a)",
		Coupling: "w/W",
		State:    "nothing",
		Good:     "keeping all traffic off lossier paths",
		Bad:      "paths of unequal RTT, and links that lose at random: it leaves them almost unused",
	},
	{
		Kind: CC, Name: "dts",
		Title:    "Delay-based Traffic Shifting",
		Source:   "Zhao, Liu, Wang, On Energy-Efficient Congestion Control for Multipath TCP, section V, Algorithm 1",
		Rule:     "w_r += eps_r (w_r/RTT_r^2) / (sum w_k/RTT_k)^2, eps_r = 2 / (1 + exp(-10 (baseRTT_r/RTT_r - 1/2))), by default over the connection's largest",
		Coupling: "epsilon",
		State:    "base RTT",
		Good:     "moving traffic off paths whose queues grow",
		Bad:      "as published (--set paper) bottlenecks shared with TCP, of which it takes up to 1.4 times one TCP's part, and behind a long queue a fraction of that; paths that route changes make longer, since base RTT stays, and a starved path may stay at one packet, whose delayed ACKs look like a queue",
	},
	{
		Kind: CC, Name: "dtsx",
		Title:          "Extended DTS: Delay-based Traffic Shifting with prices",
		Source:         "Zhao, Liu, Wang, On Energy-Efficient Congestion Control for Multipath TCP, section V, equations (6)-(9)",
		Rule:           "DTS's increase d_r; w_r += d_r - d_r sigma_r per segment, sigma_r = p1 (1 - min e_k/e_r) + p2 [RTT_r - baseRTT_r > q_target]; as published (--set paper) the price is w_r (k1 e_r/min e_k + k2 [queue])",
		Coupling:       "kappa u + d sigma/w",
		Priced:         true,
		Reconstruction: "the prices: energy per bit for the switch hops, queueing delay for the queues; p1, p2, k1, k2 and q_target are ours",
		State:          "base RTT, energy price",
		Good:           "sparing dear interfaces and queues, to a degree that the prices set",
		Bad:            "full use of every path: a price is a rate given up; as published (--set paper) a path once dear may stay at the floor, as under DTS",
	},
	{
		Kind: CC, Name: "dwc",
		Title:          "Dynamic Window Coupling",
		Source:         "Hassayoun, Iyengar, Ros, ICNP 2011; Zhao, Liu, Wang, On Energy-Efficient Congestion Control for Multipath TCP, section IV",
		Rule:           "w_r += min(rtt_r / (|G| min rtt_k sum w_k), 1/w_r) over the subflows G that share a bottleneck",
		Coupling:       "|G|",
		Reconstruction: "the grouping, by RTTs alone, and the cap 1/w",
		State:          "nothing",
		Good:           "a fair part of a shared bottleneck (docs/couple.md)",
		Bad:            "bottlenecks without a queue (random losses, fq_codel): their RTTs tell nothing",
	},
	{
		Kind: CC, Name: "ecmtcp",
		Title:          "Energy-aware coupled control",
		Source:         "Le et al., IEEE Communications Letters 16(2), 2012; Zhao, Liu, Wang, On Energy-Efficient Congestion Control for Multipath TCP, section IV",
		Rule:           "w_r += min(alpha/W price_h/price_r, 1/w_r), price = loss rate times energy per bit, h the fastest path",
		Coupling:       "price_h/price_r",
		Priced:         true,
		Reconstruction: "the direction of the ratio, its bounds, the loss estimate and the energy term",
		State:          "bytes between losses, energy price",
		Good:           "sparing dear interfaces, leaving lossy paths",
		Bad:            "links that lose at random; short connections, which have no loss rate yet",
	},
	{
		Kind: CC, Name: "emreno",
		Title:          "Energy-weighted LIA, inspired by emReno",
		Source:         "Pham, quoted in ES-MPTCP, Electronics 2022, 11(3), 490",
		Rule:           "w_r += min(alpha/W min e_k/e_r, 1/w_r), e the energy per bit",
		Coupling:       "min e/e",
		Priced:         true,
		Reconstruction: "all but one sentence: the increase is inversely proportional to the path's energy",
		State:          "energy price",
		Good:           "trying what an energy weight on LIA does",
		Bad:            "conclusions about emReno: only one sentence on it is published",
	},
	{
		Kind: CC, Name: "ewtcp",
		Title:    "Equally-Weighted TCP",
		Source:   "Honda et al., PFLDNeT 2009; Zhao, Liu, Wang, On Energy-Efficient Congestion Control for Multipath TCP, section IV",
		Rule:     "w_r += a/w_r, a = 1/n^2, as published (--set paper) 1/sqrt(n)",
		Coupling: "a",
		State:    "nothing",
		Good:     "predictable weights, whatever the paths",
		Bad:      "a shared bottleneck with weight=sqrt: more than one TCP's share",
	},
	{
		Kind: CC, Name: "lia",
		Title:    "Linked Increases Algorithm",
		Source:   "RFC 6356, section 3, equations (1) and (2)",
		Rule:     "w_r += min(alpha/W, 1/w_r), alpha = W max(w_k/rtt_k^2) / (sum w_k/rtt_k)^2",
		Coupling: "alpha",
		State:    "nothing",
		Good:     "the standard: never worse than TCP on the best path, fair at a shared bottleneck",
		Bad:      "paths that share nothing: slow to fill them; many users at once, where it takes from single-path users without gain",
	},
	{
		Kind: CC, Name: "mpcubic",
		Title:          "mpCUBIC",
		Source:         "Kato et al., WorldCIST 2020, equations (9)-(13); RFC 9438",
		Rule:           "W(t) = C (t/n - K)^3 + w_loss, K = cbrt(D beta w_loss/C), loss: w *= 1 - D beta",
		Coupling:       "W(t)",
		Reconstruction: "which window Wmax is (mode), and more than two subflows",
		State:          "the curve, as CUBIC alone does",
		Good:           "fast, long paths where Reno's increase is too slow",
		Bad:            "mixed with other controls on one connection: it counts subflows, not their rates",
	},
	{
		Kind: CC, Name: "olia",
		Title:    "Opportunistic Linked Increases Algorithm",
		Source:   "draft-khalili-mptcp-congestion-control-05, equations (2)-(4); Khalili et al., CoNEXT 2012",
		Rule:     "w_r += (w_r/rtt_r^2) / (sum w_k/rtt_k)^2 + alpha_r/w_r",
		Coupling: "alpha",
		State:    "bytes since and between the last two losses",
		Good:     "many users: moves away from congested paths, fair to single-path users",
		Bad:      "very unequal paths that change fast: it probes bad paths at one packet only",
	},
	{
		Kind: CC, Name: "wvegas",
		Title:    "Weighted Vegas",
		Source:   "Cao, Xu, Fu, ICNP 2012; draft-xu-mptcp-congestion-control-05",
		Rule:     "once per RTT w +- 1 towards alpha_r queued packets, alpha_r = max(2, 10 weight_r), weight_r = x_r / sum x_k",
		Coupling: "weight",
		State:    "base RTT, samples, alpha, smallest queue",
		Good:     "short queues where everybody uses delay",
		Bad:      "as published (--set paper) bottlenecks shared with loss-based TCP, where it starves",
	},
	{
		Kind: Sched, Name: "blest",
		Title:   "Blocking estimation",
		Source:  "Ferlin et al., IFIP Networking 2016; mptcp_blest of the MPTCP kernel v0.95",
		Rule:    "lowest RTT first, but not on a slower subflow if lambda times what the fastest sends meanwhile exceeds the window that is left",
		Differs: "the original also halves the windows of slower subflows that hold up the connection's window, and sends what they hold again at once; here lambda grows when the connection's timer sends again; the original takes a backup for the fastest subflow if its RTT is the lowest",
		State:   "lambda, smallest and largest RTT",
		Good:    "small receive buffers over unequal paths: the slow one does not block the fast one",
		Bad:     "large buffers: then it is minrtt with more to compute",
	},
	{
		Kind: Sched, Name: "cdd",
		Title:          "Least congestion coefficient first",
		Source:         "Tao, Yan, CDD-MPTCP, section 2.3",
		Rule:           "smallest gamma_r = unacknowledged packets / w_r; of several, the smallest delay",
		Reconstruction: "RTTs for one-way delays",
		State:          "nothing",
		Good:           "filling all windows evenly; meant to go with cc/cdd",
		Bad:            "short transfers over unequal paths: RTT only breaks ties",
	},
	{
		Kind: Sched, Name: "ecf",
		Title:   "Earliest completion first",
		Source:  "Lim et al., CoNEXT 2017; mptcp_ecf of the authors",
		Rule:    "lowest RTT first, but wait for the fastest if that completes sooner what is queued",
		Differs: "the original also halves the windows of slower subflows that hold up the connection's window, and sends what they hold again at once",
		State:   "whether it waits",
		Good:    "transfers that end, over paths of unequal RTT",
		Bad:     "paths whose RTT varies much: the estimate of completion is off",
	},
	{
		Kind: Sched, Name: "earliest",
		Title:  "Earliest arrival first",
		Source: "no paper; ECF's wait, and opportunistic retransmission (Raiciu et al., NSDI 2012)",
		Rule:   "earliest arrival with room in the window, unless faster ones are done with all that may be sent before; all that one holds up the others with goes out again on them",
		State:  "least RTTs, up to where data went out again",
		Good:   "paths of which one slows down, dies, loses, or is thin: it does not hold up the others",
		Bad:    "equal paths: then it is minrtt with more to compute",
	},
	{
		Kind: Sched, Name: "emtcp",
		Title:          "Low energy first, after eMTCP",
		Source:         "eMTCP, quoted in ES-MPTCP, Electronics 2022, 11(3), 490",
		Rule:           "smallest b_r + theta_r/x_r with room in the window",
		Priced:         true,
		Reconstruction: "all but the order by energy",
		State:          "nothing",
		Good:           "sparing dear interfaces while a cheap one keeps up",
		Bad:            "bulk transfers: once the cheap window is full all interfaces are in use",
	},
	{
		Kind: Sched, Name: "esmptcp",
		Title:          "Energy-saving choice of subflows (ES-MPTCP)",
		Source:         "ES-MPTCP, Electronics 2022, 11(3), 490, equations (5)-(7), Algorithm 1",
		Rule:           "the k cheapest by b_r + theta_r/X_r, k maximising sum X_i - lambda T sum(b_i X_i + theta_i); inside, lowest RTT first",
		Priced:         true,
		Reconstruction: "lambda, measured rates, hysteresis, the size of transfers that are not known, trials of subflows outside the set",
		State:          "the set, losses",
		Good:           "trading rate for energy by the size of a transfer",
		Bad:            "interfaces without profiles: they cost nothing, and all are used",
	},
	{
		Kind: Sched, Name: "minrtt",
		Title:   "Lowest RTT first",
		Source:  "mptcp_sched of the MPTCP kernel v0.9x",
		Rule:    "smallest smoothed RTT with room in the window",
		Differs: "the original also halves the windows of slower subflows that hold up the connection's window, and sends what they hold again at once",
		State:   "nothing",
		Good:    "the baseline of the literature",
		Bad:     "small receive buffers over unequal paths: the slow one blocks the fast one",
	},
	{
		Kind: Sched, Name: "prefer",
		Title:  "By the user's preference",
		Source: "no paper: what operators ask for (docs/path.md)",
		Rule:   "best rank first, the next one when it is full or only when it fails; shares by weight within a rank; caps, quotas, exclusion, as mpcc path set has it",
		State:  "rules of paths, bytes handed over, rounds, least RTT",
		Good:   "paths that differ in price: DSL first and LTE when it is full, a quota, a path to spare",
		Bad:    "paths without rules: then it is minrtt with more to compute",
	},
	{
		Kind: Sched, Name: "redundant",
		Title:          "Every byte on several subflows",
		Source:         "mptcp_redundant of the MPTCP kernel v0.9x",
		Rule:           "new data on the lowest RTT; copies of it on the others as their windows take them",
		Reconstruction: "copies are made by sending again: the stock kernel has one cursor for all subflows",
		Differs:        "the original sends what a subflow held at its own timeout again on one subflow, which may be a backup; here the oldest data goes out again at the connection's timeout, on all subflows with room if one that held data has died, and on backups only once every other subflow has died or is stalled",
		State:          "the leader, how far copies go",
		Good:           "delay and loss of thin flows",
		Bad:            "rate: all paths together carry no more than the best one",
	},
	{
		Kind: Sched, Name: "roundrobin",
		Title:   "The subflows in turn",
		Source:  "mptcp_rr of the MPTCP kernel v0.9x",
		Rule:    "num_segments on each subflow with room in its window, in turn",
		Differs: "the original gives backups their turn like any other subflow",
		State:   "what each got in this round",
		Good:    "comparisons; equal paths",
		Bad:     "unequal paths: each fragment waits for the slowest",
	},
}

// ID returns the name that is unique among all kinds, such as cc/lia.
func (e Entry) ID() string { return string(e.Kind) + "/" + e.Name }

// String returns the name that a user has to type: NAME where that is unique, else KIND/NAME.
func (e Entry) String() string { return Short(e.Kind, e.Name) }

// Short returns the shortest unambiguous name: NAME, or KIND/NAME where several kinds have an algorithm of that
// name.
func Short(k Kind, name string) string {
	for _, e := range Entries {
		if e.Name == name && e.Kind != k {
			return string(k) + "/" + name
		}
	}
	return name
}

// Find returns the algorithm of a name, bare (lia) or with its kind (cc/lia). It is an error if there is none,
// which tells the most similar name, or if there is one of each kind.
func Find(name string) (Entry, error) {
	var found []Entry
	for _, e := range Entries {
		if name == e.Name || name == e.ID() {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		var names []string
		for _, e := range Entries {
			names = append(names, e.String())
			if strings.Contains(name, "/") {
				names[len(names)-1] = e.ID()
			}
		}
		if near := nearest.Name(name, names); near != "" {
			return Entry{}, fmt.Errorf("no algorithm is called %q; did you mean %s?", name, near)
		}
		return Entry{}, fmt.Errorf("no algorithm is called %q; mpcc list shows all", name)
	}
	var ids []string
	for _, e := range found {
		ids = append(ids, e.ID())
	}
	return Entry{}, fmt.Errorf("%q is more than one algorithm; say %s", name, strings.Join(ids, " or "))
}
