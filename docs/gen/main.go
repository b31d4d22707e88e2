// SPDX-License-Identifier: Apache-2.0

// Command gen prints docs/algorithms.md from the catalog, the tunables in the objects and the figures of
// the last benchmarks that were kept (docs/bench.json of make bench, docs/instructions.json of make bench-instructions).
package main

import (
	_ "embed"
	"fmt"
	"log"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/benched"
)

// What holds for every congestion control unless a tunable says otherwise.
//
//go:embed defaults.md
var defaults string

// What a decision of each packet scheduler costs.
//
//go:embed schedulers.md
var schedulerCosts string

// The benchmark's controls beside the catalog's.
const (
	cubic    = "cubic" // the kernel's own
	bpfCubic = "bpf_cubic"
	bpfEmpty = "bpf_empty"
)

// bench is a benchmark of which single figures are shown.
type bench struct{ *benched.Report }

func main() {
	log.SetFlags(0)
	timed, counted := read(benched.TimesFile), read(benched.InstructionsFile)
	fmt.Print(`<!-- Written by docs/gen from bpf/catalog; do not edit. -->
# The algorithms

## Congestion controls

w is a subflow's window in packets, rtt its smoothed RTT, x = w/rtt, W the sum of the windows, n the number of
subflows that count. The table is about subflows beside siblings. The header of each file in [bpf/cc](../bpf/cc) has
the rule in full, with every deviation and its reason.

`)
	fmt.Print(defaults)
	fmt.Print(`
| name | source | per acknowledged segment, per loss | keeps per subflow | good for | a bad idea for |
|---|---|---|---|---|---|
`)
	printRules(catalog.CC)
	fmt.Print(`
## Packet schedulers

Each decides which subflow sends next, of those that may: established, neither stale nor recovering from a
timeout, with room in the window. Backups carry nothing while another subflow is there, even if it recovers from a
timeout; once it has made no progress for two timeouts of the connection's they carry what it held, and once it is
stale, new data. What a stalled subflow held goes out again at once on the others; and on any subflow all that a peer
has acknowledged to a subflow and then thrown away, as Linux does with data behind the window that it offers: the kernel
alone sends such data in pieces, one for each timeout. No scheduler waits unless an ACK is sure to come, at which it decides
again. The header of each file in [bpf/sched](../bpf/sched) has the rule in full.

**How much at a time.** A decision is for the piece of memory in which the kernel hands data over: up to 32 KB, some
20 packets, where the MPTCP kernel's schedulers chose for each packet. On thin or slow paths that is more than a window.
` + "`mpcc load NAME --small-pieces`" + ` makes it one page, 4 KB on most machines, by setting
` + "`net.core.high_order_alloc_disable`" + `, which is one for the whole machine and costs CPU at high rates, also of TCP;
it is set back when the last scheduler is unloaded. ` + "`mpcc run`" + ` does the same, so that with 32 KB results may be
others than those [published here](results.md): CDD beside a path 100 ms slower got 0.9 Mbit/s with 32 KB, 3.4 with 4.

**How much waits.** The kernel gives a connection the send buffers of its subflows together, each made for the delay of one.
When a path slows down, what it still holds keeps the stream waiting, the buffer fills, and the other paths stand still.
While one of mpcc's schedulers runs, the buffer holds three times what all subflows send in the longest of their RTTs, within
` + "`net.ipv4.tcp_wmem`" + `'s largest value for each subflow. With Debian's settings, 4 MB, a connection of two subflows
takes 8 MB at most, one of eight 32 MB: as much as all subflows together send at 150 Mbit/s in three times an RTT of 600 ms.
What is needed is reckoned every 100 ms; the buffer grows, and becomes smaller only when a subflow ends. An application that
sets SO_SNDBUF keeps what it asked for. Under the kernel's own scheduler the buffer stays as the kernel makes it: that
scheduler would hand all data in a larger buffer to the slow path.

**Which one.** ` + "`earliest`" + `, if there is no reason for another. Goodput in Mbit/s, simulated, ten repeats, all
congestion windows CUBIC's: a phone with Wi-Fi (20 Mbit/s, 16 ms) and LTE (10 Mbit/s, 60 ms) fetches 25 MB;
` + "`mpcc run slow-path --sim`" + ` repeats it, ` + "`--vm`" + ` on Linux. In the household of fibre, LTE and Wi-Fi of
` + "`mpcc run households`" + ` twenty files of 1 MB come with 18.6 under the kernel's scheduler, 20.2 under minrtt, and 22.8
under earliest. In each of the seventeen households earliest has at least 0.97 of what the kernel's has, under CUBIC and
under ` + "`lia`" + `; where a line is shared, the others there have 0.97 to 1.04 of what they have beside the kernel's.

| LTE | the kernel's | minrtt | ecf | blest | earliest |
|---|---|---|---|---|---|
| as it is, and from 4 s on the Wi-Fi has 0.5 Mbit/s | 7.8 ± 0.6 | 12.6 ± 0.3 | 13.0 ± 0.6 | 12.5 ± 0.4 | 14.9 |
| loses all from 3 s on | 21.3 ± 0.3 | 21.2 ± 0.2 | 19.4 ± 0.8 | 21.2 ± 0.2 | 21.5 |
| has 0.5 Mbit/s | 7.7 | 8.3 ± 0.2 | 9.2 ± 0.5 | 17.0 ± 0.2 | 18.7 ± 0.5 |
| loses 5 % | 10.7 ± 1.4 | 19.2 ± 0.2 | 19.2 ± 0.2 | 19.2 ± 0.3 | 19.3 ± 0.3 |
| jitters by 25 ms | 26.6 ± 0.3 | 26.6 ± 0.3 | 26.1 ± 0.3 | 26.6 ± 0.3 | 26.8 ± 0.3 |
| has 20 Mbit/s and 16 ms | 37.0 | 36.9 | 36.9 | 36.9 | 36.9 |
| as it is, ten files of 1 MB | 19.4 | 19.1 | 16.9 ± 0.2 | 19.1 | 19.7 |

Linux 6.12 in a VM, the kernel's scheduler : earliest, ten runs each:

| | ` + "`cubic`" + ` | ` + "`bbr`" + ` | ` + "`lia`" + ` | ` + "`dwc`" + ` |
|---|---|---|---|---|
| walking out of the Wi-Fi with 25 MB; the paths carry 15.5 ([all schedulers](reliability.md#a-path-that-holds-up-the-other)) | 8.0 ± 0.3 : 14.9 ± 0.2 | 5.3 ± 0.3 : 14.7 | 8.1 ± 0.3 : 14.9 ± 0.2 | 8.0 ± 0.4 : 15.0 ± 0.1 |
| the same: minrtt, blest, ecf, roundrobin | 12.0, 11.8, 14.0, 11.7 | 11.9, 11.7, 13.2, 11.4 | 12.4, 12.4, 14.0, 11.3 | 12.2, 12.6, 14.1, 11.6 |
| 20 MB by DSL with 8 Mbit/s and a satellite with 15 that loses 0.3 %; alone they carry 7.6 and, under ` + "`cubic`" + `, 1.6 ± 0.4, under ` + "`bbr`" + ` 8.4 ± 0.2 | 8.0 ± 0.8 : 9.5 ± 1.1 | 11.8 ± 0.4 : 13.2 ± 0.5 | 7.6 ± 1.0 : 9.5 ± 1.1 | 8.2 ± 0.5 : 9.5 ± 0.8 |
| DSL with 6 Mbit/s, and a satellite with 16 that loses 0.3 %, without an end | 6.8 ± 0.2 : 7.0 ± 0.2 | 7.7 ± 0.5 : 16.5 ± 0.9 | 6.5 ± 0.4 : 9.0 ± 1.2 | 6.8 ± 0.3 : 9.1 ± 1.6 |
| fibre, LTE and Wi-Fi, nothing wrong | 26.4 ± 0.9 : 28.5 ± 0.5 | 31.9 ± 0.1 : 32.1 ± 0.1 | 30.3 ± 0.4 : 32.0 ± 0.2 | 29.9 ± 0.5 : 31.6 ± 0.8 |

Eight lines with 54 Mbit/s in all, of 8 to 90 ms, carry as much under earliest as under the kernel's scheduler: 50.5 with
` + "`cubic`" + ` and ` + "`lia`" + `, 49.4 and 49.7 with ` + "`bbr`" + `; under minrtt 22.

Beside a path with another rate each second, of 0.2 to 50 Mbit/s, and another RTT, of 5 to 500 ms, a steady path of 10 Mbit/s
had the connection carry 12.3 Mbit/s under earliest for an hour, with no pause longer than 3.2 s. In runs of three minutes
each, beside a path of which the delay changed in one direction only, the connection carried 6.6 Mbit/s under the kernel's
scheduler, 8.3 under minrtt and 10.6 under earliest.

No scheduler mends a path whose rate the congestion control does not find, as CUBIC does not find that of a satellite that
loses packets: what both paths carry alone is all that a scheduler can have of them.

**A path that is cut for a moment.** Until 3 MB more have come after a path of 10 Mbit/s was cut, so much goes over its
backup; Linux 6.12, the mean of six runs:

| cut for | the kernel's | mpcc's, all but earliest | earliest |
|---|---|---|---|
| 0.3 s | 51 ± 26 kB | 17 to 65 kB | 1 kB |
| 0.5 s | 72 ± 7 kB | 55 to 92 kB | 0 |
| 1 s | 1471 ± 128 kB | 1079 to 1209 kB | 89 ± 33 kB |
| 10 s | 3.2 MB | 3.2 MB | 3.2 MB |

The longest pause is 0.3 s with the kernel's, 0.3 to 0.6 with mpcc's, and 0.7 to 1.1 with earliest, which waits for the path
as long as the path is the better one. Where the faster of two paths dies for good, 4 MB are there 4.5 s later with the
kernel's scheduler, 3.3 to 3.9 with mpcc's, after a pause of 0.8 s and of 0.3 to 1.1.

**A path that ` + "`ecf`" + ` leaves unused.** ECF, as published, hands a slow path nothing while the fastest path sends all
that the send buffer holds within an RTT of the slow path, or within 5/4 of that RTT once ECF waits. How much the slow path
could carry does not count. So a path with a long RTT stays unused, its window at the ten packets of the beginning, where the
application sets a small SO_SNDBUF or has little to send. Simulated, DSL with 8 Mbit/s and a satellite with 15 (RTT 564 ms,
no loss): with SO_SNDBUF at 300 KB the connection has the DSL's 7.5 Mbit/s, without SO_SNDBUF 21. Leave SO_SNDBUF alone, or
take ` + "`earliest`" + `.

**Kernels with a scheduler type of their own.** MPTCP's development tree has ` + "`mptcp_sched_ops`" + `, and mpcc takes that
type where it is there. The type comes without what the module adds elsewhere. The send buffer stays as the kernel makes it.
No other subflow sends again what one holds before a timeout of the connection, and then one fragment goes out at a time, the
oldest: also of what a stalled subflow held and of what the peer threw away. So ` + "`earliest`" + ` only waits for faster
subflows, ` + "`redundant`" + ` makes copies at timeouts only, and a wait of ` + "`prefer`" + ` for a cap ends after 200 ms
at the earliest. [What was run on such a kernel](../bpf/kmod/README.md#which-kernels): Linux 7.3.4 with the type of 2026 put
in.

**Who gets it.** A socket keeps the scheduler that was its namespace's default when it was made, and what a listener
accepts has the listener's. So after ` + "`mpcc load NAME --default`" + ` connections to come have it, but for those
to servers that run already: restart these. ` + "`mpcc status`" + ` lists them.

| name | source | sends next on | keeps per connection | good for | a bad idea for |
|---|---|---|---|---|---|
`)
	printRules(catalog.Sched)
	fmt.Print(`
## What is the source's and what is not

The rules are the sources' own, but for what this table says and for the deviations in the header of each file. What
is around the rules is the same for all of mpcc's, and not always the sources': a congestion control counts backups
only where no other subflow counts, while the MPTCP kernel's modules count them always. Which of its subflows a
scheduler may choose from, and when that is a backup, follows the stock kernel. At a timeout of the connection the oldest
data goes out again, as the stock kernel has it; all that a stalled subflow held, or that the peer threw away, goes out again
at once, as only mpcc has it.

| name | |
|---|---|
`)
	for _, e := range catalog.Entries {
		what := "the source's rule"
		if strings.HasPrefix(e.Source, "no paper") {
			what = "mpcc's own rule"
		}
		if e.Reconstruction != "" {
			what = "reconstructed in part: " + e.Reconstruction
		}
		if e.Differs != "" {
			what += "; " + e.Differs
		}
		fmt.Printf("| `%s` | %s |\n", e, cell(what))
	}
	fmt.Print("\n## Tunables\n\n" +
		"`mpcc load NAME --set tunable=value`. `--set paper` gives every tunable what the algorithm's source has, where\n" +
		"the default differs; `--set tunable=value` beside it wins.\n\n" +
		"| name | tunable | default | paper | values | meaning |\n|---|---|---|---|---|---|\n")
	for _, e := range catalog.Entries {
		tunables, err := loader.Tunables(e)
		if err != nil {
			log.Fatalf("%s: %v", e.ID(), err)
		}
		for _, t := range tunables {
			fmt.Printf("| `%s` | `%s` | %s | %s | %s | %s |\n", e, t.Name, t.Default, t.Paper, cell(t.Range()), t.Meaning)
		}
	}
	printCosts(timed, counted)
	fmt.Print(schedulerCosts)
}

func read(path string) bench {
	r, err := benched.Read(path)
	if err != nil {
		log.Fatal(err)
	}
	return bench{r}
}

func printCosts(timed, counted bench) {
	fmt.Printf(`
## Cost of the congestion controls

Instructions per ACK in all callbacks, telemetry included, behind queues of 400 Mbit/s together, one for each subflow, where
some 15,000 ACKs a second arrive, in connections that have lived for some seconds. What the kernel takes to measure each
call, which the empty callbacks of %s show, is left out. Ratios are to a BPF port of CUBIC, over as many subflows. Instructions are
counted in a VM (`+"`make bench-instructions`"+`; Linux %s) and say nothing of
caches. Nanoseconds do, measuring included, as does CPU: how long all CPUs together are busy for a GB, sent and received.
These two are of one machine (Linux %s) and vary by a third; [performance.md](performance.md) has more of
them, and `+"`make bench`"+` measures yours.

| name | 1 subflow | ratio | 2 subflows | ratio | 4 subflows | ratio | 8 subflows | ratio | 2 subflows, time | CPU |
|---|---|---|---|---|---|---|---|---|---|---|
`, bpfEmpty, counted.Kernel, timed.Kernel)
	names := []string{cubic, bpfEmpty, bpfCubic}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			names = append(names, e.Name)
		}
	}
	for _, name := range names {
		fmt.Printf("| `%s` |%s |%s |%s |%s |%s |%s |\n", name, counted.net(benched.Queued, name, 1),
			counted.net(benched.Queued, name, 2), counted.net(benched.Queued, name, 4), counted.net(benched.Queued, name, 8),
			timed.gross(name, 2), timed.cpu(name))
	}
	fmt.Print(`
The same where all subflows share one queue of 400 Mbit/s and 100 packets, which is 3 ms long: coupled subflows look at each
other, and answer each other's losses. A look costs the more the more subflows there are. wVegas, which measures the queue
anew in each RTT, looks as often; the others after 6 ms for each subflow of the group.

| name | 2 subflows | ratio | 4 subflows | ratio | 8 subflows | ratio |
|---|---|---|---|---|---|---|
`)
	for _, name := range names {
		fmt.Printf("| `%s` |%s |%s |%s |\n", name, counted.net(benched.OneQueue, name, 2),
			counted.net(benched.OneQueue, name, 4), counted.net(benched.OneQueue, name, 8))
	}
}

func printRules(k catalog.Kind) {
	for _, e := range catalog.Entries {
		if e.Kind == k {
			fmt.Printf("| `%s` %s | %s | %s | %s | %s | %s |\n", e, e.Title, e.Source, cell(e.Rule), e.State, e.Good, e.Bad)
		}
	}
}

func (b bench) net(condition, name string, subflows int) string {
	c, ok := b.CostOf(condition, name, subflows)
	switch {
	case !ok:
		return " – | –"
	case c.NetOfYardstick == 0:
		return fmt.Sprintf(" %.0f | –", c.Net.Median)
	}
	return fmt.Sprintf(" %.0f | %.1f", c.Net.Median, c.NetOfYardstick)
}

func (b bench) gross(name string, subflows int) string {
	c, ok := b.CostOf(benched.Queued, name, subflows)
	if !ok {
		return " –"
	}
	return fmt.Sprintf(" %.0f ns", c.PerACK.Median)
}

func (b bench) cpu(name string) string {
	g, ok := b.GoodputOf(name)
	if !ok {
		return " –"
	}
	return fmt.Sprintf(" %.2f s/GB", g.CPU.Median)
}

// cell keeps a bar from ending a table's cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
