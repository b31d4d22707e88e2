// SPDX-License-Identifier: Apache-2.0

package learn_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/mpcc/mpcc/pkg/energy/learn"
)

// Fit what a bench meter has logged.
func ExampleFit() {
	text := "time,watts,tx_mbps\n"
	for second, rate := range []float64{0, 0, 2, 2, 0, 0, 5, 5, 0, 0, 9, 9, 0, 0, 4, 4, 0, 0, 7, 7, 0, 0} {
		watts := 2.5 // of what else the meter sees
		if rate > 0 {
			watts += 1.2 + 0.4*rate
		}
		text += fmt.Sprintf("%d,%.1f,%g\n", 1769860800+second, watts, rate)
	}
	bench, err := learn.ReadCSV(strings.NewReader(text))
	if err != nil {
		log.Fatal(err)
	}
	result, err := learn.Fit(bench.Samples())
	if err != nil {
		log.Fatal(err)
	}
	p := result.Profile("bench", "our bench")
	fmt.Printf("%s: %g mW/Mbps up, %g mW\n", p.Name, *p.Uplink, *p.Base)
	fmt.Println(p.Complete())
	// Output:
	// bench: 400 mW/Mbps up, 1200 mW
	// profile bench has no published downlink_mw_per_mbps (mW/Mbps)
}
