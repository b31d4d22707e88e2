// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// events are the changes of links that are still to come, in the order of their times.
type events struct {
	left  []scenario.Event
	began time.Time
	timer *time.Timer
}

func (m *measurement) events() *events {
	e := &events{began: m.began, left: m.run.Changes(), timer: time.NewTimer(time.Hour)}
	e.set()
	return e
}

// set sets the timer to the next change.
func (e *events) set() {
	e.timer.Stop()
	if len(e.left) > 0 {
		e.timer.Reset(time.Until(e.began.Add(e.left[0].At.Std())))
	}
}

// next is ready when the next change is due.
func (e *events) next() <-chan time.Time { return e.timer.C }

func (e *events) stop() { e.timer.Stop() }

// happen makes the change that is due.
func (e *events) happen(n *network) error {
	event := e.left[0]
	e.left = e.left[1:]
	e.set()
	if err := n.change(event); err != nil {
		return fmt.Errorf("event at %v: %w", event.At, err)
	}
	return nil
}

// change changes a link.
func (n *network) change(e scenario.Event) error {
	name := scenario.LinkName(e.Link)
	link := n.links[name]
	if link == nil {
		return fmt.Errorf("there is no link %s", e.Link)
	}
	switch e.State {
	case "down":
		return link.Down()
	case "up":
		if err := link.Up(); err != nil {
			return err
		}
	}
	if e.Rate == nil && e.Delay == nil && e.Loss == nil {
		return nil
	}
	for i, way := range []scenario.Way{scenario.There, scenario.Back} {
		if !e.Changes(way) {
			continue
		}
		s := &n.shapes[name][i]
		if e.Rate != nil {
			s.Rate = *e.Rate
		}
		if e.Delay != nil {
			s.Delay = *e.Delay
		}
		if e.Loss != nil {
			s.Loss = *e.Loss
		}
		if err := link.Set(lab.Dir(i), shape(*s)); err != nil {
			return err
		}
	}
	return nil
}
