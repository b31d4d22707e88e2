// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// older are the experiments of docs/results that were run before mpcc kept the repeats. Who runs one again takes it off.
var older = []string{
	"datacenter", "delay-difference", "household", "mpcubic-fairness", "plain", "power", "scenario-a",
	"scenario-b", "scenario-c", "shared-bottlenecks", "traffic-shift", "wifi-4g", "wlan-3g", "wlan-wlan",
}

const keptResults = "../../../docs/results/"

// Every interval on the pages of docs/results, and in every claim, is what the CSV of repeats gives, and every verdict
// is what the rules give.
func TestKeptResults(t *testing.T) {
	var without []string
	for _, path := range must(filepath.Glob(keptResults + "*.json")) {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			r, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			rejudge(t, r)
			file, err := os.Open(keptResults + name + ".csv")
			if os.IsNotExist(err) {
				without = append(without, name)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			recompute(t, r, must(csv.NewReader(file).ReadAll()))
		})
	}
	if !slices.Equal(without, older) {
		t.Errorf("there is no CSV of %v; it should be none of %v", without, older)
	}
}

// The report of a run folder is what the folder's CSV gives, several joined too; and a wrong figure is found.
func TestReportIsWhatItsRepeatsGive(t *testing.T) {
	first, further := scenarioC(), scenarioC()
	further.seed = 100
	further.multi["lia"]["10"] = []float64{1.5, 1.6, 1.45}
	paths := folders(t, first, further)
	r, err := Join(paths...)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.WriteRepeats(&text); err != nil {
		t.Fatal(err)
	}
	rows := must(csv.NewReader(strings.NewReader(text.String())).ReadAll())
	rejudge(t, r)
	recompute(t, r, rows)

	alone := must(Load(paths[0]))
	file := must(os.Open(filepath.Join(paths[0], result.RepeatsFile)))
	defer file.Close()
	recompute(t, alone, must(csv.NewReader(file).ReadAll()))
	if wrong := differences(r, rows[:len(rows)-1]); len(wrong) == 0 {
		t.Error("a figure that is missing goes unseen")
	}
}

// rejudge fails the test if a verdict is not what the rules make of the intervals.
func rejudge(t *testing.T, r *Report) {
	t.Helper()
	text := must(json.Marshal(r))
	var again Report
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	for i := range r.Experiments {
		was, e := r.Experiments[i].Claims, &again.Experiments[i]
		claims := make([]result.Claim, len(e.Claims))
		for k := range e.Claims {
			claims[k] = e.Claims[k].Claim
		}
		for _, run := range e.Runs {
			var of, at []int
			var checks []Check
			for k, v := range e.Claims {
				for j, check := range v.Checks {
					if check.Run == run.Label {
						of, at, checks = append(of, k), append(at, j), append(checks, check)
					}
				}
			}
			decide(claims, of, checks)
			for j, check := range checks {
				if recorded := was[of[j]].Checks[at[j]]; check.Outcome != recorded.Outcome {
					t.Errorf("%s, claim %q at %v is %s by the rules, %s as recorded", e.Scenario.Name, claims[of[j]].Text,
						check.Point, check.Outcome, recorded.Outcome)
				}
			}
		}
		for k := range e.Claims {
			if e.Claims[k].whole(); e.Claims[k].Outcome != was[k].Outcome || !slices.Contains(judge.Verdicts, was[k].Outcome) {
				t.Errorf("%s, claim %q is %s by the rules, %s as recorded", e.Scenario.Name, claims[k].Text, e.Claims[k].Outcome, was[k].Outcome)
			}
		}
	}
}

func recompute(t *testing.T, r *Report, rows [][]string) {
	t.Helper()
	for _, wrong := range differences(r, rows) {
		t.Error(wrong)
	}
}

// differences computes all means and intervals of a report of one experiment from the CSV of its repeats, without the
// code that made them, and names those that differ.
func differences(r *Report, rows [][]string) (wrong []string) {
	e := r.Experiments[0]
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	key := func(run, metric, of string, value func(axis string) string) string {
		if len(e.Runs) == 1 {
			run = "" // a folder's own CSV has the scenario's name in place of the folder's
		}
		parts := []string{run, metric, of}
		for _, axis := range e.Axes {
			parts = append(parts, value(axis))
		}
		return strings.Join(parts, "|")
	}
	byKey := map[string]map[string]float64{} // by repeat
	for _, row := range rows[1:] {
		if row[column["faults"]] != "" {
			continue
		}
		k := key(row[column["run"]], row[column["metric"]], row[column["of"]], func(axis string) string { return row[column[axis]] })
		if byKey[k] == nil {
			byKey[k] = map[string]float64{}
		}
		byKey[k][row[column["repeat"]]] = must(strconv.ParseFloat(row[column["value"]], 64))
	}
	values := func(run, metric, of string, at result.Point) map[string]float64 {
		return maps.Clone(byKey[key(run, metric, of, func(axis string) string { return at[axis] })])
	}
	same := func(what string, got Estimate, from map[string]float64) {
		n, mean, half := len(from), 0.0, 0.0
		for _, v := range from {
			mean += v / float64(n)
		}
		for _, v := range from {
			half += (v - mean) * (v - mean)
		}
		// Student's t that leaves 2.5 % on one side, from a printed table.
		t := []float64{0, 12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788}
		if n > 1 {
			degrees := n - 1
			const z = 1.95996 // beyond the table the normal distribution's, with two terms of Fisher's expansion
			nu := float64(degrees)
			quantile := z + (z*z*z+z)/(4*nu) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*nu*nu)
			if degrees < len(t) {
				quantile = t[degrees]
			}
			half = quantile * math.Sqrt(half/float64(n-1)/float64(n))
		}
		if got.N != n || math.Abs(got.Mean-mean) > 1e-6*math.Abs(mean) || math.Abs(got.half()-half) > 1e-3*half+1e-9*math.Abs(mean) {
			wrong = append(wrong, what+": the report has "+got.String()+", the repeats give "+number(mean)+" ± "+number(half))
		}
	}
	for _, row := range e.Rows {
		if m, _ := result.FindMetric(row.Metric); m.Of == result.OfLink && !row.Main {
			continue // the CSV has no links that the scenario does not speak of
		}
		for i, run := range e.Runs {
			same(row.Metric+" of "+row.Of+" at "+pointText(row.Point), row.Ours[i], values(run.Label, row.Metric, row.Of, row.Point))
		}
	}
	for _, v := range e.Claims {
		for _, check := range v.Checks {
			from := values(check.Run, v.Metric, v.Of, check.Point)
			if v.To != nil {
				base := maps.Clone(check.Point)
				maps.Copy(base, v.Base().At)
				divisors := values(check.Run, v.To.Metric, v.To.Of, base)
				maps.DeleteFunc(from, func(repeat string, _ float64) bool { return divisors[repeat] == 0 })
				for repeat := range from {
					from[repeat] /= divisors[repeat]
				}
			}
			same("claim "+v.Text, check.Ours, from)
		}
	}
	return wrong
}
