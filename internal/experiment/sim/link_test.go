// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// tbf lets pass at once what it could have sent in the 50 ms before, and from then on goes at the rate, also after a change
// of it, which fills its bucket.
func TestBucket(t *testing.T) {
	shape := scenario.Shape{Rate: 10e6, Queue: scenario.Queue{Bytes: 1e6}}
	l := &link{}
	l.reshape(shape)
	l.queue(shape)
	took := frameTime(frame, l.rate)
	inBucket := 10_000_000 / 8 / 20 / frame
	at := int64(time.Second)
	for i := range inBucket {
		if out := l.serve(at, took); out != at {
			t.Fatalf("packet %d of a burst leaves after %d ns", i, out-at)
		}
	}
	next := l.serve(at, took)
	if next <= at || next > at+took {
		t.Errorf("the packet behind a burst leaves after %d ns, where one takes %d", next-at, took)
	}
	for range 100 {
		out := l.serve(at, took)
		if out != next+took {
			t.Fatalf("packets leave %d ns after each other, not %d", out-next, took)
		}
		next = out
	}
	// A fifth of the bucket fills in 10 ms.
	at = next + int64(10*time.Millisecond)
	passed := 0
	for l.serve(at, took) == at {
		passed++
	}
	if want := inBucket / 5; passed != want {
		t.Errorf("after 10 ms of nothing %d packets leave at once, want %d", passed, want)
	}
}
