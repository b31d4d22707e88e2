// SPDX-License-Identifier: Apache-2.0

package steer_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/mpcc/mpcc/pkg/steer"
)

// A small transfer is worth both interfaces of a phone, a large one only the cheaper. The figures are those of
// ES-MPTCP's WLAN and 3G.
func ExampleObjective_Choose() {
	paths := []steer.Path{
		{Rate: 5, Slope: 122.1, Base: 817.9},   // 3G
		{Rate: 6.607, Slope: 137, Base: 132.9}, // WLAN
	}
	for _, megabit := range []float64{8, 160} {
		c := steer.Objective{Lambda: 0.001, Size: megabit}.Choose(paths)
		fmt.Printf("%g Mbit: paths %v\n", megabit, c.Best())
	}
	// Output:
	// 8 Mbit: paths [1 0]
	// 160 Mbit: paths [1]
}

// Steer the caller's namespace for transfers of 160 Mbit, until the context ends.
func ExampleRun() {
	err := steer.Run(context.Background(), steer.Config{
		Objective: steer.Objective{Lambda: 0.001, Size: 160},
		Report:    func(c steer.Change) { fmt.Println(c.Interface, c.Local, "backup:", c.Backup) },
		Log:       slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
}
