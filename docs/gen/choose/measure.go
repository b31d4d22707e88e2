// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/mpcc/mpcc/internal/choose"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// key is a quantity of a contestant in a cell.
type key struct {
	cell, metric string
	choose.Contestant
}

// measured has the value of each repeat, by its seed, and the version of mpcc that measured it.
type measured map[key]*values

type values struct {
	of   map[string]float64
	mpcc string
}

// wanted are the metrics that the page is made of, as repeats.csv has them, and what the page calls them.
var wanted = map[[2]string]string{
	{"goodput", "user"}:        choose.Goodput,
	{"completion", "user"}:     choose.Completion,
	{"srtt_95", "user"}:        choose.RTT,
	{"goodput", "others"}:      choose.Others,
	{"energy_per_bit", "user"}: choose.Energy,
	{"path_data", "user/lte"}:  choose.Metered,
}

// nobody is the value of cc at the points where the others are by themselves.
const nobody = "none"

// read adds what a folder of mpcc run has measured.
func (m measured) read(folder string) error {
	path := filepath.Join(folder, result.RepeatsFile)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(rows) < 2 {
		return fmt.Errorf("%s has no runs", path)
	}
	head := rows[0]
	column := func(row []string, name string) string {
		if i := slices.Index(head, name); i >= 0 {
			return row[i]
		}
		return ""
	}
	version, err := versionOf(folder)
	if err != nil {
		return err
	}
	first := slices.Index(head, "faults") + 1 // where the variables begin
	for _, row := range rows[1:] {
		metric, ok := wanted[[2]string{column(row, "metric"), column(row, "of")}]
		if !ok || column(row, "faults") != "" {
			continue
		}
		scenario, err := scenarioOf(folder)
		if err != nil {
			return err
		}
		cell := []string{scenario}
		for i := first; i < len(head); i++ {
			if !slices.Contains([]string{"cc", "scheduler", "tuning"}, head[i]) {
				cell = append(cell, row[i])
			}
		}
		k := key{strings.Join(cell, "-"), metric, choose.Contestant{
			CC: column(row, "cc"), Scheduler: column(row, "scheduler"), Tuning: column(row, "tuning"),
		}}
		if metric == choose.Metered && k.cell != "metered" {
			continue
		}
		value, err := strconv.ParseFloat(column(row, "value"), 64)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if m[k] == nil {
			m[k] = &values{of: map[string]float64{}}
		}
		m[k].of[column(row, "seed")], m[k].mpcc = value, version
	}
	// Of files goodput says the same again, and their samples are too few for an RTT.
	for k := range m {
		for _, metric := range []string{choose.Goodput, choose.RTT} {
			if k.metric == choose.Completion {
				delete(m, key{k.cell, metric, k.Contestant})
			}
		}
	}
	return nil
}

// figures returns the means, and the ratios to the kernel's own. Intervals of a cell's ratios are right for all of them
// together, with 95 %: each is one of Student's t by Bonferroni's division.
func (m measured) figures() []choose.Figure {
	contestants := map[[2]string]int{}
	for k := range m {
		if k.CC != nobody {
			contestants[[2]string{k.cell, k.metric}]++
		}
	}
	var all []choose.Figure
	for k, v := range m {
		if k.CC == nobody {
			continue
		}
		f := choose.Figure{
			Cell: k.cell, Metric: k.metric, Contestant: k.Contestant, Repeats: len(v.of), Mean: mean(v.of), Mpcc: v.mpcc,
		}
		together := max(1, contestants[[2]string{k.cell, k.metric}]-1)
		f.Ratio, f.Low, f.High = math.NaN(), math.NaN(), math.NaN()
		if kernel := m[key{k.cell, k.metric, choose.Kernel}]; kernel != nil {
			f.Ratio, f.Low, f.High = ratio(v.of, kernel.of, together)
		}
		all = append(all, f)
		nobodys := key{k.cell, k.metric, choose.Contestant{CC: nobody, Scheduler: "default", Tuning: "default"}}
		if alone := m[nobodys]; alone != nil {
			f.Metric = choose.Harm
			f.Ratio, f.Low, f.High = ratio(v.of, alone.of, together)
			f.Mean = 100 * (1 - f.Ratio)
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b choose.Figure) int {
		return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Tuning, b.Tuning),
			cmp.Compare(a.Scheduler, b.Scheduler), cmp.Compare(a.CC, b.CC))
	})
	return all
}

func mean(values map[string]float64) float64 {
	sum := 0.0
	for _, seed := range sorted(values) {
		sum += values[seed]
	}
	return sum / float64(len(values))
}

// sorted returns the seeds in an order: sums of floats depend on it.
func sorted(values map[string]float64) []string {
	var seeds []string
	for s := range values {
		seeds = append(seeds, s)
	}
	slices.Sort(seeds)
	return seeds
}

// ratio returns the mean of the ratios in each repeat, of logarithms, and its interval. Where nothing was ever used of what
// the kernel's own uses, it is 0 without any doubt.
func ratio(values, to map[string]float64, together int) (mean, low, high float64) {
	var logs []float64
	nothing := 0
	for _, seed := range sorted(values) {
		switch base := to[seed]; {
		case base > 0 && values[seed] > 0:
			logs = append(logs, math.Log(values[seed]/base))
		case base > 0:
			nothing++
		}
	}
	if len(logs) == 0 && nothing > 1 {
		return 0, 0, 0
	}
	if len(logs) < 2 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	m, deviation := stat.MeanStdDev(logs, nil)
	t := distuv.StudentsT{Sigma: 1, Nu: float64(len(logs) - 1)}.Quantile(1 - 0.05/2/float64(together))
	half := t * stat.StdErr(deviation, float64(len(logs)))
	return math.Exp(m), math.Exp(m - half), math.Exp(m + half)
}

// table returns the figures as cells.csv has them.
func table(figures []choose.Figure) []byte {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	_ = w.Write(choose.Columns) // into memory
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	for _, f := range figures {
		_ = w.Write([]string{f.Cell, f.CC, f.Scheduler, f.Tuning, f.Metric, strconv.Itoa(f.Repeats),
			number(f.Mean), number(f.Ratio), number(f.Low), number(f.High), f.Mpcc})
	}
	w.Flush()
	return text.Bytes()
}

// scenarioOf returns the scenario's name, from its results, without choose-.
func scenarioOf(folder string) (string, error) {
	name := filepath.Base(folder)
	after, ok := strings.CutPrefix(name, "choose-")
	if !ok {
		return "", fmt.Errorf("%s: the folder is to be called choose-NAME, by the scenario", folder)
	}
	before, _, _ := strings.Cut(after, "-")
	return before, nil
}

// versionOf returns the version of mpcc that a folder's results are of.
func versionOf(folder string) (string, error) {
	path := filepath.Join(folder, "results.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var r struct {
		Tool string `json:"tool"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return r.Tool, nil
}
