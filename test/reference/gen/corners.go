// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/mpcc/mpcc/test/reference"
)

// corners are the edges of the valid range and of the rules about which subflows count.
func corners() []reference.Corner {
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

	all := []reference.Corner{
		{Name: "one packet, one subflow", Subflows: []reference.Subflow{{Cwnd: 1, SRTT: 50_000, BaseRTT: 50_000}}},
		{Name: "one packet each", Subflows: []reference.Subflow{{Cwnd: 1, SRTT: 50_000, BaseRTT: 40_000}, {Cwnd: 1, SRTT: 70_000, BaseRTT: 70_000}}},
		{Name: "two and three packets", Subflows: []reference.Subflow{{Cwnd: 2, SRTT: 50_000, BaseRTT: 40_000}, {Cwnd: 3, SRTT: 70_000, BaseRTT: 70_000}}},
		{Name: "largest windows", Subflows: []reference.Subflow{{Cwnd: reference.MaxCwnd, SRTT: 50_000, BaseRTT: 30_000}, {Cwnd: reference.MaxCwnd, SRTT: 80_000, BaseRTT: 80_000}}},
		{Name: "smallest beside largest window", Subflows: []reference.Subflow{{Cwnd: 1, SRTT: 50_000, BaseRTT: 30_000}, {Cwnd: reference.MaxCwnd, SRTT: 50_000, BaseRTT: 30_000}}},
		{Name: "shortest RTTs", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: 1, BaseRTT: 1}, {Cwnd: 20, SRTT: 1, BaseRTT: 1}}},
		{Name: "longest RTTs", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT / 2}, {Cwnd: 20, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT}}},
		{Name: "shortest beside longest RTT", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: 1, BaseRTT: 1}, {Cwnd: 10, SRTT: reference.MaxRTT, BaseRTT: 10}}},
		{Name: "large and near beside small and far", Subflows: []reference.Subflow{{Cwnd: reference.MaxCwnd, SRTT: 1, BaseRTT: 1}, {Cwnd: 1, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT}}},
		{Name: "small and near beside large and far", Subflows: []reference.Subflow{{Cwnd: 1, SRTT: 1, BaseRTT: 1}, {Cwnd: reference.MaxCwnd, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT}}},
		{Name: "eighths of a microsecond", Subflows: []reference.Subflow{{Cwnd: 7, SRTT: 3.125, BaseRTT: 2}, {Cwnd: 9, SRTT: 2.875, BaseRTT: 2}, {Cwnd: 11, SRTT: 1.5, BaseRTT: 1}}},
		{Name: "base RTT unset", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: 50_000}, {Cwnd: 20, SRTT: 50_000, BaseRTT: 25_000}}},
		{Name: "base RTT next to nothing", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: reference.MaxRTT, BaseRTT: 1}, {Cwnd: 20, SRTT: reference.MaxRTT, BaseRTT: reference.MaxRTT}}},
		{Name: "base RTT above the smoothed one", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: 50_000, BaseRTT: 50_001}, {Cwnd: 20, SRTT: 50_000, BaseRTT: 90_000}}},
		{Name: "base RTT just below the smoothed one", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: 50_000.125, BaseRTT: 50_000}, {Cwnd: 20, SRTT: 50_000, BaseRTT: 49_999}}},
		{Name: "no loss and no byte yet", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: 50_000, BaseRTT: 40_000}, {Cwnd: 20, SRTT: 40_000, BaseRTT: 40_000}, {Cwnd: 20, SRTT: 30_000, BaseRTT: 25_000}}},
		{Name: "many bytes", Subflows: []reference.Subflow{{Cwnd: 10, SRTT: 300_000, BaseRTT: 200_000, BytesSinceLoss: 1 << 50}, {Cwnd: 20, SRTT: reference.MaxRTT, BaseRTT: 200_000, BytesBetweenLosses: 1 << 50}}},
		{Name: "all equal", Subflows: []reference.Subflow{ordinary, ordinary, ordinary}},
		{Name: "two equal, one larger", Subflows: []reference.Subflow{other, ordinary, other}},
		{Name: "largest window tied, best elsewhere", Subflows: []reference.Subflow{ordinary, third, ordinary}},
		{Name: "best tied, one of them the largest", Subflows: []reference.Subflow{other, with(func(s *reference.Subflow) { s.Cwnd = 60 }), ordinary}},
		{Name: "a backup beside one that is not", Subflows: []reference.Subflow{ordinary, backup}},
		{Name: "nothing but backups", Subflows: []reference.Subflow{backup, with(func(s *reference.Subflow) { s.Backup, s.Cwnd = 1, 90 })}},
		{Name: "backups beside a stale one", Subflows: []reference.Subflow{stale, backup, backup}},
		{Name: "a stale one", Subflows: []reference.Subflow{ordinary, stale, third}},
		{Name: "a closing one", Subflows: []reference.Subflow{ordinary, closing, third}},
		{Name: "one without a sample", Subflows: []reference.Subflow{ordinary, unsampled, third}},
		{Name: "one packet, without a sample", Subflows: []reference.Subflow{ordinary, with(func(s *reference.Subflow) { s.SRTT, s.Cwnd = 0, 1 })}},
		{Name: "none that counts", Subflows: []reference.Subflow{stale, closing, unsampled}},
		{Name: "one that counts of three", Subflows: []reference.Subflow{stale, ordinary, unsampled}},
	}
	lost := ordinary
	lost.LastMax, lost.EpochUS = 60, 3_000_000
	plateau := ordinary
	plateau.LastMax, plateau.EpochUS = 40, 3_000_000
	all = append(all,
		reference.Corner{Name: "alone, 3 s after a loss", Subflows: []reference.Subflow{lost}},
		reference.Corner{Name: "alone beside a backup, 3 s after a loss", Subflows: []reference.Subflow{lost, backup}},
		reference.Corner{Name: "alone on the plateau", Subflows: []reference.Subflow{plateau}},
	)
	for n := 1; n <= reference.MaxSubflows; n++ {
		all = append(all, reference.Corner{Name: fmt.Sprintf("%d subflows", n), Subflows: spread(n)})
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
