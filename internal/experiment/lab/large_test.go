// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// A FatTree of 8-port switches: 128 hosts, 80 switches, 384 links. Here each
// address of a host has a path of its own.
func TestFatTree(t *testing.T) {
	const ports, addrs = 8, 4
	start := time.Now()
	l := newLab(t)
	hosts, links := fatTree(t, l, ports, addrs)
	t.Logf("made in %v", time.Since(start))
	if err := l.Route(); err != nil {
		t.Fatal(err)
	}
	t.Logf("up in %v", time.Since(start))
	for i, h := range hosts {
		to := (i + len(hosts)/2) % len(hosts)
		if err := exchange(h, hosts[to], links[i].Addr(h), links[to].Addr(hosts[to])); err != nil {
			t.Errorf("%s to %s: %v", h.Name(), hosts[to].Name(), err)
		}
	}
	start = time.Now()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("removed in %v", time.Since(start))
}

// fatTree makes the network of switches with so many ports, and the hosts' links, each of which has further addresses.
func fatTree(t *testing.T, l *lab.Lab, ports, addrs int) (hosts []*lab.Host, links []*lab.Link) {
	t.Helper()
	half := ports / 2
	shape := lab.Shape{Rate: 10e6}
	err := l.Together(func() error {
		var cores []*lab.Host
		for i := range half * half {
			cores = append(cores, addRouter(t, l, fmt.Sprint("core", i)))
		}
		link := func(a, b *lab.Host) *lab.Link {
			return addLink(t, l, a, b, lab.LinkOpts{AtoB: shape, BtoA: shape})
		}
		for pod := range ports {
			var edges []*lab.Host
			for i := range half {
				edge := addRouter(t, l, fmt.Sprintf("edge%d-%d", pod, i))
				for j := range half {
					h := addHost(t, l, fmt.Sprintf("host%d-%d-%d", pod, i, j))
					k := link(h, edge)
					if _, err := k.AddAddrs(h, addrs); err != nil {
						return err
					}
					hosts, links = append(hosts, h), append(links, k)
				}
				edges = append(edges, edge)
			}
			for i := range half {
				agg := addRouter(t, l, fmt.Sprintf("agg%d-%d", pod, i))
				for _, edge := range edges {
					link(edge, agg)
				}
				for j := range half {
					link(agg, cores[half*i+j])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hosts, links
}
