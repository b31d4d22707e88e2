// SPDX-License-Identifier: Apache-2.0

// Command gen prints docs/algorithms.md from the catalog, the tunables in the objects and the figures of
// the last benchmark that was kept (docs/bench.json, of make bench).
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
)

// What holds for every congestion control unless a tunable says otherwise.
//
//go:embed defaults.md
var defaults string

const benchFile = "docs/bench.json"

// The benchmark's conditions (test/bench).
const (
	queues   = "queues: frames of 1500 bytes, congestion avoidance"
	bareVeth = "bare veth: packets of up to 64 kB, slow start"
)

type bench struct {
	Kernel string `json:"kernel"`
	Cost   []struct {
		Condition string `json:"condition"`
		Subflows  int    `json:"subflows"`
		Control   string `json:"control"`
		NS        spread `json:"ns_per_ack"`
		Ratio     spread `json:"of_bpf_cubic"`
	} `json:"cost"`
}

type spread struct {
	Median float64 `json:"median"`
}

func main() {
	log.SetFlags(0)
	raw, err := os.ReadFile(benchFile)
	if err != nil {
		log.Fatal(err)
	}
	var b bench
	if err := json.Unmarshal(raw, &b); err != nil {
		log.Fatalf("%s: %v", benchFile, err)
	}
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
timeout, with room in the window; backups only if no other subflow is alive. No scheduler waits unless an ACK is
sure to come, at which it decides again. The header of each file in [bpf/sched](../bpf/sched) has the rule in full.

| name | source | sends next on | keeps per connection | good for | a bad idea for |
|---|---|---|---|---|---|
`)
	printRules(catalog.Sched)
	fmt.Print("\n## Faithful or reconstructed\n\n| name | |\n|---|---|\n")
	for _, e := range catalog.Entries {
		what := "faithful to its source, as far as the file's header does not say otherwise"
		if e.Reconstruction != "" {
			what = "reconstructed in part: " + e.Reconstruction
		}
		fmt.Printf("| `%s` | %s |\n", e, cell(what))
	}
	fmt.Print("\n## Tunables\n\n`mpcc load NAME --set tunable=value`. `--set paper` gives every tunable what the algorithm's source has, where\n" +
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
	b.printCosts()
}

func (b bench) printCosts() {
	fmt.Printf(`
## Cost of the congestion controls

Nanoseconds per ACK in all callbacks, telemetry included, and the ratio to a BPF port of CUBIC in the same run:
at 2 and 8 subflows behind queues, where frames of 1500 bytes arrive some 15,000 times a second and find cold
caches, and at 2 subflows over bare veth, as fast as the machine can. Each call includes the 40 to 130 ns that the
kernel takes to measure it; CUBIC makes two calls per ACK. Times are of one machine (Linux %s)
and vary by a quarter; make bench measures yours, with the spread.

| name | 2 subflows | ratio | 8 subflows | ratio | bare veth | ratio |
|---|---|---|---|---|---|---|
`, b.Kernel)
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			fmt.Printf("| `%s` |%s |%s |%s |\n", e, b.cost(e.Name, queues, 2), b.cost(e.Name, queues, 8), b.cost(e.Name, bareVeth, 2))
		}
	}
}

func printRules(k catalog.Kind) {
	for _, e := range catalog.Entries {
		if e.Kind == k {
			fmt.Printf("| `%s` %s | %s | %s | %s | %s | %s |\n", e, e.Title, e.Source, cell(e.Rule), e.State, e.Good, e.Bad)
		}
	}
}

func (b bench) cost(name, condition string, subflows int) string {
	for _, c := range b.Cost {
		if c.Condition == condition && c.Control == name && c.Subflows == subflows {
			return fmt.Sprintf(" %.0f ns | %.2f", c.NS.Median, c.Ratio.Median)
		}
	}
	return " – | –"
}

// cell keeps a bar from ending a table's cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
