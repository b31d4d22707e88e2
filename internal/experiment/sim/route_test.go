// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

const smallFatTree = `
phases: {measure: 1 s}
generate:
  - name: host
    fat_tree: {ports: 4}
    access: &link {rate: 10 Mbit/s}
    fabric: *link
    mptcp: {subflows: 8, endpoints: [{link: eth0, addresses: 4}]}
users:
  - {name: all, from: host, to: host, traffic: bulk, cc: reno}
`

// Among equal ways routers choose those that the kernel's do in a lab of the same network.
func TestWaysAreTheKernels(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_seed"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("kernels before 6.11 have no seed for the hash: nobody can say which ways they choose")
	}
	s := start(t, smallFatTree, 1)
	file, err := scenario.Parse("test.yaml", []byte("name: test\ntitle: a test\nsource: none\n"+smallFatTree))
	if err != nil {
		t.Fatal(err)
	}
	plan := file.Runs(false)[0].Network()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hosts := map[scenario.Name]*lab.Host{}
	add := func(name scenario.Name, make func(string) (*lab.Host, error)) {
		if hosts[name], err = make(string(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range plan.Routers {
		add(r, l.Router)
	}
	for _, h := range plan.Hosts {
		add(h.Name, l.Host)
	}
	for i := range plan.Links {
		k := &plan.Links[i]
		made, err := l.Link(hosts[k.Between[0]], hosts[k.Between[1]], lab.LinkOpts{Name: k.Interface})
		if err != nil {
			t.Fatal(err)
		}
		if k.Interface != "" {
			if _, err := made.AddAddrs(hosts[k.Between[0]], 3); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Route(); err != nil {
		t.Fatal(err)
	}
	n := &s.network
	random := rand.New(rand.NewPCG(1, 1))
	chosen := map[int]int{}
	for range 100 {
		a, b := random.IntN(len(plan.Hosts)), random.IntN(len(plan.Hosts))
		from, err1 := n.interfaceOf(plan.Hosts[a].Name, "")
		to, err2 := n.interfaceOf(plan.Hosts[b].Name, "")
		if a == b || errors.Join(err1, err2) != nil {
			continue
		}
		src, dst := n.place(from, random.IntN(4)), n.place(to, random.IntN(4))
		at := n.nodes[from.Node].Ends[from.End] // the edge switch, and the end by which packets come
		best := n.ways(to).Best(at.Node)
		if len(best) < 2 {
			continue
		}
		want := best[n.choose(at.Node, src.address, dst.address, len(best))]
		router := hosts[n.hosts[at.Node].name]
		said, err := router.Command(context.Background(), "ip", "route", "get", ip(dst), "from", ip(src), "iif", fmt.Sprintf("eth%d", at.End)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		if !strings.Contains(string(said), fmt.Sprintf(" dev eth%d ", want)) {
			t.Errorf("%s, %s to %s: the kernel says %q, the simulator eth%d", router.Name(), ip(src), ip(dst), said, want)
		}
		chosen[want]++
	}
	if len(chosen) < 2 {
		t.Errorf("no choice was to be made: %v", chosen)
	}
}

func ip(p place) string {
	return netip.AddrFrom4([4]byte{byte(p.address >> 24), byte(p.address >> 16), byte(p.address >> 8), byte(p.address)}).String()
}
