// SPDX-License-Identifier: Apache-2.0

package watch

import "cmp"

// order is what connections can be sorted by.
type order struct {
	name  string
	value func(*Connection) *float64 // nil where unknown; those come last
}

// orders begin with that of mpcc status, which leaves each connection at its place. The others put what is largest
// first.
var orders = []order{
	{"token", nil},
	{"rate", func(c *Connection) *float64 { return c.Rate }},
	{"cwnd", func(c *Connection) *float64 { return new(float64(c.Cwnd)) }},
	{"srtt", func(c *Connection) *float64 {
		if c.SRTT == 0 {
			return nil
		}
		return new(float64(c.SRTT))
	}},
	{"coupling", func(c *Connection) *float64 { return &c.coupling }},
	{"power", func(c *Connection) *float64 { return c.Power }},
	{"energy", func(c *Connection) *float64 { return c.Energy }},
}

// NextOrder sorts by the next of the orders.
func (w *Watch) NextOrder() {
	w.order, w.reverse = (w.order+1)%len(orders), false
	w.arrange()
}

// Reverse turns the order round.
func (w *Watch) Reverse() {
	w.reverse = !w.reverse
	w.arrange()
}

// Order names what the connections are sorted by: ↑ from small to large, ↓ from large to small.
func (w *Watch) Order() string {
	o := orders[w.order]
	if largestFirst := o.value != nil; largestFirst != w.reverse {
		return o.name + " ↓"
	}
	return o.name + " ↑"
}

// compare is for a stable sort of connections that are by namespace and token.
func (w *Watch) compare(a, b *Connection) int {
	sign := 1
	if w.reverse {
		sign = -1
	}
	value := orders[w.order].value
	if value == nil {
		f, g := a.Subflows[0], b.Subflows[0]
		return sign * cmp.Or(cmp.Compare(f.Netns, g.Netns), cmp.Compare(f.Token, g.Token), cmp.Compare(f.ID, g.ID))
	}
	x, y := value(a), value(b)
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return 1
	case y == nil:
		return -1
	}
	return sign * cmp.Compare(*y, *x)
}
