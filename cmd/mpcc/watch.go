// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/internal/watch"
	"github.com/mpcc/mpcc/internal/watch/screen"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// shortestInterval is one at which reading 32768 subflows leaves time for something else.
const shortestInterval = 100 * time.Millisecond

func newWatchCommand() *cobra.Command {
	var w watch.Watch
	var interval time.Duration
	var count int
	var asJSON bool
	c := &cobra.Command{
		Use:   "watch",
		Short: "Watch connections and their subflows",
		Long: `watch shows the live connections that run congestion controls of mpcc, and expands them to
their subflows: window, RTT, rate, the algorithm's coupling quantity, power and energy, and how
the rate went lately. The keys are below the table; ? tells more. Without a terminal, or with
--count, it writes a table at each interval; with --json a line of JSON. docs/watch.md has the
columns, their units and the JSON. While nothing is loaded, it says so and goes on looking.`,
		Args: args(cobra.NoArgs),
	}
	f := c.Flags()
	f.DurationVar(&interval, "interval", time.Second, "time between two refreshes")
	f.StringVarP(&w.Netns, "netns", "n", "", "show this network namespace only (as ip netns names it)")
	f.IntVar(&count, "count", 0, "write so many tables, or lines of JSON, and end")
	f.BoolVarP(&asJSON, "json", "j", false, "write a line of JSON at each interval")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case interval < shortestInterval:
			return usageError("--interval %v: give at least %v", interval, shortestInterval)
		case count < 0 || count == 0 && f.Changed("count"):
			return usageError("--count %d: give 1 or more", count)
		}
		if w.Netns != "" {
			if _, err := netns.Named(w.Netns); err != nil {
				return err
			}
		}
		out := c.OutOrStdout()
		switch {
		case asJSON:
			write := func() error { return w.WriteJSON(out, time.Now()) }
			return w.Repeat(c.Context(), readWatched, interval, count, write)
		case count > 0 || !onScreen(os.Stdout):
			write := func() error { return w.WriteTable(out, time.Now()) }
			return w.Repeat(c.Context(), readWatched, interval, count, write)
		}
		return screen.Run(c.Context(), &w, readWatched, interval)
	}
	return c
}

// onScreen reports whether out is a terminal whose cursor can be moved.
func onScreen(out *os.File) bool {
	return term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"
}

func readWatched(ctx context.Context) (r watch.Reading, err error) {
	loaded, err := loader.Loaded()
	if err != nil {
		return r, err
	}
	for _, e := range loaded {
		r.Loaded = append(r.Loaded, e.ID())
	}
	objects, err := loader.LoadedObjects()
	if err != nil {
		return r, err
	}
	for _, o := range objects {
		r.Loaded = append(r.Loaded, o.Entry().ID())
	}
	r.Snapshot, err = telemetry.Take(ctx)
	return r, err
}
