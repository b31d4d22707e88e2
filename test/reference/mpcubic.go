// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"math"
	"math/big"
	"slices"
)

// K, a cube root with a relative error of 2^-20, enters in its third power.
const cubicPrecision = 3e-6

// Kato et al., equations (9)-(13), t seconds after a loss at w_loss, C = 0.4, D = n / (1 + beta (n-1)^2/(4n)):
//
//	derived  W = C (t/n - K)^3 + w_loss, K = cbrt(D beta w_loss/C), (1 - D beta) w after a loss
//	literal  W = (n C (t/n - K)^3 + w_loss)/D, K = cbrt(0.3 w_loss/C), 0.7 w after a loss
//
// and with one subflow CUBIC (RFC 9438): W = C (t - K)^3 + w_loss, K as literal, 0.7 w after a loss. D is at
// most that of 5 subflows, and what is left never less than nothing. The increase leads to W(t + RTT), kept to between w and
// 1.5 w, in one RTT. Without a loss yet w_loss = w and K = 0.
func init() {
	register("mpcubic", Algorithm{
		Precision: cubicPrecision,
		Sets: []Tunables{
			{"mode": "literal"},
			{"beta_percent": "10"},
			{"beta_percent": "30"},
			{"beta_percent": "50"},
			{"mode": "literal", "beta_percent": "5"},
		},
		OwnAlone: true,
		Corners: append(slices.Concat(
			epochs("one subflow", Subflow{Cwnd: 70, SRTT: 40_000, LastMax: 100}),
			epochs("two subflows", Subflow{Cwnd: 61, SRTT: 40_000, LastMax: 100}, Subflow{Cwnd: 500, SRTT: 90_000, LastMax: 700}),
			epochs("two subflows, the largest windows", Subflow{Cwnd: MaxCwnd, SRTT: 40_000, LastMax: MaxCwnd}, Subflow{Cwnd: MaxCwnd, SRTT: MaxRTT, LastMax: 700_000.5}),
			epochs("three subflows, one without a loss", Subflow{Cwnd: 61, SRTT: 40_000}, Subflow{Cwnd: 500, SRTT: 90_000, LastMax: 700}, Subflow{Cwnd: 2, SRTT: 1000, LastMax: 3}),
		), Corner{"a backup does not count", []Subflow{
			{Cwnd: 70, SRTT: 40_000, LastMax: 100, EpochUS: 3_000_000}, {Cwnd: 30, SRTT: 40_000, LastMax: 40, Backup: 1},
		}}),
		Rule: mpcubic,
	})
}

// epochs are the subflows at times from the loss to hours after it.
func epochs(name string, subflows ...Subflow) []Corner {
	var corners []Corner
	for _, t := range []float64{0, 0.000_001, 1, 7.5, 60, 3600, 36_000} {
		at := slices.Clone(subflows)
		for i := range at {
			at[i].EpochUS = 1e6 * t
		}
		corners = append(corners, Corner{fmt.Sprintf("%s, %g s after the loss", name, t), at})
	}
	return corners
}

func mpcubic(paths []Subflow, set Tunables) []Decision {
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		window, size := curve(len(paths), p, p.EpochUS, set)
		target, targetSize := curve(len(paths), p, p.EpochUS+p.SRTT, set)
		left := leftAfterLoss(len(paths), set)
		up := min(max(target/p.Cwnd, 1), 1.5)
		// Where the bounds cut the target, an error of the target is cut as well.
		cut := math.Abs(target/p.Cwnd-up) / cubicPrecision
		decisions[i] = Decision{
			Up:            up,
			Down:          1,
			AfterLoss:     max(floor(left.Mul(left, exact(p.Cwnd))), 2),
			Coupling:      window,
			IncreaseTerms: max(up+1, targetSize/p.Cwnd+1-cut),
			CouplingTerms: size,
		}
	}
	return decisions
}

// curve is W(t), and the size of the two terms that it is the sum of.
func curve(subflows int, p Subflow, t float64, set Tunables) (window, size float64) {
	const c = 0.4
	n := float64(subflows)
	lost, k := p.LastMax, 0.0
	if lost == 0 {
		lost = p.Cwnd
	} else {
		left, _ := leftAfterLoss(subflows, set).Float64()
		k = math.Cbrt(lost * (1 - left) / c)
	}
	away := t/1e6/n - k
	cube := c * away * away * away
	share := 1.0
	if subflows > 1 && set["mode"] == "literal" {
		cube *= n
		share, _ = divisor(subflows, set).Float64()
	}
	return max(cube+lost, 0) / share, (math.Abs(cube) + lost) / share
}

// leftAfterLoss is the share of the window that a loss leaves.
func leftAfterLoss(subflows int, set Tunables) *big.Rat {
	if subflows == 1 || set["mode"] == "literal" {
		return big.NewRat(7, 10)
	}
	left := divisor(subflows, set)
	left.Sub(exact(1), left.Mul(left, lossShare(set)))
	if left.Sign() < 0 {
		return exact(0)
	}
	return left
}

// divisor is D.
func divisor(subflows int, set Tunables) *big.Rat {
	n := int64(min(subflows, 5))
	d := big.NewRat((n-1)*(n-1), 4*n)
	d.Add(exact(1), d.Mul(d, lossShare(set)))
	return d.Quo(big.NewRat(n, 1), d)
}

// lossShare is beta.
func lossShare(set Tunables) *big.Rat { return big.NewRat(int64(set.Number("beta_percent", 20)), 100) }
