// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/figures"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Connection is the subflows of a connection that the filter lets through, and their sums. A connection that is not
// multipath is one with a single subflow.
type Connection struct {
	key
	Subflows                       []*Subflow // by number
	CC                             string     // as ss -ti names it; several if the subflows differ
	Cwnd, Retrans                  uint64
	SRTT                           telemetry.Micros // the shortest; 0 if there is none yet
	Rate, Receiving, Power, Energy *float64         // null if that of all subflows is
	coupling                       float64          // the largest
}

// key tells connections apart. Only those that are multipath have a token.
type key struct {
	netnsCookie uint64
	token       telemetry.Token
	plain       uint64 // the only subflow's id
}

func keyOf(f *Subflow) key {
	if f.Token == 0 {
		return key{f.NetnsCookie, 0, f.ID}
	}
	return key{f.NetnsCookie, f.Token, 0}
}

func (c *Connection) add(f *Subflow) {
	if len(c.Subflows) == 0 || f.Coupling > c.coupling {
		c.coupling = f.Coupling
	}
	c.Subflows = append(c.Subflows, f)
	if !slices.Contains(strings.Split(c.CC, ","), f.CC) {
		c.CC = strings.TrimPrefix(c.CC+","+f.CC, ",")
	}
	c.Cwnd += uint64(f.Cwnd)
	c.Retrans += uint64(f.Retrans)
	if f.SRTT != 0 && (c.SRTT == 0 || f.SRTT < c.SRTT) {
		c.SRTT = f.SRTT
	}
	c.Rate = sum(c.Rate, f.Rate)
	c.Receiving = sum(c.Receiving, f.Receiving)
	c.Power = sum(c.Power, f.Power)
	c.Energy = sum(c.Energy, f.Energy)
}

func sum(a, b *float64) *float64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return new(*a + *b)
}

// history returns the sums of the subflows' rates, the last ones last: all of them have one of the last refresh.
func (c *Connection) history() []float64 {
	longest := 0
	for _, f := range c.Subflows {
		longest = max(longest, len(f.history))
	}
	all := make([]float64, longest)
	for _, f := range c.Subflows {
		for i, rate := range f.history {
			all[longest-len(f.history)+i] += rate
		}
	}
	return all
}

// has reports whether each of the words, in lower case, is in what tells subflows apart.
func (f *Subflow) has(words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(strings.Join([]string{figures.Token(f.Token), f.CC, f.Interface, f.Local.String(),
		f.Remote.String(), figures.Netns(f.NetnsName, f.Netns), figures.SubflowID(f.SubflowID, f.Backup)}, " "))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
