// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Show what every live subflow does.
func ExampleTake() {
	snap, err := telemetry.Take(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if snap == nil {
		fmt.Println("nothing is loaded")
		return
	}
	for _, f := range snap.Subflows {
		fmt.Printf("%v on %s: window of %d packets, RTT %v\n", f.Token, f.Interface, f.Cwnd, time.Duration(f.SRTT))
	}
}

// Read the energy profiles that are set.
func ExampleSource_Profiles() {
	source, err := telemetry.Open()
	if errors.Is(err, loader.ErrNotLoaded) {
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	profiles, err := source.Profiles(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range profiles {
		fmt.Printf("%s: sending takes %g mW/Mbps\n", p.Interface, p.Uplink)
	}
}

// The buckets of a histogram of round-trip times double from one to the next.
func ExampleRTTBound() {
	for i := 12; i <= 16; i++ {
		fmt.Printf("%.2f ms\n", 1000*telemetry.RTTBound(i))
	}
	// Output:
	// 3.91 ms
	// 7.81 ms
	// 15.62 ms
	// 31.25 ms
	// 62.50 ms
}

// Tokens are written as ss -M writes them.
func ExampleToken() {
	fmt.Println(telemetry.Token(0xf3fd52))
	// Output: 00f3fd52
}

// Of very many subflows, a program may want the busiest alone. TakeSelected reads no more than these of the machine.
func ExampleSnapshot_Select() {
	snap := &telemetry.Snapshot{Subflows: []telemetry.Subflow{
		{ID: 1, CC: "dts", Interface: "wlan0", BytesSent: 1e6, Age: telemetry.Seconds(time.Second)},
		{ID: 2, CC: "dts", Interface: "wlan0", BytesSent: 3e6, Age: telemetry.Seconds(time.Second)},
		{ID: 3, CC: "dts", Interface: "wlan0", BytesSent: 4e6, Age: telemetry.Seconds(time.Minute)},
	}}
	busiest := snap.Select(telemetry.Selection{Most: 1})
	for _, f := range busiest.Subflows {
		fmt.Printf("subflow %d: %.0f bytes a second; %d more\n", f.ID, f.Busyness(), busiest.LeftOut)
	}
	for _, l := range busiest.Live {
		fmt.Println(l.CC, l.Interface, l.Subflows)
	}
	// Output:
	// subflow 2: 3000000 bytes a second; 2 more
	// dts wlan0 3
}
