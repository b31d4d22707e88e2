// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/test/kernels"
	"github.com/mpcc/mpcc/test/verified"
)

// runSweep measures goodputs, once each in VMs in their own time or several times in the simulator: neither a busy host
// nor the VM beside it changes a number.
func runSweep(part string) func(context.Context, *bench, []verified.Cell) error {
	return func(ctx context.Context, b *bench, cells []verified.Cell) error {
		if _, err := b.makes(ctx, "build"); err != nil {
			return err
		}
		return each(ctx, cells, func(ctx context.Context, c verified.Cell) error {
			done, err := b.measure(ctx, verified.Sweeps[part], c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name(), err)
			}
			if runs := max(1, verified.Sweeps[part].Simulated); len(done.Runs) != runs {
				return fmt.Errorf("%s: %d runs, want %d", c.Name(), len(done.Runs), runs)
			}
			r := carried(done.Runs)
			r.Kernel = done.Kernel
			return b.keep(part, c, r)
		})
	}
}

// carried returns the mean goodputs of runs. If one has no goodput, or its numbers are wrong, they have failed.
func carried(runs []result.Run) verified.Record {
	r := verified.Record{State: verified.Passed, Figures: map[string]float64{}}
	classes := map[string]string{"user": verified.GoodputOwn, "others": verified.GoodputOthers}
	var faults []string
	for _, run := range runs {
		own := 0.
		for _, m := range run.Measures {
			if figure := classes[m.Of]; m.Metric == "goodput" && figure != "" {
				r.Figures[figure] += m.Value / float64(len(runs))
				if figure == verified.GoodputOwn {
					own = m.Value
				}
			}
		}
		if len(run.Faults) > 0 || own == 0 {
			r.State = verified.Failed
			faults = append(faults, run.Faults...)
		}
	}
	r.Said = strings.Join(faults, "; ")
	return r
}

// measure runs the scenario of a sweep in the network of a cell, with what the cell's column names.
func (b *bench) measure(ctx context.Context, s verified.Sweep, c verified.Cell) (*result.Result, error) {
	out, err := os.MkdirTemp("", "mpcc-sweep")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	folder := filepath.Join(out, "runs")
	network, cc := verified.Setup(c.Row)
	control, scheduler := s.Chosen(c.Column, cc)
	args := []string{"run", filepath.Join(b.root, s.File), "--set", s.Rows + "=" + network, "--out", folder, "--cc", control}
	if scheduler != "" {
		args = append(args, "--sched", scheduler)
	}
	if s.Simulated > 0 {
		args = append(args, "--sim", "--repeats", strconv.Itoa(s.Simulated))
	} else {
		args = append(args, "--vm="+kernels.Labels()[0], "--repeats", "1")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.root, "bin", "mpcc"), args...)
	cmd.Dir = b.root
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return result.Read(folder)
}
