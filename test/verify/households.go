// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/test/kernels"
	"github.com/mpcc/mpcc/test/verified"
)

// runHouseholds measures the goodput of congestion controls in households, once each, in VMs in their own time: a busy host
// changes no number.
func runHouseholds(ctx context.Context, b *bench, cells []verified.Cell) error {
	if _, err := b.makes(ctx, "build"); err != nil {
		return err
	}
	for _, row := range byRow(cells) {
		var controls []string
		for _, c := range row {
			controls = append(controls, c.Column)
		}
		runs, err := b.household(ctx, row[0].Row, controls)
		if err != nil {
			return fmt.Errorf("%s: %w", row[0].Row, err)
		}
		for _, c := range row {
			i := slices.IndexFunc(runs.Runs, func(run result.Run) bool { return run.Point["cc"] == c.Column })
			if i < 0 {
				return fmt.Errorf("%s: it was not run with %s", c.Row, c.Column)
			}
			r := carried(runs.Runs[i])
			r.Kernel = runs.Kernel
			if err := b.keep(verified.Households, c, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// carried returns the goodputs of a run. One without goodput, or whose numbers are wrong, has failed.
func carried(run result.Run) verified.Record {
	r := verified.Record{State: verified.Passed, Figures: map[string]float64{}}
	for class, figure := range map[string]string{"user": verified.HouseholdOwn, "others": verified.HouseholdOthers} {
		for _, m := range run.Measures {
			if m.Metric == "goodput" && m.Of == class {
				r.Figures[figure] = m.Value
			}
		}
	}
	if len(run.Faults) > 0 || r.Figures[verified.HouseholdOwn] == 0 {
		r.State, r.Said = verified.Failed, strings.Join(run.Faults, "; ")
	}
	return r
}

// household runs the scenario in one home.
func (b *bench) household(ctx context.Context, home string, controls []string) (*result.Result, error) {
	out, err := os.MkdirTemp("", "mpcc-household")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	folder := filepath.Join(out, "runs")
	cmd := exec.CommandContext(ctx, filepath.Join(b.root, "bin", "mpcc"), "run", filepath.Join(b.root, verified.HouseholdsFile),
		"--vm="+kernels.Labels()[0], "--repeats", "1", "--set", "home="+home, "--cc", strings.Join(controls, ","), "--out", folder)
	cmd.Dir = b.root
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return result.Read(folder)
}
