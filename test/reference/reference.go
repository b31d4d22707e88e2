// SPDX-License-Identifier: Apache-2.0

// Package reference computes what each congestion control decides, from its published formula and apart
// from the BPF code, for the vectors and tests to compare with.
//
// It computes in float64. A formula here is some thirty operations on positive numbers, each good to
// 2^-53, so its terms are good to 1e-14, and the finest that is asked of them is 1e-8; differences of terms
// are kept as their two sides (Decision.Up and Down). Which of two values is larger may hang on their
// last bit, so ties are decided in exact rationals.
//
// An algorithm is one file that registers itself by its name.
package reference

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Subflow is one subflow, as mpcc eval takes it.
type Subflow struct {
	Cwnd               float64 `json:"cwnd"` // packets
	Ssthresh           float64 `json:"ssthresh,omitempty"`
	SRTT               float64 `json:"srtt_us,omitempty"`     // 0 = no sample
	BaseRTT            float64 `json:"base_rtt_us,omitempty"` // 0 = unset
	BytesBetweenLosses float64 `json:"bytes_between_losses,omitempty"`
	BytesSinceLoss     float64 `json:"bytes_since_loss,omitempty"`
	PricePJ            float64 `json:"price_pj,omitempty"` // per bit; 0 = no energy profile
	Group              float64 `json:"group,omitempty"`
	PeerWindow         float64 `json:"peer_window,omitempty"` // packets
	Theta              float64 `json:"theta,omitempty"`       // 0 = none
	Alpha              float64 `json:"alpha,omitempty"`       // packets
	QueueUS            float64 `json:"queue_us,omitempty"`    // 0 = unset
	EpochUS            float64 `json:"epoch_us,omitempty"`
	LastMax            float64 `json:"last_max,omitempty"` // packets; 0 = none
	Backup             float64 `json:"backup,omitempty"`   // 0 or 1, as the next two
	Stale              float64 `json:"stale,omitempty"`
	Closing            float64 `json:"closing,omitempty"`
}

// rate is x_r = w_r / rtt_r in packets per microsecond.
func (s Subflow) rate() float64 { return s.Cwnd / s.SRTT }

// exactRate is rate without rounding, for comparisons.
func exactRate(s Subflow) *big.Rat { return new(big.Rat).Quo(exact(s.Cwnd), exact(s.SRTT)) }

// interval is l_r: bytes since the last loss or between the last two, whichever is more.
func (s Subflow) interval() float64 { return max(s.BytesBetweenLosses, s.BytesSinceLoss) }

// Decision is what an algorithm decides for one subflow.
type Decision struct {
	Up, Down  float64 // one acknowledged segment adds Up - Down packets
	AfterLoss float64 // packets
	Window    float64 // packets; what the algorithm sets by itself
	Ssthresh  float64 // packets; with that window
	Coupling  float64 // the algorithm's own quantity; 0 where the subflow does not count
	Counts    bool    // false: is alone beside others
	Alone     bool    // decided as of a connection with one subflow, by CUBIC or Reno

	// The sizes of the terms whose difference Up - Down and Coupling are: errors are relative to them. 0 stands
	// for Up + Down, and for Coupling itself.
	IncreaseTerms, CouplingTerms float64

	// NearUp is Up if a quantity that is rounded to a whole number comes out a little larger or smaller; 0: the same.
	NearUp float64
}

// Tunables are what load --set sets. An absent one has what the algorithm's source has (--set paper).
type Tunables map[string]string

// Number is a tunable that is one.
func (t Tunables) Number(name string, or float64) float64 {
	text, ok := t[name]
	if !ok {
		return or
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(fmt.Sprintf("tunable %s: %v", name, err))
	}
	return v
}

// Algorithm is one congestion control.
type Algorithm struct {
	// Precision is the relative error that the fixed-point arithmetic may have.
	Precision float64
	// Sets are the tunables to test with, besides what the source has. Each tunable of the rule is in one of them; those
	// of every algorithm are added to them.
	Sets []Tunables
	// OwnAlone: the source has a rule for a connection of one subflow. The others are Reno then.
	OwnAlone bool
	// SetsWindow: the rule gives Window and Ssthresh. The others leave both as they are.
	SetsWindow bool
	// Draw, if not nil, gives random subflows values for the fields that only this algorithm reads.
	Draw func(r *rand.Rand, subflows []Subflow)
	// Corners are the edges of its own rule.
	Corners []Corner
	// Rule decides for the subflows that count.
	Rule func(paths []Subflow, set Tunables) []Decision
}

// Corner is a connection at an edge of the valid range or of a rule.
type Corner struct {
	Name     string
	Subflows []Subflow
}

var algorithms = map[string]Algorithm{}

func register(name string, a Algorithm) {
	for _, rule := range []string{"cubic", "reno", "own"} {
		if rule != a.alone(nil) {
			a.Sets = append(a.Sets, Tunables{"alone": rule})
		}
	}
	algorithms[name] = a
}

// alone is which rule a subflow has that is alone.
func (a Algorithm) alone(set Tunables) string {
	if rule, ok := set["alone"]; ok {
		return rule
	}
	if a.OwnAlone {
		return "own"
	}
	return "reno"
}

// Names lists the algorithms.
func Names() []string { return slices.Sorted(maps.Keys(algorithms)) }

// Of returns the algorithm of this name.
func Of(name string) (Algorithm, error) {
	a, ok := algorithms[name]
	if !ok {
		return a, fmt.Errorf("test/reference has no algorithm %q: add %s.go, which registers it", name, name)
	}
	return a, nil
}

// Decide applies the rule to the subflows that count. Alone are the others, and one that counts as the only one of its
// group: they have CUBIC (cubic.go), Reno (RFC 5681), or the rule for one subflow.
func (a Algorithm) Decide(subflows []Subflow, set Tunables) []Decision {
	var paths []Subflow
	inGroup := map[float64]int{}
	counts := counting(subflows)
	for i, s := range subflows {
		if counts[i] {
			paths = append(paths, s)
			inGroup[s.Group]++
		}
	}
	var coupled []Decision
	if len(paths) > 0 {
		coupled = a.Rule(paths, set)
	}
	decisions := make([]Decision, len(subflows))
	for i, s := range subflows {
		var d Decision
		if counts[i] {
			d, coupled = coupled[0], coupled[1:]
			d.Counts = true
		}
		d.Alone = !d.Counts || inGroup[s.Group] == 1 && a.alone(set) != "own"
		if d.Alone {
			d = a.decideAlone(d, s, set)
		}
		if d.Alone || !a.SetsWindow {
			d.Window, d.Ssthresh = s.Cwnd, s.Ssthresh
		}
		decisions[i] = d
	}
	return decisions
}

// decideAlone replaces what is decided of the window.
func (a Algorithm) decideAlone(d Decision, s Subflow, set Tunables) Decision {
	d.Down, d.IncreaseTerms = 0, 0
	if a.alone(set) == "cubic" {
		d.Up, d.NearUp = cubicIncrease(s)
		d.AfterLoss = max(cubicAfterLoss(s.Cwnd), 2)
		return d
	}
	d.Up, d.AfterLoss = 1/s.Cwnd, halved(s.Cwnd, 2)
	return d
}

// counting tells which subflows take part: those with an RTT sample that are neither stale nor closing;
// backups only if there is nothing else.
func counting(subflows []Subflow) []bool {
	usable := func(s Subflow) bool { return s.SRTT > 0 && s.Stale == 0 && s.Closing == 0 }
	backups := !slices.ContainsFunc(subflows, func(s Subflow) bool { return usable(s) && s.Backup == 0 })
	counts := make([]bool, len(subflows))
	for i, s := range subflows {
		counts[i] = usable(s) && (s.Backup != 0) == backups
	}
	return counts
}

// halved is the window of RFC 5681 after a loss.
func halved(cwnd, floor float64) float64 { return max(math.Floor(cwnd/2), floor) }

// soloFloor is the smallest window where a rule lets it go below Reno's 2 packets beside other subflows.
func soloFloor(n int, set Tunables) float64 {
	if n > 1 {
		return set.Number("min_cwnd", 1)
	}
	return 2
}

func sum(paths []Subflow, of func(Subflow) float64) float64 {
	total := 0.0
	for _, p := range paths {
		total += of(p)
	}
	return total
}

func square(x float64) float64 { return x * x }

// floor is exact, where a product of floats may round up to the next whole number.
func floor(x *big.Rat) float64 {
	whole, _ := new(big.Float).SetInt(new(big.Int).Div(x.Num(), x.Denom())).Float64()
	return whole
}

func exact(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }

// argmax marks those with the largest value.
func argmax(paths []Subflow, of func(Subflow) *big.Rat) []bool {
	var best *big.Rat
	values := make([]*big.Rat, len(paths))
	for i, p := range paths {
		values[i] = of(p)
		if best == nil || values[i].Cmp(best) > 0 {
			best = values[i]
		}
	}
	marks := make([]bool, len(paths))
	for i, v := range values {
		marks[i] = v.Cmp(best) == 0
	}
	return marks
}

// first is the position of the first mark.
func first(marks []bool) int { return slices.Index(marks, true) }

func count(marks []bool) float64 {
	n := 0.0
	for _, m := range marks {
		if m {
			n++
		}
	}
	return n
}
