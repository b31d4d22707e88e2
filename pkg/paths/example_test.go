// SPDX-License-Identifier: Apache-2.0

package paths_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/mpcc/mpcc/pkg/paths"
)

// DSL first, and LTE when DSL has a queue of 100 ms, up to 20 GB a month.
func ExampleSet() {
	lte, err := paths.ParsePath("lte0")
	if err != nil {
		log.Fatal(err)
	}
	rule, err := paths.Set(context.Background(), paths.Key{Path: lte}, nil, func(r *paths.Rule) error {
		r.Rank = 2
		r.Spill = paths.Spill{On: true, Above: 100 * time.Millisecond}
		r.Quota = paths.Quota{Bytes: 20e9, Monthly: true}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s of %v used\n", paths.FormatBytes(rule.Used), rule.Quota)
}
