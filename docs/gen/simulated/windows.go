// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/report"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// settled is from when on windows are compared: before, they are those of slow start.
const (
	settled = 10.0 // s
	sampled = 0.1
)

// distances returns how far the distributions of windows over time are from the kernel's, by Kolmogorov's distance, for
// the subflows of whose windows the kernel's report has a plot. That is of one run: the distances of the simulator's runs
// from each other say what is to be expected of runs that differ in chance alone.
func distances(name, folder string, r *result.Result) (figures []figure, err error) {
	kernel, err := report.Read(filepath.Join(kept, name+".json"))
	if err != nil {
		return nil, err
	}
	for _, plot := range kernel.Experiments[0].Plots {
		if plot.Kind != "traces" || !strings.Contains(plot.Y, "window") {
			continue
		}
		runs := map[string][][]float64{}
		at := ""
		for i := range r.Runs {
			one := &r.Runs[i]
			if at = describe(one.Point); !within(plot.At, at) {
				continue
			}
			of, err := windowsOf(filepath.Join(folder, one.Samples))
			if err != nil {
				return nil, err
			}
			for subflow, values := range of {
				runs[subflow] = append(runs[subflow], values)
			}
		}
		for _, series := range plot.Series {
			theirs := values(series.Trace)
			ours := runs[series.Name]
			if len(theirs) == 0 || len(ours) < 2 {
				continue
			}
			var from, mutual []float64
			for i, one := range ours {
				from = append(from, kolmogorov(theirs, one))
				for _, other := range ours[:i] {
					mutual = append(mutual, kolmogorov(one, other))
				}
			}
			slices.Sort(from)
			slices.Sort(mutual)
			point := describe(plot.At)
			figures = append(figures, figure{
				name, windows, series.Name, point, len(from), quantile(from, 0.5), quantile(mutual, 0.05), quantile(mutual, 0.95),
			})
		}
	}
	return figures, nil
}

// values returns the trace's values at the times at which windows are sampled. Traces are kept thinned, to peaks.
func values(trace report.Trace) (all []float64) {
	at := settled
	for i := 1; i < len(trace); i++ {
		from, to := trace[i-1], trace[i]
		for ; at <= to.X; at += sampled {
			if at >= from.X {
				all = append(all, from.Y+(to.Y-from.Y)*(at-from.X)/(to.X-from.X))
			}
		}
	}
	return all
}

func quantile(sorted []float64, q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)] }

// windowsOf reads the windows of each subflow, by class and interface.
func windowsOf(samples string) (map[string][]float64, error) {
	f, err := os.Open(samples)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	of := map[string][]float64{}
	for _, row := range rows[1:] {
		at, errAt := strconv.ParseFloat(row[column["time_s"]], 64)
		cwnd, err := strconv.ParseFloat(row[column["cwnd_packets"]], 64)
		if err := cmp.Or(errAt, err); err != nil {
			return nil, err
		}
		if at >= settled {
			name := row[column["class"]] + ", " + row[column["interface"]]
			of[name] = append(of[name], cwnd)
		}
	}
	return of, nil
}

// kolmogorov returns the greatest difference of two samples' distributions.
func kolmogorov(a, b []float64) (most float64) {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		v := min(a[i], b[j])
		for i < len(a) && a[i] == v {
			i++
		}
		for j < len(b) && b[j] == v {
			j++
		}
		d := float64(i)/float64(len(a)) - float64(j)/float64(len(b))
		most = max(most, d, -d)
	}
	return most
}
