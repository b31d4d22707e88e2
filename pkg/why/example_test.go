// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/why"
)

// Watch the caller's namespace for two seconds.
func ExampleObserve() {
	report, err := why.Observe(context.Background(), why.Options{Interval: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range report.Connections {
		if verdict := c.Findings[0]; !verdict.OK {
			fmt.Printf("%s: %s; %s\n", c.Token, verdict.Says, verdict.Mend)
		}
	}
}

// The decision is made of evidence alone, which may come from elsewhere.
func ExampleJudge() {
	report := why.Judge(&why.Evidence{
		Enabled: true, Limits: mptcp.Limits{},
		Connections: []why.Connection{{Connection: mptcp.Connection{Token: 0xf3fd52c2}}},
	})
	verdict := report.Connections[0].Findings[0]
	fmt.Println(verdict.Cause)
	fmt.Println(verdict.Mend)
	// Output:
	// limit-subflows
	// ip mptcp limits set subflows 2 add_addr_accepted 2
}
