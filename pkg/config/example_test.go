// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/mpcc/mpcc/pkg/config"
)

func ExampleParse() {
	_, err := config.Parse("config.yaml", []byte(`
algorithms:
  - {name: dts, set: {min_cwn: 1}}
`))
	fmt.Println(err)
	// Output: config.yaml:3:22: min_cwn: dts has no such tunable; did you mean min_cwnd?
}

func ExampleConfig_Plan() {
	c, err := config.Read(config.File)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := c.Plan(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range plan.Changes {
		fmt.Println(change) // + load dts: min_cwnd=1
	}
}

func ExampleConfig_Apply() {
	c, err := config.Read(config.File)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if _, err := c.Apply(ctx, config.Options{Done: func(change config.Change) { fmt.Println(change) }}); err != nil {
		log.Fatal(err)
	}
}
