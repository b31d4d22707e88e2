// SPDX-License-Identifier: Apache-2.0

package screen

import "charm.land/bubbles/v2/key"

func bind(shown, does string, names ...string) key.Binding {
	return key.NewBinding(key.WithKeys(names...), key.WithHelp(shown, does))
}

var keys = struct {
	quit, interrupt, suspend                                      key.Binding
	move, up, down, pageUp, pageDown, top, bottom                 key.Binding
	expand, expandAll, sort, reverse, filter, clear, accept, help key.Binding
	pause                                                         key.Binding
}{
	quit:      bind("q", "quit", "q"),
	interrupt: bind("ctrl+c", "quit", "ctrl+c"),
	suspend:   bind("ctrl+z", "suspend", "ctrl+z"),
	move:      bind("↑↓", "move", "up", "down"), // the next two, in few words
	up:        bind("↑ k", "up", "up", "k"),
	down:      bind("↓ j", "down", "down", "j"),
	pageUp:    bind("page up", "a screen up", "pgup", "ctrl+b"),
	pageDown:  bind("page down", "a screen down", "pgdown", "ctrl+f"),
	top:       bind("home g", "to the top, and stay there", "home", "g"),
	bottom:    bind("end G", "to the end", "end", "G"),
	expand:    bind("enter", "expand", "enter", "space"),
	expandAll: bind("a", "expand all, or none", "a"),
	sort:      bind("s", "sort", "s"),
	reverse:   bind("r", "reverse", "r"),
	filter:    bind("/", "filter", "/"),
	clear:     bind("esc", "no filter", "esc"),
	accept:    bind("enter", "keep the filter", "enter"),
	help:      bind("?", "help", "?"),
	pause:     bind("p", "pause", "p"),
}

// hints are shown below the table.
var hints = []key.Binding{
	keys.quit, keys.move, keys.expand, keys.sort, keys.reverse, keys.filter, keys.pause, keys.help,
}

// helpText is shown instead of the table.
var helpText = []string{
	"↑ k  ↓ j         move, by a screen with page up and page down",
	"home g  end G    to the top and stay there; to the end",
	"enter, space     expand a connection to its subflows, or hide them",
	"a                expand all connections, or none",
	"s  r             by token, rate, cwnd, srtt, coupling, power or energy; reverse",
	"/                show what has these words in its token, algorithm, interface,",
	"                 address or namespace; enter keeps the filter, esc ends it",
	"p                pause, and go on",
	"q  ctrl+c        quit; ctrl+z suspends",
	"",
	"CWND SSTHRESH    packets",
	"RATE RECEIVING   acknowledged, and received, since the last refresh",
	"HISTORY          the rate at the last refreshes, against the largest of its row",
	"COUPLING         the algorithm's own quantity; mpcc list -v names it",
	"POWER ENERGY     modelled: since the last refresh, in all; - without a profile",
	"",
	"A connection has the sums of its subflows, and the shortest SRTT.",
	"Columns that do not fit are left out. Any key ends this help.",
}
