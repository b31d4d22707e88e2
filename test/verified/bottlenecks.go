// SPDX-License-Identifier: Apache-2.0

package verified

import (
	"fmt"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// Condition is a network in which a connection has a subflow for each RTT. The subflows share one queue,
//
//	client ══ router ── queue ── server
//
// or two, half of them each, or have one each:
//
//	client ═ queues ═ router ── server
//
// Each subflow has an interface of its own, so that without a verdict none is coupled: where a queue is shared no verdict is
// no right one.
type Condition struct {
	Rate   float64 // of each queue, Mbit/s
	RTTs   []int   // ms, without queues
	Queue  float64 // in bandwidth-delay products of the mean RTT
	Loss   float64 // percent, at random, of each subflow's packets
	Jitter int     // ± ms, of each subflow's packets by themselves; they keep their order
	Cross  string  // TCP connections under cubic, one through each queue: "long", or "bursts" with pauses of about 1 s
	Back   bool    // all delay is on the ways back, which is where subflows see a queue at the most different times

	Queues  int  // how many queues
	Changes bool // from that to the other of one queue and a queue each, after a third of the time
}

// Apart says whether each subflow has a queue of its own.
func (c Condition) Apart() bool { return c.Queues == len(c.RTTs) }

// Shared says whether one queue is to be found.
func (c Condition) Shared() bool { return (c.Queues == 1) != c.Changes }

func (c Condition) String() string {
	var rtts []string
	for _, rtt := range c.RTTs {
		rtts = append(rtts, fmt.Sprint(rtt))
	}
	s := fmt.Sprintf("%g Mbit/s, %s ms, %g BDP", c.Rate, strings.Join(rtts, "/"), c.Queue)
	if c.Loss > 0 {
		s += fmt.Sprintf(", %g %% lost", c.Loss)
	}
	if c.Jitter > 0 {
		s += fmt.Sprintf(", ± %d ms", c.Jitter)
	}
	if c.Cross != "" {
		s += ", cross: " + c.Cross
	}
	if c.Back {
		s += ", queue near"
	}
	names := map[bool]string{true: "shared", false: "apart"}
	switch {
	case c.Changes:
		return s + ", " + names[!c.Shared()] + " changing to " + names[c.Shared()]
	case c.Queues == 1 || c.Apart():
		return s + ", " + names[c.Shared()]
	}
	return s + fmt.Sprintf(", %d queues", c.Queues)
}

// Name is the condition without spaces: a row of Verdicts or Prices.
func (c Condition) Name() string { return strings.ReplaceAll(c.String(), " ", "") }

// Conditions are the rows of Verdicts.
var Conditions = []Condition{
	{Rate: 10, RTTs: []int{20, 20}, Queue: 1, Queues: 1},
	{Rate: 10, RTTs: []int{20, 20}, Queue: 1, Queues: 2},
	{Rate: 10, RTTs: []int{40, 60}, Queue: 5, Queues: 1},
	{Rate: 10, RTTs: []int{40, 60}, Queue: 5, Queues: 2},
	{Rate: 10, RTTs: []int{10, 100}, Queue: 1, Queues: 1},
	{Rate: 10, RTTs: []int{10, 100}, Queue: 1, Queues: 2},
	{Rate: 10, RTTs: []int{20, 20}, Queue: 0.2, Queues: 1},
	{Rate: 10, RTTs: []int{20, 20}, Queue: 0.2, Queues: 2},
	{Rate: 10, RTTs: []int{40, 60}, Queue: 1, Queues: 1, Loss: 0.5},
	{Rate: 10, RTTs: []int{40, 60}, Queue: 1, Queues: 2, Loss: 0.5},
	{Rate: 6, RTTs: []int{20, 30}, Queue: 1, Queues: 1, Loss: 2},
	{Rate: 6, RTTs: []int{20, 30}, Queue: 1, Queues: 2, Loss: 2},
	{Rate: 10, RTTs: []int{60, 60}, Queue: 1, Queues: 1, Jitter: 30},
	{Rate: 10, RTTs: []int{60, 60}, Queue: 1, Queues: 2, Jitter: 30},
	{Rate: 10, RTTs: []int{50, 100}, Queue: 1, Queues: 1, Jitter: 5},
	{Rate: 10, RTTs: []int{50, 100}, Queue: 1, Queues: 2, Jitter: 5},
	{Rate: 10, RTTs: []int{20, 60}, Queue: 1, Queues: 1, Cross: "long"},
	{Rate: 10, RTTs: []int{20, 60}, Queue: 1, Queues: 2, Cross: "long"},
	{Rate: 10, RTTs: []int{20, 60}, Queue: 1, Queues: 1, Cross: "bursts"},
	{Rate: 10, RTTs: []int{20, 60}, Queue: 1, Queues: 2, Cross: "bursts"},
	{Rate: 10, RTTs: []int{5, 300}, Queue: 0.5, Queues: 1},
	{Rate: 10, RTTs: []int{5, 300}, Queue: 0.5, Queues: 2},
	{Rate: 5, RTTs: []int{300, 300}, Queue: 1, Queues: 1},
	{Rate: 5, RTTs: []int{300, 300}, Queue: 1, Queues: 2},
	{Rate: 10, RTTs: []int{10, 250}, Queue: 0.5, Queues: 1, Back: true},
	{Rate: 10, RTTs: []int{20, 40}, Queue: 1, Queues: 2, Changes: true},
	{Rate: 10, RTTs: []int{20, 40}, Queue: 1, Queues: 1, Changes: true},
	{Rate: 10, RTTs: []int{20, 30, 40, 50}, Queue: 1, Queues: 2},
	{Rate: 10, RTTs: []int{20, 30, 40, 50}, Queue: 1, Queues: 1},
	{Rate: 8, RTTs: []int{20, 30, 40, 50}, Queue: 1, Queues: 4},
	{Rate: 10, RTTs: []int{20, 40, 60}, Queue: 1, Queues: 1},
	{Rate: 50, RTTs: []int{20, 80}, Queue: 1, Queues: 1},
	{Rate: 40, RTTs: []int{20, 80}, Queue: 1, Queues: 2},
	{Rate: 100, RTTs: []int{20, 40}, Queue: 1, Queues: 1},
	{Rate: 50, RTTs: []int{5, 5}, Queue: 2, Queues: 1},
	{Rate: 50, RTTs: []int{5, 5}, Queue: 2, Queues: 2},
}

// PriceConditions are the rows of Prices: paths that share nothing, without and with random losses, and a queue that a TCP
// connection uses too.
var PriceConditions = []Condition{
	{Rate: 6, RTTs: []int{20, 40}, Queue: 1, Queues: 2},
	{Rate: 6, RTTs: []int{40, 60}, Queue: 1, Queues: 2, Loss: 0.5},
	{Rate: 10, RTTs: []int{40, 40}, Queue: 1, Queues: 1, Cross: "long"},
}

// FindCondition returns the condition of such a name among conditions.
func FindCondition(conditions []Condition, name string) (Condition, error) {
	for _, c := range conditions {
		if c.Name() == name {
			return c, nil
		}
	}
	return Condition{}, fmt.Errorf("no condition is called %s", name)
}

// The figures of a record of Verdicts: how many looks of a hundred were right, around a time after the start or the change,
// and from 10 s on; the seconds until each subflow had been right once, if that was so; and Mbit/s. Those with Paused before
// them are of a run with pauses of the CPU.
const (
	RightFrom10s = "right from 10 s on"
	LastRight    = "last subflow right"
	Carried      = "Mbit/s"
	Paused       = "paused: "
)

// RightAt names the figure of the looks around a second.
func RightAt(second int) string { return fmt.Sprintf("right at %d s", second) }

// LooksAt are the seconds of RightAt.
var LooksAt = []int{2, 5, 10, 20}

// VerdictControl is the control of Verdicts: its coupling is the number of subflows that it holds for behind one bottleneck.
const VerdictControl = "dwc"

// Always marks, in a column of Prices, a control with couple=always.
const Always = "+always"

// PriceColumns are the kernel's cubic, with which all others are compared, every control, and some with couple=always.
func PriceColumns() []string {
	names := []string{"cubic"}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			names = append(names, e.Name)
		}
	}
	return append(names, "dwc"+Always, "lia"+Always, "olia"+Always)
}

func verdictCells() (cells []Cell, err error) {
	digest, err := objectDigest("cc/" + VerdictControl)
	for _, c := range Conditions {
		cells = append(cells, Cell{Row: c.Name(), Digest: digest})
	}
	return cells, err
}

func priceCells() (cells []Cell, err error) {
	for _, c := range PriceConditions {
		for _, column := range PriceColumns() {
			digest := "the kernel's own"
			if name := strings.TrimSuffix(column, Always); name != "cubic" {
				if digest, err = objectDigest("cc/" + name); err != nil {
					return nil, err
				}
			}
			cells = append(cells, Cell{Row: c.Name(), Column: column, Digest: digest})
		}
	}
	return cells, nil
}
