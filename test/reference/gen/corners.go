// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/mpcc/mpcc/test/reference"
)

type corner struct {
	name     string
	subflows []reference.Subflow
}

// corners are the edges of the valid range and of the rules about which subflows count.
func corners() []corner {
	ordinary := reference.Subflow{Cwnd: 40, SRTT: 60_000, BaseRTT: 45_000, BytesBetweenLosses: 300_000, BytesSinceLoss: 90_000}
	other := reference.Subflow{Cwnd: 25, SRTT: 35_000, BaseRTT: 20_000, BytesBetweenLosses: 80_000, BytesSinceLoss: 500_000}
	with := func(change func(*reference.Subflow)) reference.Subflow {
		s := other
		change(&s)
		return s
	}
	third := reference.Subflow{Cwnd: 12, SRTT: 110_000, BaseRTT: 90_000, BytesSinceLoss: 2_000_000}
	backup := with(func(s *reference.Subflow) { s.Backup = 1 })
	stale := with(func(s *reference.Subflow) { s.Stale = 1 })
	closing := with(func(s *reference.Subflow) { s.Closing = 1 })
	unsampled := with(func(s *reference.Subflow) { s.SRTT, s.BaseRTT = 0, 0 })

	all := []corner{
		{"one packet, one subflow", []reference.Subflow{{Cwnd: 1, SRTT: 50_000, BaseRTT: 50_000}}},
		{"one packet each", []reference.Subflow{{Cwnd: 1, SRTT: 50_000, BaseRTT: 40_000}, {Cwnd: 1, SRTT: 70_000, BaseRTT: 70_000}}},
		{"two and three packets", []reference.Subflow{{Cwnd: 2, SRTT: 50_000, BaseRTT: 40_000}, {Cwnd: 3, SRTT: 70_000, BaseRTT: 70_000}}},
		{"largest windows", []reference.Subflow{{Cwnd: reference.MaxCwnd, SRTT: 50_000, BaseRTT: 30_000}, {Cwnd: reference.MaxCwnd, SRTT: 80_000, BaseRTT: 80_000}}},
		{"smallest beside largest window", []reference.Subflow{{Cwnd: 1, SRTT: 50_000, BaseRTT: 30_000}, {Cwnd: reference.MaxCwnd, SRTT: 50_000, BaseRTT: 30_000}}},
		{"shortest RTTs", []reference.Subflow{{Cwnd: 10, SRTT: 1, BaseRTT: 1}, {Cwnd: 20, SRTT: 1, BaseRTT: 1}}},
		{"longest RTTs", []reference.Subflow{{Cwnd: 10, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT / 2}, {Cwnd: 20, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT}}},
		{"shortest beside longest RTT", []reference.Subflow{{Cwnd: 10, SRTT: 1, BaseRTT: 1}, {Cwnd: 10, SRTT: reference.MaxRTT, BaseRTT: 10}}},
		{"large and near beside small and far", []reference.Subflow{{Cwnd: reference.MaxCwnd, SRTT: 1, BaseRTT: 1}, {Cwnd: 1, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT}}},
		{"small and near beside large and far", []reference.Subflow{{Cwnd: 1, SRTT: 1, BaseRTT: 1}, {Cwnd: reference.MaxCwnd, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT}}},
		{"eighths of a microsecond", []reference.Subflow{{Cwnd: 7, SRTT: 3.125, BaseRTT: 2}, {Cwnd: 9, SRTT: 2.875, BaseRTT: 2}, {Cwnd: 11, SRTT: 1.5, BaseRTT: 1}}},
		{"base RTT unset", []reference.Subflow{{Cwnd: 10, SRTT: 50_000}, {Cwnd: 20, SRTT: 50_000, BaseRTT: 25_000}}},
		{"base RTT next to nothing", []reference.Subflow{{Cwnd: 10, SRTT: reference.MaxRTT, BaseRTT: 1}, {Cwnd: 20, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT}}},
		{"base RTT above the smoothed one", []reference.Subflow{{Cwnd: 10, SRTT: 50_000, BaseRTT: 50_001}, {Cwnd: 20, SRTT: 50_000, BaseRTT: 90_000}}},
		{"base RTT just below the smoothed one", []reference.Subflow{{Cwnd: 10, SRTT: 50_000.125, BaseRTT: 50_000}, {Cwnd: 20, SRTT: 50_000, BaseRTT: 49_999}}},
		{"no loss and no byte yet", []reference.Subflow{{Cwnd: 10, SRTT: 50_000, BaseRTT: 40_000}, {Cwnd: 20, SRTT: 40_000, BaseRTT: 40_000}, {Cwnd: 20, SRTT: 30_000, BaseRTT: 25_000}}},
		{"many bytes", []reference.Subflow{{Cwnd: 10, SRTT: 300_000, BaseRTT: 200_000, BytesSinceLoss: 1 << 50}, {Cwnd: 20, SRTT: reference.MaxRTT, BaseRTT: 200_000, BytesBetweenLosses: 1 << 50}}},
		{"all equal", []reference.Subflow{ordinary, ordinary, ordinary}},
		{"two equal, one larger", []reference.Subflow{other, ordinary, other}},
		{"largest window tied, best elsewhere", []reference.Subflow{ordinary, third, ordinary}},
		{"best tied, one of them the largest", []reference.Subflow{other, with(func(s *reference.Subflow) { s.Cwnd = 60 }), ordinary}},
		{"a backup beside one that is not", []reference.Subflow{ordinary, backup}},
		{"nothing but backups", []reference.Subflow{backup, with(func(s *reference.Subflow) { s.Backup, s.Cwnd = 1, 90 })}},
		{"backups beside a stale one", []reference.Subflow{stale, backup, backup}},
		{"a stale one", []reference.Subflow{ordinary, stale, third}},
		{"a closing one", []reference.Subflow{ordinary, closing, third}},
		{"one without a sample", []reference.Subflow{ordinary, unsampled, third}},
		{"one packet, without a sample", []reference.Subflow{ordinary, with(func(s *reference.Subflow) { s.SRTT, s.Cwnd = 0, 1 })}},
		{"none that counts", []reference.Subflow{stale, closing, unsampled}},
		{"one that counts of three", []reference.Subflow{stale, ordinary, unsampled}},
	}
	for n := 1; n <= reference.MaxSubflows; n++ {
		all = append(all, corner{fmt.Sprintf("%d subflows", n), spread(n)})
	}
	return all
}

// spread is n subflows with unlike windows, RTTs, queues and losses.
func spread(n int) []reference.Subflow {
	subflows := make([]reference.Subflow, n)
	for i := range subflows {
		k := float64(i + 1)
		subflows[i] = reference.Subflow{
			Cwnd:               5 * k * k,
			SRTT:               math.Trunc(8*90_000/k) / 8,
			BaseRTT:            math.Trunc(80_000 / k / (1 + k/4)),
			BytesBetweenLosses: 40_000 * k,
			BytesSinceLoss:     math.Trunc(700_000 / k),
		}
	}
	return subflows
}
