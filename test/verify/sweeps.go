// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/test/kernels"
	"github.com/mpcc/mpcc/test/verified"
)

// runSweep measures goodputs, once each, in VMs in their own time: neither a busy host nor the VM beside it changes a number.
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
			if len(done.Runs) != 1 {
				return fmt.Errorf("%s: %d runs", c.Name(), len(done.Runs))
			}
			r := carried(done.Runs[0])
			r.Kernel = done.Kernel
			return b.keep(part, c, r)
		})
	}
}

// carried returns the goodputs of a run. One without goodput, or whose numbers are wrong, has failed.
func carried(run result.Run) verified.Record {
	r := verified.Record{State: verified.Passed, Figures: map[string]float64{}}
	for class, figure := range map[string]string{"user": verified.GoodputOwn, "others": verified.GoodputOthers} {
		for _, m := range run.Measures {
			if m.Metric == "goodput" && m.Of == class {
				r.Figures[figure] = m.Value
			}
		}
	}
	if len(run.Faults) > 0 || r.Figures[verified.GoodputOwn] == 0 {
		r.State, r.Said = verified.Failed, strings.Join(run.Faults, "; ")
	}
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
	chosen := []string{"--cc", c.Column}
	if s.Kind == catalog.Sched {
		chosen = []string{"--cc", cc, "--sched", c.Column}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.root, "bin", "mpcc"), append([]string{"run", filepath.Join(b.root, s.File),
		"--vm=" + kernels.Labels()[0], "--repeats", "1", "--set", s.Rows + "=" + network, "--out", folder}, chosen...)...)
	cmd.Dir = b.root
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return result.Read(folder)
}
