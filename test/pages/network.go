// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// Network is what a page's sessions have around them:
//
//	        wlan0 20 Mbit/s, 10 ms
//	phone ══════════════════════════ core ── server
//	        lte0  20 Mbit/s, 20 ms
//
// The phone has 10.0.1.1 and 10.0.2.1, core 10.0.1.2 and 10.0.2.2 there, and the server 10.0.3.1. Where the kernel has no netem, the links have their rates but no delay. The machine of the sessions is the phone.
type Network struct {
	Beside bool      // "phone is a namespace": the machine has the phone as a namespace of ip netns
	Names  [2]string // "dsl0 lte0": of the links
}

const beside = "phone is a namespace"

func parseNetwork(words string) (n Network, err error) {
	if words == "" {
		return n, nil
	}
	for word := range strings.SplitSeq(words, "; ") {
		names := strings.Fields(word)
		switch {
		case word == beside:
			n.Beside = true
		case len(names) == 2:
			n.Names = [2]string(names)
		default:
			return n, fmt.Errorf("network: %q is neither the names of two links nor %q", word, beside)
		}
	}
	return n, nil
}

// String is what parseNetwork takes.
func (n Network) String() string {
	var words []string
	if n.Beside {
		words = append(words, beside)
	}
	if n.Names[0] != "" {
		words = append(words, strings.Join(n.Names[:], " "))
	}
	return strings.Join(words, "; ")
}

// make makes the network, and gives its hosts the names that pages call them by.
func (n Network) make() (phone, server *lab.Host, err error) {
	l, err := lab.New()
	if err != nil {
		return nil, nil, err
	}
	if phone, err = l.Host("phone"); err != nil {
		return nil, nil, err
	}
	if server, err = l.Host("server"); err != nil {
		return nil, nil, err
	}
	core, err := l.Router("core")
	if err != nil {
		return nil, nil, err
	}
	names := n.Names
	if names == ([2]string{}) {
		names = [2]string{"wlan0", "lte0"}
	}
	netem := lab.Has("netem") == nil
	for i, name := range names {
		shape := lab.Shape{Rate: 20e6, Queue: 100}
		if netem {
			shape.Delay = time.Duration(i+1) * 10 * time.Millisecond
		}
		if _, err := l.Link(phone, core, lab.LinkOpts{Name: name, AtoB: shape, BtoA: shape}); err != nil {
			return nil, nil, err
		}
	}
	if _, err := l.Link(server, core, lab.LinkOpts{Name: "eth0"}); err != nil {
		return nil, nil, err
	}
	if err := l.Route(); err != nil {
		return nil, nil, err
	}
	limits := lab.MPTCPLimits{Subflows: 2}
	if err := phone.MPTCP(limits); err != nil {
		return nil, nil, err
	}
	return phone, server, server.MPTCP(limits)
}
