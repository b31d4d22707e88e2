// SPDX-License-Identifier: Apache-2.0

package energy_test

import (
	"fmt"
	"log"
	"time"

	"github.com/mpcc/mpcc/pkg/energy"
)

// Read profiles of one's own, and see which one lacks a figure.
func ExampleParse() {
	profiles, err := energy.Parse([]byte(`
profiles:
  - {name: lab, uplink_mw_per_mbps: 250, downlink_mw_per_mbps: 120, base_mw: 130, source: our bench}
  - {name: slopes, uplink_mw_per_mbps: 250, downlink_mw_per_mbps: 120, source: a paper}
`))
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range profiles {
		if err := p.Complete(); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s: sending 8 Mbps takes %g mW\n", p.Name, *p.Uplink*8+*p.Base)
	}
	// Output:
	// lab: sending 8 Mbps takes 2130 mW
	// profile slopes has no published base_mw (mW)
}

// Look up a published profile.
func ExampleFind() {
	p, err := energy.Find(energy.Builtin(), "lte-2012")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %g mW/Mbps up, %g mW/Mbps down, %g mW\n", p.Name, *p.Uplink, *p.Downlink, *p.Base)
	// Output: lte-2012: 438.39 mW/Mbps up, 51.97 mW/Mbps down, 1288.04 mW
}

// Measure what the processor takes.
func ExampleRAPL() {
	meter, err := energy.NewRAPL("/sys")
	if err != nil {
		log.Fatal(err)
	}
	zones, err := meter.Read() // the first reading is the start
	if err != nil {
		log.Fatal(err)
	}
	for _, z := range zones {
		fmt.Printf("%s: %g J\n", z.Name, z.Joules)
	}
}

// Measure what the machine takes from its battery.
func ExampleOpen() {
	meter, err := energy.Open("/sys", "battery:BAT0")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := meter.Joules(); err != nil { // the first call is the start
		log.Fatal(err)
	}
	time.Sleep(time.Second)
	joules, err := meter.Joules()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.1f W\n", joules)
}
