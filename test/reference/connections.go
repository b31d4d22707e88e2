// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"math"
	"math/rand/v2"
)

// The valid range of the inputs.
const (
	MaxSubflows = 9
	MaxCwnd     = 1_000_000
	MinRTT      = 1          // microseconds
	MaxRTT      = 16_000_000 // microseconds
	maxBytes    = 1 << 50
)

// Random draws a connection from the whole valid range, windows, RTTs and bytes evenly over their orders
// of magnitude. Every tenth subflow or so does not count, or ties with another one.
func (a Algorithm) Random(r *rand.Rand) []Subflow {
	subflows := make([]Subflow, 1+r.IntN(MaxSubflows))
	for i := range subflows {
		s := Subflow{
			Cwnd:               math.Round(between(r, 1, MaxCwnd)),
			Ssthresh:           math.Round(between(r, 2, MaxCwnd)),
			SRTT:               math.Round(8*between(r, MinRTT, MaxRTT)) / 8,
			BytesBetweenLosses: randomBytes(r),
			BytesSinceLoss:     randomBytes(r),
		}
		s.BaseRTT = randomBase(r, s.SRTT)
		switch r.IntN(40) {
		case 0:
			s.SRTT = 0
		case 1:
			s.Stale = 1
		case 2:
			s.Closing = 1
		case 3, 4:
			s.Backup = 1
		case 5, 6, 7:
			if i > 0 {
				tie(r, &s, subflows[r.IntN(i)])
			}
		}
		subflows[i] = s
	}
	if r.IntN(50) == 0 {
		for i := range subflows {
			subflows[i].Backup = 1
		}
	}
	drawEpochs(r, subflows)
	if a.Draw != nil {
		a.Draw(r, subflows)
	}
	return subflows
}

// between draws evenly over the orders of magnitude.
func between(r *rand.Rand, low, high float64) float64 {
	return low * math.Exp(r.Float64()*math.Log(high/low))
}

func randomBytes(r *rand.Rand) float64 {
	if r.IntN(5) == 0 {
		return 0
	}
	return math.Round(between(r, 1, maxBytes))
}

// Mostly somewhat below the smoothed RTT; sometimes far below, above it, or unset.
func randomBase(r *rand.Rand, srtt float64) float64 {
	switch r.IntN(10) {
	case 0:
		return 0
	case 1:
		return math.Round(between(r, MinRTT, srtt+1))
	case 2:
		return math.Ceil(srtt * (1 + r.Float64()))
	}
	return math.Ceil(srtt * r.Float64())
}

// tie gives s the other one's RTT and loss history, and in half of the cases its window.
func tie(r *rand.Rand, s *Subflow, other Subflow) {
	if r.IntN(2) == 0 {
		s.Cwnd = other.Cwnd
	}
	s.SRTT = other.SRTT
	s.BytesBetweenLosses, s.BytesSinceLoss = other.BytesBetweenLosses, other.BytesSinceLoss
}

const maxEpoch = 36_000_000_000 // 10 h

// drawEpochs gives most subflows a loss near their window; half of them up to minutes ago, the others up to
// hours.
func drawEpochs(r *rand.Rand, subflows []Subflow) {
	for i := range subflows {
		s := &subflows[i]
		switch r.IntN(6) {
		case 0:
		case 1:
			s.LastMax = between(r, 1, MaxCwnd)
		default:
			s.LastMax = s.Cwnd * between(r, 0.5, 5)
		}
		switch r.IntN(9) {
		case 0:
		case 1, 2, 3, 4:
			s.EpochUS = math.Round(between(r, 1e3, maxEpoch))
		default:
			s.EpochUS = math.Round(1e6 * float64(len(subflows)) * math.Cbrt(s.LastMax) * 3 * r.Float64())
		}
	}
}
