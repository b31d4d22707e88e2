// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Timers that are set, set again and stopped at random happen as a sorted list has them.
func TestWheelOrder(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := newWheel()
		type set struct {
			at    int64
			order int
			timer int32
		}
		var want []set
		for i := range 300 {
			w.timer(0, i)
		}
		order := 0
		var got, due []int32
		for range 3000 {
			n := int32(random.IntN(len(w.timers)))
			want = slices.DeleteFunc(want, func(s set) bool { return s.timer == n })
			if random.IntN(10) == 0 {
				w.stop(n)
			} else {
				at := w.now + random.Int64N(1<<(1+random.Uint64N(44)))
				w.set(n, at)
				order++
				want = append(want, set{at, order, n})
			}
			if random.IntN(3) > 0 {
				continue
			}
			slices.SortFunc(want, func(a, b set) int {
				if a.at != b.at {
					return int(min(1, max(-1, a.at-b.at)))
				}
				return a.order - b.order
			})
			end := w.now + random.Int64N(1<<(1+random.Uint64N(40)))
			for next := w.next(end); next != nil; next = w.next(end) {
				got = append(got, next.of)
			}
			for len(want) > 0 && want[0].at <= end {
				due = append(due, want[0].timer)
				want = want[1:]
			}
			if w.now != end {
				t.Fatalf("seed %d: it is %d, not %d", seed, w.now, end)
			}
		}
		if !slices.Equal(got, due) || len(got) < 300 {
			t.Fatalf("seed %d: %d timers happened, %d were due, or in another order", seed, len(got), len(due))
		}
	}
}
