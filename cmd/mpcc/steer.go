// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/figures"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/steer"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// defaultSize is that of a transfer of which nothing is known.
const defaultSize = "1M"

func newSteerCommand() *cobra.Command {
	var asJSON, restore, byPaths bool
	var size string
	var config steer.Config
	c := &cobra.Command{
		Use:   "steer",
		Short: "Keep connections off subflows that are not worth their energy, or by rules of paths",
		Long: `steer looks at the live subflows of a network namespace and at the energy profiles of
its interfaces, finds for each connection that sends the set of subflows that ES-MPTCP's objective prefers,
and makes the others backups (MP_PRIO). It needs no packet scheduler. It runs until it is ended, and then
clears every backup flag that it has set. The next steer first clears the flags that a killed one has left.

It prints a line for each flag it changes, with the reason.

It cannot schedule packets: a subflow is in use, or it is a backup and idle. A flag belongs to an endpoint
(ip mptcp endpoint) and holds for all connections that use its address: steer sets it if none of them wants
the subflow. In each connection the kernel applies it to the first subflow with that address only. Under a
userspace path manager (net.mptcp.pm_type=1) steer flags single subflows instead. While a connection over an address
is a download, its endpoint is no backup: it would be one for the peer, too. See docs/steer.md.

With --paths it goes by the rules of mpcc path set instead of by energy: it enforces rank, quota and exclusion, also
for what this host receives, from any peer, and with nothing loaded. Weights, caps and spilling over take the packet
scheduler prefer on the host that sends.`,
		Example: `  mpcc steer --size 20M
  mpcc steer --size auto
  mpcc steer --netns phone --lambda 0.01 --json
  mpcc steer --dry-run
  mpcc steer --paths`,
		Args: args(cobra.NoArgs),
	}
	netnsFlag(c, &config.Netns)
	f := c.Flags()
	f.Float64Var(&config.Objective.Lambda, "lambda", 0.001, "weight of 1 mJ against 1 Mbit/s; a larger one saves more energy")
	f.StringVar(&size, "size", defaultSize, "bytes of a transfer, with K, M or G for powers of 1024, or auto: what connections have sent before; a larger one saves more energy")
	f.BoolVar(&byPaths, "paths", false, "go by the rules of mpcc path set, instead of by energy")
	f.BoolVar(&config.DryRun, "dry-run", false, "change nothing, print what would be changed")
	f.BoolVar(&restore, "restore", false, "only clear the backup flags that a killed steer has left")
	f.BoolVarP(&asJSON, "json", "j", false, "write each change as a line of JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if restore && config.DryRun {
			return usageError("--restore clears flags, and --dry-run changes nothing: give only one of them")
		}
		if config.LearnSize = size == "auto"; config.LearnSize {
			size = defaultSize
		}
		for _, flag := range []string{"size", "lambda"} {
			if byPaths && f.Changed(flag) {
				return usageError("--%s is for energy, and --paths goes by rules: give only one of them", flag)
			}
		}
		bytes, err := parseSize(size)
		if err != nil {
			return usageError("--size %w", err)
		}
		if !(config.Objective.Lambda >= 0) {
			return usageError("--lambda %g: give 0 or more", config.Objective.Lambda)
		}
		config.Objective.Size = bytes * 8 / 1e6
		out := c.OutOrStdout()
		config.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
		config.Report = func(change steer.Change) {
			if asJSON {
				_ = json.NewEncoder(out).Encode(change)
				return
			}
			printChange(out, change)
		}
		if restore {
			n, err := steer.Restore(c.Context(), config)
			if err == nil && n == 0 && !asJSON {
				fmt.Fprintln(out, "no backup flags are left to clear")
			}
			return err
		}
		return runSteer(c.Context(), config, byPaths)
	}
	return c
}

func runSteer(ctx context.Context, config steer.Config, byPaths bool) error {
	// SIGPIPE comes where nobody reads the output any more.
	ctx, stop := signal.NotifyContext(ctx, unix.SIGHUP, unix.SIGPIPE)
	defer stop()
	run := steer.RunPaths
	if !byPaths {
		if err := steerable(ctx); err != nil {
			return err
		}
		run = steer.Run
	}
	err := run(ctx, config)
	where, option := "this network namespace", ""
	if config.Netns != "" {
		where, option = "network namespace "+config.Netns, " --netns "+config.Netns
	}
	switch {
	case errors.Is(err, steer.ErrNoProfile):
		return fmt.Errorf("no interface of %s has an energy profile; mpcc energy set IFACE PROFILE%s gives it one", where, option)
	case errors.Is(err, steer.ErrNoRule):
		return fmt.Errorf("no path of %s has a rule; mpcc path set PATH%s gives it one", where, option)
	}
	return err
}

// parseSize reads bytes, with K, M or G.
func parseSize(text string) (float64, error) {
	number, scale := text, 1.
	for i, unit := range []string{"K", "M", "G"} {
		if before, found := strings.CutSuffix(text, unit); found {
			number, scale = before, float64(uint64(1)<<(10*(i+1)))
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n > 0 && n*scale <= 1<<50) {
		return 0, fmt.Errorf("%s: give bytes above 0, such as 16K or 20M, or auto", text)
	}
	return n * scale, nil
}

// steerable returns an error unless a congestion control of mpcc is loaded or still has live subflows: steer
// decides by what they measure.
func steerable(ctx context.Context) error {
	loaded, err := loader.Loaded()
	if err != nil {
		return err
	}
	isCC := func(e catalog.Entry) bool { return e.Kind == catalog.CC }
	if slices.ContainsFunc(loaded, isCC) {
		return nil
	}
	snap, err := telemetry.Take(ctx)
	switch {
	case err != nil:
		return err
	case snap == nil:
		err = loader.ErrNothingLoaded
	case len(snap.Subflows) == 0:
		err = fmt.Errorf("%w: any congestion control of mpcc, and steer decides by what these measure; mpcc load NAME loads one", loader.ErrNotLoaded)
	}
	absent := func(f loader.Feature) bool { return !f.Present }
	if err != nil && slices.ContainsFunc(loader.Probe(catalog.CC), absent) {
		// The kernel lacks something that all of them need: any one tells what it is.
		err = loader.Check(catalog.Entries[slices.IndexFunc(catalog.Entries, isCC)])
		return fmt.Errorf("steer decides by what mpcc's congestion controls measure, and %w", err)
	}
	return err
}

func printChange(w io.Writer, c steer.Change) {
	what := "in use again"
	if c.Backup {
		what = "backup"
	}
	if c.DryRun {
		what = "would be " + what
	}
	subflow := ""
	if c.Token != "" {
		subflow = fmt.Sprintf(" > %s of %s", c.Remote, c.Token)
	}
	fmt.Fprintf(w, "%s %v%s: %s: %s\n", c.Interface, c.Local, subflow, what, cmp.Or(c.Rule, reason(c.Because)))
}

// reason returns in one line why the flag was changed.
func reason(v *steer.Verdict) string {
	switch {
	case v == nil:
		return "given back"
	case v.Download:
		return fmt.Sprintf("connection %v is a download: its peer is not kept off any subflow", v.Token)
	case v.Unpriced != "":
		return fmt.Sprintf("connection %v has no energy profile for %s", v.Token, v.Unpriced)
	}
	var objective, paths []string
	for i, o := range v.O {
		objective = append(objective, fmt.Sprintf("O%d %.4g", i+1, o))
	}
	for _, m := range v.Subflows {
		paths = append(paths, fmt.Sprintf("%s %.4g mJ/Mbit at %.3g Mbit/s", m.Interface, m.Cost, m.Rate))
	}
	return fmt.Sprintf("connection %v: k* = %d of %d for %s (%s), %s", v.Token, v.K, len(v.O), figures.Size(v.Size), strings.Join(objective, ", "), strings.Join(paths, ", "))
}
