// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"slices"

	"github.com/mpcc/mpcc/internal/figures"
)

// Column is one that a screen has if it is wide enough.
type Column struct {
	Title string
	Width int
	Left  bool // aligned; else to the right
	rank  int  // of narrow screens, only the wide ones have a column of a high rank
	of    func(*Connection) string
	ofOne func(*Subflow) string
	spark bool
}

func none(*Connection) string { return "" }

// columns stand in this order.
var columns = []Column{
	{Title: "CONNECTION", Width: 19, Left: true, rank: 0, ofOne: func(f *Subflow) string {
		return fmt.Sprintf("   %d %s", f.SubflowID, f.iface())
	}},
	{Title: "CWND", Width: 6, rank: 1,
		of:    func(c *Connection) string { return fmt.Sprint(c.Cwnd) },
		ofOne: func(f *Subflow) string { return fmt.Sprint(f.Cwnd) }},
	{Title: "SSTHRESH", Width: 8, rank: 8, of: none,
		ofOne: func(f *Subflow) string { return figures.Ssthresh(f.Ssthresh) }},
	{Title: "SRTT", Width: 7, rank: 2,
		of:    func(c *Connection) string { return figures.RTT(c.SRTT) },
		ofOne: func(f *Subflow) string { return figures.RTT(f.SRTT) }},
	{Title: "BASE RTT", Width: 8, rank: 9, of: none,
		ofOne: func(f *Subflow) string { return figures.RTT(f.BaseRTT) }},
	{Title: "RATE", Width: 11, rank: 3,
		of:    func(c *Connection) string { return rate(c.Rate) },
		ofOne: func(f *Subflow) string { return rate(f.Rate) }},
	{Title: "RECEIVING", Width: 11, rank: 10,
		of:    func(c *Connection) string { return rate(c.Receiving) },
		ofOne: func(f *Subflow) string { return rate(f.Receiving) }},
	{Title: "RETRANS", Width: 7, rank: 11,
		of:    func(c *Connection) string { return fmt.Sprint(c.Retrans) },
		ofOne: func(f *Subflow) string { return fmt.Sprint(f.Retrans) }},
	{Title: "COUPLING", Width: 8, rank: 4, of: none,
		ofOne: func(f *Subflow) string { return figures.Coupling(f.Coupling) }},
	{Title: "POWER", Width: 7, rank: 6,
		of:    func(c *Connection) string { return figures.Optional(c.Power, "W") },
		ofOne: func(f *Subflow) string { return figures.Optional(f.Power, "W") }},
	{Title: "ENERGY", Width: 7, rank: 7,
		of:    func(c *Connection) string { return figures.Joules(c.Energy) },
		ofOne: func(f *Subflow) string { return figures.Joules(f.Energy) }},
	{Title: "HISTORY", Width: 8, Left: true, rank: 5, spark: true},
	{Title: "NETNS", Width: 12, Left: true, rank: 13, ofOne: func(*Subflow) string { return "" },
		of: func(c *Connection) string { return figures.Netns(c.Subflows[0].NetnsName, c.Subflows[0].Netns) }},
	{Title: "PATH", Width: 33, Left: true, rank: 12, of: none,
		ofOne: func(f *Subflow) string { return figures.Path(&f.Subflow) }},
}

func (f *Subflow) iface() string {
	if f.Backup {
		return f.Interface + " backup"
	}
	return f.Interface
}

func rate(bytesPerSecond *float64) string {
	if bytesPerSecond == nil {
		return "-"
	}
	return figures.BitRate(*bytesPerSecond)
}

// Columns returns those that fit on a screen, with one character between them. What is left over goes to the
// sparkline.
func Columns(width int) []Column {
	last, used := 0, -1
	for rank := range columns {
		c := columns[slices.IndexFunc(columns, func(c Column) bool { return c.rank == rank })]
		if rank > 0 && used+1+c.Width > width {
			break
		}
		last, used = rank, used+1+c.Width
	}
	var fit []Column
	for _, c := range columns {
		if c.rank > last {
			continue
		}
		if c.spark {
			c.Width = min(historyLength, c.Width+width-used)
		}
		fit = append(fit, c)
	}
	fit[0].Width = min(fit[0].Width, width)
	return fit
}

// Cell returns what a row has in the column.
func (c *Column) Cell(r Row) string {
	switch {
	case c.spark && r.Subflow == nil:
		return sparkline(r.history(), c.Width)
	case c.spark:
		return sparkline(r.Subflow.history, c.Width)
	case r.Subflow != nil:
		return c.ofOne(r.Subflow)
	case c.rank == 0:
		return r.name()
	default:
		return c.of(r.Connection)
	}
}

func (r Row) name() string {
	mark := "▸"
	if r.Expanded {
		mark = "▾"
	}
	return fmt.Sprintf("%s %-8s %s", mark, figures.Token(r.Subflows[0].Token), r.CC)
}
