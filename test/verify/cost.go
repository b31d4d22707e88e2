// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/test/benched"
	"github.com/mpcc/mpcc/test/verified"
)

// runCost measures what mpcc costs on this machine, which should have nothing else to do.
func runCost(ctx context.Context, b *bench, cells []verified.Cell) error {
	for _, c := range cells {
		r := verified.Record{State: verified.Passed, Kernel: ownRelease()}
		var err error
		switch c.Row {
		case verified.CostControls:
			_, err = b.makes(ctx, "bench", "BENCH_FLAGS=-json "+benched.TimesFile)
		case verified.CostInstructions:
			if _, err = b.makes(ctx, "bench-instructions"); err == nil {
				r.Kernel, err = countedOn(b.root)
			}
		case verified.CostExporter:
			var printed string
			if printed, err = b.makes(ctx, "bench-scrape"); err == nil {
				r.Figures = benchmarks(printed)
			}
		case verified.CostCommands:
			if _, err = b.makes(ctx, "build"); err == nil {
				r.Figures, err = timeCommands(ctx, filepath.Join(b.root, "bin", "mpcc"))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Row, err)
		}
		if err := b.keep(verified.Cost, c, r); err != nil {
			return err
		}
	}
	return nil
}

// countedOn returns the release of the kernel on which make bench-instructions has counted.
func countedOn(root string) (string, error) {
	r, err := benched.Read(filepath.Join(root, benched.InstructionsFile))
	if err != nil {
		return "", err
	}
	return r.Kernel, nil
}

// benchmarks reads what go test -bench prints: of each benchmark every value with its unit.
func benchmarks(printed string) map[string]float64 {
	figures := map[string]float64{}
	for line := range strings.Lines(printed) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(words[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i] // the number of processors
			}
		}
		for i := 2; i+1 < len(words); i += 2 {
			if value, err := strconv.ParseFloat(words[i], 64); err == nil {
				figures[name+" "+words[i+1]] = value
			}
		}
	}
	return figures
}

// timeCommands returns the median time of commands, in milliseconds.
func timeCommands(ctx context.Context, mpcc string) (map[string]float64, error) {
	const times = 9
	took := map[string][]float64{}
	for range times {
		for _, command := range []string{"version", "load lia", "status", "switch lia", "unload lia"} {
			start := time.Now()
			out, err := exec.CommandContext(ctx, mpcc, strings.Fields(command)...).CombinedOutput()
			if err != nil {
				return nil, fmt.Errorf("mpcc %s: %w: %s", command, err, out)
			}
			took["mpcc "+command] = append(took["mpcc "+command], float64(time.Since(start).Microseconds())/1000)
		}
	}
	figures := map[string]float64{}
	for command, all := range took {
		slices.Sort(all)
		figures[command] = all[len(all)/2]
	}
	return figures, nil
}
