// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/bpf/obj"
)

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"":              "",
		"wlan0":         "wlan0",
		"eth0.100@vlan": "eth0.100@vlan",
		"wlän-电":        "wlän-电",
		"w\xfflan":      `w\xfflan`,
		"\xc3":          `\xc3`,         // the first byte of two
		"a\xc3\x28":     `a\xc3(`,       // and then another letter
		"\x1b[31m\x07":  `\x1b[31m\x07`, // colours a terminal
		"a\u0085b":      `a\xc2\x85b`,   // a control character of two bytes
		"a\u200eb":      `a\xe2\x80\x8eb`,
		"\ufffd":        "\ufffd", // written as such
		`a\xff`:         `a\xff`,
	} {
		got := printable(name)
		if got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
		if text, err := json.Marshal(got); err != nil || !utf8.Valid(text) {
			t.Errorf("%q in JSON is %q, %v", got, text, err)
		}
	}
}

// Each CPU has counted its part; only the first one that did has written names.
func TestTotalOfAllCPUs(t *testing.T) {
	key := obj.MapsMpccTotalKey{NetnsCookie: 77, Ifindex: 3}
	copy(key.Cc[:], "dts")
	perCPU := make([]obj.MapsMpccTotal, 4)
	for i := range perCPU {
		perCPU[i] = obj.MapsMpccTotal{
			Opened: 1, Closed: 2, BytesAcked: 1 << 60, BytesReceived: 4, BytesRetrans: 5, Retrans: 6, Losses: 7,
			EnergyNj: 250_000_000, RttSumUs: 500_000,
		}
		perCPU[i].Rtt[i] = 9
	}
	perCPU[2].Netns = 4026532000
	copy(perCPU[2].Ifname[:], "w\xff0")
	at := newPlaces()
	at.found[77] = place{name: "phone"}
	got := totalOf(key, perCPU, at)
	want := Total{
		CC: "dts", Netns: 4026532000, NetnsCookie: 77, NetnsName: "phone", Interface: `w\xff0`, Ifindex: 3,
		Opened: 4, Closed: 8, BytesAcked: 1 << 62, BytesReceived: 16, BytesRetrans: 20, Retrans: 24, Losses: 28,
		Energy: 1, RTTSum: Seconds(2 * time.Second), RTT: make([]uint64, 24),
	}
	copy(want.RTT, []uint64{9, 9, 9, 9})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A moment that a program wrote may be later than the one at which the maps were read.
func TestAgesAreNotNegative(t *testing.T) {
	const now = 10 * time.Second
	raw := obj.MapsMpccSubflow{OpenedUs: 10_000_001, UpdatedUs: 10_000_001}
	if f := subflowOf(1, &raw, newPlaces(), now); f.Age != 0 || f.Updated != 0 {
		t.Errorf("of a subflow: %v and %v", f.Age, f.Updated)
	}
	conn := obj.MapsMpccSchedConnection{OpenedUs: 10_000_001, UpdatedUs: 10_000_001}
	conn.Choice.ChosenUs = 10_000_001
	if c := connectionOf(1, &conn, newPlaces(), now); c.Age != 0 || c.Updated != 0 || c.Choice.Age != 0 {
		t.Errorf("of a connection: %v, %v and %v", c.Age, c.Updated, c.Choice.Age)
	}
	if f := subflowOf(1, &obj.MapsMpccSubflow{OpenedUs: 9_000_000}, newPlaces(), now); f.Age != Seconds(time.Second) {
		t.Errorf("one that is a second old: %v", f.Age)
	}
}

// Without rights to look into namespaces, a name goes to the one that was active last under its inode number.
func TestLatestOfAnInode(t *testing.T) {
	at := newPlaces()
	at.add(42, 5, 100)
	at.add(42, 9, 300)
	at.add(42, 7, 200)
	at.add(43, 8, 400)
	if at.latest[42].cookie != 9 {
		t.Errorf("the latest is %d", at.latest[42].cookie)
	}
}

// What is kept of very many is what sorting all of them would give.
func TestBusiest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{0, 1, 7, 100, 1000} {
		kept := busiest[uint64]{most: most}
		var all []ranked
		for id := range uint64(300) {
			r := ranked{busyness: float64(random.IntN(50)), id: id}
			all = append(all, r)
			kept.add(r.busyness, id, id)
		}
		slices.SortStableFunc(all, func(a, b ranked) int { return int(b.busyness - a.busyness) })
		want := []uint64{}
		for _, r := range all[:min(most, len(all))] {
			want = append(want, r.id)
		}
		slices.Sort(want)
		slices.Sort(kept.values)
		if !slices.Equal(want, kept.values) || kept.leftOut != len(all)-len(want) {
			t.Errorf("most %d: %v left out %d, want %v", most, kept.values, kept.leftOut, want)
		}
	}
}
