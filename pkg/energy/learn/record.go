// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"context"
	"errors"
	"time"
)

// lookEvery is the time between two looks at an interface's counters: well below a pause that ends activity.
const lookEvery = pause / 4

// Watched is what Record watches.
type Watched struct {
	Counters func() (sent, received uint64, err error) // of the interface since it was made, bytes
	Joules   func() (float64, error)                   // of a meter; nil where that is elsewhere
	Interval time.Duration                             // between two readings of the meter
}

// ErrCountersFell is the error of an interface that was made anew meanwhile.
var ErrCountersFell = errors.New("the interface's counters fell: it was made anew")

// Record watches an interface and a meter until ctx ends, which is no error: it returns what it has seen.
func Record(ctx context.Context, w Watched) (Traffic, Power, error) {
	var traffic Traffic
	var power Power
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var b beat
	for {
		sent, received, err := w.Counters()
		if err != nil {
			return traffic, power, err
		}
		r := Reading{time.Now(), sent, received}
		first := len(traffic) == 0
		if first {
			b = newBeat(r.At, w.Interval)
		} else if last := traffic[len(traffic)-1]; r.Sent < last.Sent || r.Received < last.Received {
			return traffic, power, ErrCountersFell
		}
		traffic = append(traffic, r)
		if w.Joules != nil && (first || b.over(r.At)) {
			joules, err := w.Joules()
			if err != nil {
				return traffic, power, err
			}
			power = append(power, Point{r.At, joules})
		}
		select {
		case <-ctx.Done():
			return traffic, power, nil
		case <-look.C:
		}
	}
}
