// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
)

// Attach an algorithm, make it the default of this network namespace, and detach it again.
func ExampleLoad() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	olia, err := catalog.Find("olia")
	if err != nil {
		log.Fatal(err)
	}
	options := loader.Options{Default: true, Set: map[string]string{loader.Paper: "", "metric": "square"}}
	done, err := loader.Load(ctx, olia, options)
	if errors.Is(err, loader.ErrUnsupported) {
		fmt.Println(err) // says what this kernel lacks
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("room for %d live subflows\n", done.Maps.Subflows)

	unloaded, err := loader.Unload(ctx, olia)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range unloaded.Restored {
		fmt.Println("the default is", d.Original, "again")
	}
}

// Say what sending over a wireless interface costs, in a namespace of ip netns.
func ExampleSetProfile() {
	wlan := loader.Interface{Netns: "phone", Name: "wlan0"}
	err := loader.SetProfile(context.Background(), wlan, loader.Profile{Uplink: 283.17, Downlink: 137.01, Base: 132.86})
	if err != nil {
		log.Fatal(err)
	}
}

// List the tunables of an algorithm, which Options.Set can change.
func ExampleTunables() {
	roundrobin, err := catalog.Find("roundrobin")
	if err != nil {
		log.Fatal(err)
	}
	tunables, err := loader.Tunables(roundrobin)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tunables {
		fmt.Printf("%s = %s (%s)\n", t.Name, t.Default, t.Range())
	}
	// Output:
	// cwnd_limited = on (off|on)
	// num_segments = 45 (1..255 segments)
}

// Ask LIA what it would do with two subflows.
func ExampleEvaluator() {
	lia, err := catalog.Find("lia")
	if err != nil {
		log.Fatal(err)
	}
	evaluator, err := loader.NewEvaluator(lia, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer evaluator.Close()
	out, err := evaluator.Eval(loader.Input{Subflows: []loader.Numbers{
		{"cwnd": 10, "srtt_us": 50_000}, {"cwnd": 20, "srtt_us": 100_000},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range out.Subflows {
		fmt.Printf("%.4f packets more for each acknowledged, %g after a loss\n", s["increase"], s["after_loss"])
	}
}
