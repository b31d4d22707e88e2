// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// bench is a namespace whose connections are steered without a kernel: the subflows are as the test sets them.
type bench struct {
	decider decider
	now     time.Time
	tariffs map[uint32]tariff
	held    map[lever]bool
	flows   []seen
}

// newBench has the paper's two interfaces: 1 is WLAN, 2 is 3G.
func newBench(o Objective) *bench {
	return &bench{
		decider: decider{objective: o, connections: map[telemetry.Token]*connection{}},
		now:     time.Unix(1, 0),
		tariffs: map[uint32]tariff{1: {137, 132.9}, 2: {122.1, 817.9}},
		held:    map[lever]bool{},
	}
}

// add adds a subflow at this rate on an interface. All subflows of an interface have the same endpoint.
func (b *bench) add(token telemetry.Token, iface uint32, mbps float64) *seen {
	addr := netip.AddrFrom4([4]byte{10, 0, byte(iface), 1})
	b.flows = append(b.flows, seen{
		Subflow: telemetry.Subflow{
			ID: uint64(len(b.flows) + 1), Token: token, Ifindex: iface, Interface: []string{"", "wlan0", "wwan0"}[iface],
			Local: netip.AddrPortFrom(addr, 1234), MSS: 1460, SRTT: telemetry.Micros(50 * time.Millisecond), Cwnd: 1,
			DeliveryRate: uint64(mbps * 1e6 / 8), BytesSent: 1e6, BytesAcked: 1e6, Age: telemetry.Seconds(time.Minute),
		},
		lever: lever{Endpoint: uint8(iface), Local: netip.AddrPortFrom(addr, 0)},
	})
	return &b.flows[len(b.flows)-1]
}

// pass lets time pass, in which every subflow sends that is no backup, and returns the endpoints that are to be
// backups then.
func (b *bench) pass(d time.Duration) (backups []uint8) {
	b.now = b.now.Add(d)
	for i := range b.flows {
		f := &b.flows[i]
		f.held = b.held[f.lever]
		if !f.held {
			f.BytesSent += 1e6
		}
	}
	all := wishes(b.decider.judge(b.now, b.flows, b.tariffs))
	clear(b.held)
	for lever, w := range all {
		if w.backup {
			b.held[lever] = true
			backups = append(backups, lever.Endpoint)
		}
	}
	slices.Sort(backups)
	return backups
}

const mbit = 1024 * 8 / 1e6 // of a KB

func (b *bench) want(t *testing.T, what string, d time.Duration, backups ...uint8) {
	t.Helper()
	if got := b.pass(d); !slices.Equal(got, backups) {
		t.Errorf("%s: backups are %v, want %v", what, got, backups)
	}
}

func TestChoice(t *testing.T) {
	// ES3 and ES4: 1 MB takes both, 20 MB the cheaper one.
	for _, v := range []struct {
		size    float64
		backups []uint8
	}{{1024 * mbit, nil}, {20000 * mbit, []uint8{2}}} {
		b := newBench(Objective{0.001, v.size})
		b.add(7, 1, 6.607)
		b.add(7, 2, 5)
		b.want(t, "at first", time.Second, v.backups...)
		b.want(t, "and then", time.Second, v.backups...)
	}
}

// A change has to be worth 5 % of the objective.
func TestHysteresis(t *testing.T) {
	b := newBench(Objective{0.001, 0.001}) // energy hardly counts: O is the rate
	b.add(7, 1, 10)
	b.add(7, 2, 1)
	second := b.flows[1].lever
	b.held[second] = true
	b.flows[1].DeliveryRate = 0.45e6 / 8
	b.want(t, "4.5 % more", time.Second, 2)
	b.flows[1].DeliveryRate = 0.55e6 / 8
	b.want(t, "5.5 % more", time.Second)
	b.flows[1].DeliveryRate = 0.45e6 / 8
	b.want(t, "4.5 % more, in use", time.Second)
}

// A connection is judged again after a round trip of its slowest subflow, and no sooner.
func TestOncePerRTT(t *testing.T) {
	b := newBench(Objective{0.001, 20000 * mbit})
	b.add(7, 1, 6.607)
	b.add(7, 2, 5).SRTT = telemetry.Micros(800 * time.Millisecond)
	b.want(t, "at first", time.Second, 2)
	b.tariffs[2] = tariff{10, 10} // cheaper now than WLAN: b' = 12
	b.want(t, "half a round trip", 400*time.Millisecond, 2)
	b.want(t, "a round trip", 400*time.Millisecond, 1)
}

func TestWhoHasASay(t *testing.T) {
	large := Objective{0.001, 20000 * mbit}
	pair := func(change func(b *bench, cheap, dear *seen)) *bench {
		b := newBench(large)
		b.add(7, 1, 6.607)
		b.add(7, 2, 5)
		change(b, &b.flows[0], &b.flows[1])
		return b
	}
	for what, b := range map[string]*bench{
		"young":        pair(func(_ *bench, _, dear *seen) { dear.Age = telemetry.Seconds(400 * time.Millisecond) }),
		"not measured": pair(func(_ *bench, _, dear *seen) { dear.BytesAcked = 20000 }),
		"no RTT":       pair(func(_ *bench, _, dear *seen) { dear.SRTT = 0 }),
		"receives":     pair(func(_ *bench, cheap, _ *seen) { cheap.BytesReceived = 1e9 }),
		"no MPTCP":     pair(func(_ *bench, cheap, dear *seen) { cheap.Token, dear.Token = 0, 0 }),
		"unpriced":     pair(func(b *bench, _, _ *seen) { delete(b.tariffs, 1) }),
		"their backup": pair(func(_ *bench, cheap, _ *seen) { cheap.foreign = true }),
		"no lever":     pair(func(_ *bench, _, dear *seen) { dear.lever = lever{} }),
	} {
		b.want(t, what, time.Second)
	}
}

// An endpoint is a backup where no connection wants it, and for as long as one says so.
func TestSeveralConnections(t *testing.T) {
	b := newBench(Objective{0.001, 20000 * mbit})
	b.add(7, 1, 6.607)
	b.add(7, 2, 5)
	b.want(t, "one", time.Second, 2)
	b.add(8, 2, 5)
	b.want(t, "beside one that has nothing else", time.Second, 2)
	b.add(8, 1, 0.5) // for it 3G is the cheaper one
	b.want(t, "beside one that wants the other", time.Second)
	b.flows = b.flows[:2]
	b.want(t, "alone again", time.Second, 2)

	idle := func(d time.Duration, backups ...uint8) {
		t.Helper()
		b.flows[0].BytesSent -= 1e6 // pass adds it again
		b.want(t, "idle", d, backups...)
	}
	idle(9*time.Second, 2)
	idle(2 * time.Second)
}

// A download keeps its subflows in use, the peer's side of them too, while it lasts; a trickle does not.
func TestDownloadHasAVeto(t *testing.T) {
	b := newBench(Objective{0.001, 20000 * mbit})
	b.add(7, 1, 6.607)
	b.add(7, 2, 5)
	b.want(t, "an upload alone", time.Second, 2)
	for iface := range uint32(2) {
		b.add(8, iface+1, 1)
	}
	receive := func(what string, bytes uint64, backups ...uint8) {
		t.Helper()
		for i := range b.flows[2:] {
			f := &b.flows[2+i]
			f.BytesReceived += bytes
			if !b.held[f.lever] {
				f.BytesSent -= 1e6 // pass adds it again
			}
		}
		b.want(t, what, time.Second, backups...)
	}
	receive("just joined", 3e6, 2)
	receive("a download", 3e6)
	receive("and on", 3e6)
	if v := b.decider.connections[8].verdict; !v.Download || !v.Subflows[0].In || !v.Subflows[1].In {
		t.Errorf("the download's verdict is %+v", v)
	}
	for range 10 {
		receive("paused", 0)
	}
	receive("ended", 0, 2)
	for range 200 {
		receive("a trickle, and what came before forgotten", 0, 2)
	}
	for range 60 {
		receive("a trickle", 1000, 2)
	}
}

// With --size auto the size is the mean of what those connections have sent that sent more.
func TestLearnedSize(t *testing.T) {
	b := newBench(Objective{0.001, 1024 * mbit})
	b.decider.learn = true
	b.decider.ended = []uint64{measuredBytes}
	b.add(7, 1, 6.607)
	b.add(7, 2, 5)
	b.want(t, "none has sent as much: 1 MiB, or what it has sent", time.Second)
	b.flows = nil
	b.want(t, "it ends", time.Second)
	if ended := b.decider.ended; len(ended) != 2 || ended[1] != 4e6 {
		t.Fatalf("those that have ended sent %v bytes, want 4 MB for the last", ended)
	}
	b.decider.ended = []uint64{1e6, 4e6, 30e6, 50e6}
	for sent, want := range map[uint64]uint64{3e6: 28e6, 4e6: 40e6, 49e6: 50e6, 60e6: 60e6} {
		if got := b.decider.size(sent); got != want {
			t.Errorf("having sent %d bytes it is expected to send %d, want %d", sent, got, want)
		}
	}
	b.add(8, 1, 6.607)
	b.add(8, 2, 5)
	b.want(t, "others were large", time.Second, 2)
	for range 3 * remembered {
		b.decider.remember(&connection{sent: measuredBytes - 1})
		b.decider.remember(&connection{sent: 2e6})
	}
	if ended := b.decider.ended; len(ended) != remembered || slices.Min(ended) != 2e6 {
		t.Errorf("%d connections are remembered: %v", len(ended), ended)
	}
}

// A subflow may be expected to carry what it delivers, or its window each RTT where it has little to send, and no
// less because of a loss: the cheap path stays in use beside a dear one that has lost nothing.
func TestRates(t *testing.T) {
	b := newBench(Objective{0.001, 1e6})
	cheap, dear := b.add(7, 1, 6), b.add(7, 2, 0.1)
	cheap.Losses = 50
	dear.Cwnd, dear.SRTT = 100, telemetry.Micros(100*time.Millisecond)
	b.want(t, "a large transfer", time.Second, 2)
	v := b.decider.connections[7].verdict
	// 100 packets of 1460 bytes in 0.1 s are 11.68 Mbit/s.
	for i, want := range []float64{6, 11.68} {
		if got := v.Subflows[i].Rate; !near(got, want) {
			t.Errorf("%s: %g Mbit/s expected, want %g", v.Subflows[i].Interface, got, want)
		}
	}
}

func TestStuck(t *testing.T) {
	b := newBench(Objective{0.001, 20000 * mbit})
	b.add(7, 1, 6.607)
	b.add(7, 2, 5).lever = lever{}
	b.pass(time.Second)
	v := b.decider.connections[7].verdict
	if v.K != 1 || len(v.stuck) != 1 || v.stuck[0].Interface != "wwan0" || !v.Subflows[1].In {
		t.Errorf("verdict %+v", v)
	}
}

// What the path manager has refused is tried again once endpoints have come, gone or changed, and not because of a
// backup flag, which steer sets itself.
func TestRefusalIsTriedAgain(t *testing.T) {
	a := mptcp.Endpoint{ID: 1, Addr: netip.MustParseAddr("10.0.1.1"), Flags: mptcp.EndpointSubflow}
	b := mptcp.Endpoint{ID: 2, Addr: netip.MustParseAddr("10.0.2.1")}
	flagged, signalled := a, a
	flagged.Flags |= mptcp.EndpointBackup
	signalled.Flags = mptcp.EndpointSignal
	for what, v := range map[string]struct {
		then  []mptcp.Endpoint
		again bool
	}{
		"the same":       {[]mptcp.Endpoint{a}, false},
		"now a backup":   {[]mptcp.Endpoint{flagged}, false},
		"another one":    {[]mptcp.Endpoint{a, b}, true},
		"other flags":    {[]mptcp.Endpoint{signalled}, true},
		"none":           {nil, true},
		"made over anew": {[]mptcp.Endpoint{{ID: 3, Addr: a.Addr, Flags: a.Flags}}, true},
	} {
		s := &steerer{refused: map[lever]bool{}}
		s.forgive([]mptcp.Endpoint{a})
		s.refused[endpointLever(a)] = true
		s.forgive(v.then)
		if again := len(s.refused) == 0; again != v.again {
			t.Errorf("%s: tried again %v, want %v", what, again, v.again)
		}
	}
}
