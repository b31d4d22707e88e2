// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/netlab"
)

// Profiles that are set, changed and taken away while a connection runs change what its energy grows by.
func TestEnergyOfALiveConnection(t *testing.T) {
	load(t, "dts")
	n := newTwoPaths(t, [2]netlab.Shape{
		{Rate: 10e6, Delay: 10 * time.Millisecond}, {Rate: 10e6, Delay: 10 * time.Millisecond},
	})
	p := n.connect(t, "dts", "reno")
	p.stream()
	p.join(t, 2)

	iface := n.paths[0].Interface(n.client)
	energy := func(verb string, args ...string) {
		t.Helper()
		mpcc(t, append([]string{"energy", verb, iface, "-n", n.client.Namespace()}, args...)...)
	}
	// grown is what the first path's total gains in some seconds.
	grown := func() (joules, megabits, seconds float64) {
		t.Helper()
		time.Sleep(time.Second) // until each subflow has met the new profile
		start, before := time.Now(), readStatus(t)
		time.Sleep(5 * time.Second)
		after := readStatus(t)
		seconds = time.Since(start).Seconds()
		if other := after.total(n.client, n.paths[1].Interface(n.client), "dts"); other.Joules != 0 {
			t.Errorf("%g J on the path without a profile", other.Joules)
		}
		a, b := before.total(n.client, iface, "dts"), after.total(n.client, iface, "dts")
		megabits = float64(b.BytesAcked-a.BytesAcked) * 8 / 1e6
		if megabits < 5 {
			t.Fatalf("%g Mbit in %g s over a path of 10 Mbit/s", megabits, seconds)
		}
		return b.Joules - a.Joules, megabits, seconds
	}
	// Acknowledged is not yet all that was sent, and refreshes come an RTT apart.
	check := func(what string, got, want float64) {
		t.Helper()
		if got < 0.9*want || got > 1.1*want {
			t.Errorf("%s: %g J, want %g J", what, got, want)
		}
	}

	if joules, _, _ := grown(); joules != 0 {
		t.Errorf("%g J without a profile", joules)
	}
	energy("set", "--uplink", "100", "--downlink", "0", "--base", "0")
	joules, megabits, _ := grown()
	check("100 mW/Mbps", joules, 0.1*megabits)

	energy("set", "lte-2012")
	joules, megabits, seconds := grown()
	check("lte-2012", joules, 0.43839*megabits+1.28804*seconds)

	energy("unset")
	if joules, _, _ := grown(); joules != 0 {
		t.Errorf("%g J after the profile was taken away", joules)
	}
}
