// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/bits"
	"slices"
)

// A wheel holds what is to happen, in three levels of slots as in Varghese and Lauck, Hashed and Hierarchical Timing
// Wheels: a slot of the lowest level is one tick of time, one of the next as many ticks as the lowest has slots.
// Whatever happens at the same time happens in the order in which it was set.
const (
	tickBits = 11 // a tick is 2.048 µs; the three levels together hold 39 hours
	slotBits = 12
	slots    = 1 << slotBits
	levels   = 3
	idle     = -1 // the slot of a timer that is not set
	soon     = -2 // the slot of one that waits in wheel.due
)

// what is the kind of thing that a timer is for.
type what uint8

// timer is one that can be set again and again. There is one for each thing that can have something ahead of it.
type timer struct {
	at         int64  // when, ns
	order      uint64 // counts how often any timer was set; 0: not set
	next, prev int32  // in the slot; -1: none
	slot       int32  // level · slots + number in the level, idle or soon
	of         int32  // which link, socket, … it is for
	what       what
}

// wheel is the clock and the timers of a simulation.
type wheel struct {
	now    int64 // ns since the beginning
	order  uint64
	tick   int64 // all that is set for this tick or an earlier one is in due
	timers []timer
	due    []dueTimer // in the order in which it happens, from head on
	head   int
	first  [levels * slots]int32 // each slot's first timer; -1: none
	used   [levels][slots / 64]uint64
}

// dueTimer is a timer as it was set: if its order differs by now, it was set otherwise since.
type dueTimer struct {
	at    int64
	order uint64
	timer int32
}

func newWheel() *wheel {
	w := &wheel{}
	for i := range w.first {
		w.first[i] = -1
	}
	return w
}

// timer makes a timer, and returns its number.
func (w *wheel) timer(what what, of int) int32 {
	w.timers = append(w.timers, timer{slot: idle, of: int32(of), what: what})
	return int32(len(w.timers) - 1)
}

// set sets a timer, in place of the time that it was set for.
func (w *wheel) set(number int32, at int64) {
	t := &w.timers[number]
	if t.slot >= 0 {
		w.unlink(t)
	}
	if at < w.now {
		panic("sim: time would run back")
	}
	w.order++
	t.at, t.order = at, w.order
	w.place(number, t)
}

// stop takes back that a timer was set.
func (w *wheel) stop(number int32) {
	t := &w.timers[number]
	if t.slot >= 0 {
		w.unlink(t)
	}
	t.slot, t.order = idle, 0
}

// isSet says whether a timer is set.
func (w *wheel) isSet(number int32) bool { return w.timers[number].slot != idle }

func (w *wheel) place(number int32, t *timer) {
	tick := t.at >> tickBits
	level, slot := 0, tick
	switch {
	case tick <= w.tick:
		w.insertDue(number, t)
		return
	case tick>>slotBits == w.tick>>slotBits:
	case tick>>(2*slotBits) == w.tick>>(2*slotBits):
		level, slot = 1, tick>>slotBits
	default:
		level, slot = 2, tick>>(2*slotBits)
		if slot-w.tick>>(2*slotBits) >= slots {
			panic("sim: a timer beyond the wheel's 39 hours")
		}
	}
	slot &= slots - 1
	w.used[level][slot/64] |= 1 << (slot % 64)
	t.slot = int32(level*slots) + int32(slot)
	t.next, t.prev = w.first[t.slot], -1
	if t.next >= 0 {
		w.timers[t.next].prev = number
	}
	w.first[t.slot] = number
}

func (w *wheel) unlink(t *timer) {
	if t.prev >= 0 {
		w.timers[t.prev].next = t.next
	} else {
		w.first[t.slot] = t.next
		if t.next < 0 {
			level, slot := t.slot>>slotBits, t.slot&(slots-1)
			w.used[level][slot/64] &^= 1 << (slot % 64)
		}
	}
	if t.next >= 0 {
		w.timers[t.next].prev = t.prev
	}
}

func (w *wheel) insertDue(number int32, t *timer) {
	t.slot = soon
	w.due = append(w.due, dueTimer{})
	i := len(w.due) - 1
	for ; i > w.head && (w.due[i-1].at > t.at || w.due[i-1].at == t.at && w.due[i-1].order > t.order); i-- {
		w.due[i] = w.due[i-1]
	}
	w.due[i] = dueTimer{t.at, t.order, number}
}

// next returns the next timer that is due up to the end, which is then not set any more, and goes to its time. It
// returns nil if there is none, and goes to the end.
func (w *wheel) next(end int64) *timer {
	for {
		for w.head < len(w.due) {
			d := &w.due[w.head]
			t := &w.timers[d.timer]
			if t.order != d.order {
				w.head++
				continue
			}
			if d.at > end {
				w.now = end
				return nil
			}
			w.head++
			w.now = d.at
			t.slot, t.order = idle, 0
			return t
		}
		w.due, w.head = w.due[:0], 0
		if !w.turn() {
			w.now = end
			return nil
		}
	}
}

// turn goes to the next tick with timers, false if there is none.
func (w *wheel) turn() bool {
	for {
		if slot := w.after(0, int(w.tick)&(slots-1)); slot >= 0 {
			w.tick = w.tick&^(slots-1) | int64(slot)
			w.empty(int32(slot))
			return true
		}
		level := 1
		slot := w.after(1, int(w.tick>>slotBits)&(slots-1))
		if slot < 0 {
			// The highest level goes round.
			level = 2
			at := int(w.tick>>(2*slotBits)) & (slots - 1)
			if slot = w.after(2, at); slot < 0 {
				if slot = w.after(2, -1); slot < 0 {
					return false
				}
			}
			ahead := (slot - at + slots) & (slots - 1)
			w.tick = (w.tick>>(2*slotBits) + int64(ahead)) << (2 * slotBits)
		} else {
			w.tick = (w.tick>>(2*slotBits)<<slotBits | int64(slot)) << slotBits
		}
		w.empty(int32(level*slots + slot))
		if len(w.due) > 0 {
			return true
		}
	}
}

// after returns a level's next slot with timers behind one, -1 if there is none.
func (w *wheel) after(level, slot int) int {
	used := &w.used[level]
	slot++
	if slot >= slots {
		return -1
	}
	word := slot / 64
	if left := used[word] >> (slot % 64); left != 0 {
		return slot + bits.TrailingZeros64(left)
	}
	for word++; word < len(used); word++ {
		if used[word] != 0 {
			return word*64 + bits.TrailingZeros64(used[word])
		}
	}
	return -1
}

// empty puts the timers of a slot where they belong now, those of the present tick into due.
func (w *wheel) empty(slot int32) {
	number := w.first[slot]
	w.first[slot] = -1
	w.used[slot>>slotBits][slot&(slots-1)/64] &^= 1 << (slot % 64)
	if slot >= slots {
		for number >= 0 {
			t := &w.timers[number]
			next := t.next
			w.place(number, t)
			number = next
		}
		return
	}
	for ; number >= 0; number = w.timers[number].next {
		t := &w.timers[number]
		t.slot = soon
		w.due = append(w.due, dueTimer{t.at, t.order, number})
	}
	// Slots have the last first. Sorting what is almost in order takes no time.
	slices.Reverse(w.due)
	for i := 1; i < len(w.due); i++ {
		d := w.due[i]
		j := i
		for ; j > 0 && (w.due[j-1].at > d.at || w.due[j-1].at == d.at && w.due[j-1].order > d.order); j-- {
			w.due[j] = w.due[j-1]
		}
		w.due[j] = d
	}
}
