// SPDX-License-Identifier: Apache-2.0

package netlab_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/netlab"
)

// A FatTree of 8-port switches: 128 hosts, 80 switches, 384 links. Here each
// address of a host has a path of its own.
func TestFatTree(t *testing.T) {
	const ports, half, addrs = 8, 4, 4
	start := time.Now()
	lab := newLab(t)
	shape := netlab.Shape{Rate: 10e6}
	var hosts []*netlab.Host
	var links []*netlab.Link
	err := lab.Together(func() error {
		var cores []*netlab.Host
		for i := range half * half {
			cores = append(cores, addRouter(t, lab, fmt.Sprint("core", i)))
		}
		link := func(a, b *netlab.Host) *netlab.Link {
			return addLink(t, lab, a, b, netlab.LinkOpts{AtoB: shape, BtoA: shape})
		}
		for pod := range ports {
			var edges []*netlab.Host
			for i := range half {
				edge := addRouter(t, lab, fmt.Sprintf("edge%d-%d", pod, i))
				for j := range half {
					h := addHost(t, lab, fmt.Sprintf("host%d-%d-%d", pod, i, j))
					k := link(h, edge)
					if _, err := k.AddAddrs(h, addrs); err != nil {
						return err
					}
					hosts, links = append(hosts, h), append(links, k)
				}
				edges = append(edges, edge)
			}
			for i := range half {
				agg := addRouter(t, lab, fmt.Sprintf("agg%d-%d", pod, i))
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
	t.Logf("made in %v", time.Since(start))
	if err := lab.Route(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	t.Logf("up in %v", took)
	if took > time.Minute {
		t.Errorf("up in %v", took)
	}
	for i, h := range hosts {
		to := (i + len(hosts)/2) % len(hosts)
		if err := exchange(h, hosts[to], links[i].Addr(h), links[to].Addr(hosts[to])); err != nil {
			t.Errorf("%s to %s: %v", h.Name(), hosts[to].Name(), err)
		}
	}
	start = time.Now()
	if err := lab.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("removed in %v", time.Since(start))
}
