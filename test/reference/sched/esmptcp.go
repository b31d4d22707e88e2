// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"slices"
)

// The k cheapest by b' = b + theta/X, k maximising O_k = sum X - lambda T sum(b X + theta), T = N / sum X; of
// these the lowest RTT. X is the rate delivered or w MSS / rtt, whichever is larger; with rates=formula equation (7), if
// that is less. The set is chosen anew once per longest RTT, where another k must be better by 5 %, and when other
// subflows are alive, where the old k does not count. One outside the set gets new data first for a second, and 128 KiB,
// every probe_s seconds.
func init() {
	register("esmptcp", Scheduler{
		Sets: []Tunables{
			{"lambda_ppm": "1000000"}, {"lambda_ppm": "0"}, {"size_kib": "20000"}, {"probe_s": "60"}, {"rates": "measured"},
		},
		Rule: func(d *decision) {
			var alive, longest float64
			for i, s := range d.Subflows {
				if d.alive[i] {
					alive += math.Ldexp(1, i)
					longest = max(longest, s.SRTT)
				}
			}
			m := &d.Scene.Memory
			changed := alive != m.Alive
			if changed {
				m.Alive, m.K = alive, 0
			}
			if changed || m.K == 0 || d.Connection.Now-m.ChosenAt >= math.Floor(longest) {
				d.choose()
			}
			allowed := make([]bool, len(d.Subflows))
			for i, s := range d.Subflows {
				allowed[i] = d.usable[i] && s.Allowed != 0
			}
			best := d.fastest(allowed)
			if d.Connection.Reinject != 0 {
				if best < 0 {
					best = d.fastest(d.usable)
				}
			} else if tried := slices.IndexFunc(d.onTrial(), func(on bool) bool { return on }); tried >= 0 {
				best = tried
			}
			d.send(best)
		},
	})
}

func (d *decision) choose() {
	lambda := d.set.Number("lambda_ppm", 1000) / 1e6
	size := d.Connection.Unsent + d.Connection.Outstanding
	if d.Connection.More != 0 {
		size = max(size, d.set.Number("size_kib", 1024)*1024)
	}
	var order []int
	for i := range d.Subflows {
		if d.alive[i] {
			order = append(order, i)
		}
	}
	formula := d.rates(order)
	for j, i := range order {
		s := d.Subflows[i]
		d.Rate[i] = max(s.Rate*8/1e6, s.windowRate())
		if d.set["rates"] != "measured" {
			d.Rate[i] = min(d.Rate[i], formula[j])
		}
		d.Cost[i] = s.cost(d.Rate[i])
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case d.Cost[a] < d.Cost[b]:
			return -1
		case d.Cost[a] > d.Cost[b]:
			return 1
		}
		return 0
	})
	var rate, power float64
	best := 0
	for k, i := range order {
		rate += d.Rate[i]
		power += d.Subflows[i].power(d.Rate[i])
		energy := lambda * size * 8 / 1e6 / rate * power
		d.Objective[k], d.Terms[k] = rate-energy, rate+energy
		if d.Objective[k] > d.Objective[best] {
			best = k
		}
	}
	m := &d.Scene.Memory
	if present := int(m.K) - 1; present >= 0 && present < len(order) &&
		d.Objective[best] <= d.Objective[present]+0.05*math.Abs(d.Objective[present]) {
		best = present
	}
	m.K = float64(best + 1)
	changed := 0.0
	for i := range d.Subflows {
		allowed := 0.0
		if slices.Contains(order[:min(best+1, len(order))], i) {
			allowed = 1
		}
		if d.Subflows[i].Allowed != allowed {
			d.Subflows[i].Allowed, changed = allowed, 1
		}
	}
	m.Changes += changed
	m.Size = size
	m.ChosenAt = d.Connection.Now
}

// onTrial tells of each subflow whether it is to be tried now, and may send.
func (d *decision) onTrial() []bool {
	period := d.set.Number("probe_s", 0) * 1e6
	on := make([]bool, len(d.Subflows))
	for i, s := range d.Subflows {
		since := d.Connection.Now - s.TriedAt
		begins := period > 0 && since >= period
		continues := s.Trial > 0 && since < 1e6
		on[i] = d.usable[i] && s.Allowed == 0 && (begins || continues)
	}
	return on
}

// rates is equation (7) in Mbit/s: x_r = (1/(p_r rtt_r)) max_k(sqrt(2/p_k)/rtt_k) / sum_k 1/(rtt_k p_k).
func (d *decision) rates(of []int) []float64 {
	var sum, best float64
	weight := func(s Subflow) float64 { return 1 / (max(s.Loss, 1e-6) * s.SRTT) }
	for _, i := range of {
		s := d.Subflows[i]
		sum += weight(s)
		best = max(best, math.Sqrt(2/max(s.Loss, 1e-6))/s.SRTT)
	}
	var x []float64
	for _, i := range of {
		s := d.Subflows[i]
		x = append(x, weight(s)*best/sum*s.MSS*8)
	}
	return x
}
