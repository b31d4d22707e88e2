// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

// fixture is a run folder in the shape of scenario C: two algorithms, two numbers of users, three repeats.
// Goodputs are given in Mbit/s, so that every statistic can be worked out by hand.
type fixture struct {
	name, kernel string
	ccs, n1s     []string
	// multi[cc][n1] and single[cc][n1] list the repeats' goodput per user.
	multi, single map[string]map[string][]float64
	joules        map[string][]float64 // of the multipath users, per algorithm, one per user
	seed          uint64               // of the first repeat
	expect        result.Expect
}

func scenarioC() fixture {
	at := func(cc, n1 string) result.Point { return result.Point{"cc": cc, "n1": n1} }
	value := func(kind, of, cc, n1 string, v float64, source string) result.Value {
		return result.Value{Select: result.Select{Metric: "goodput", Of: of, At: at(cc, n1)}, Kind: kind, Value: v, Source: source}
	}
	return fixture{
		name: "scenario-c", kernel: "6.12.107+deb13-amd64", ccs: []string{"lia", "olia"}, n1s: []string{"10", "30"},
		multi: map[string]map[string][]float64{
			"lia":  {"10": {1.20, 1.30, 1.40}, "30": {1.15, 1.20, 1.25}},
			"olia": {"10": {1.10, 1.12, 1.14}, "30": {1.05, 1.10, 1.15}},
		},
		single: map[string]map[string][]float64{
			"lia":  {"10": {.68, .70, .72}, "30": {.40, .42, .44}},
			"olia": {"10": {.86, .88, .90}, "30": {.70, .71, .72}},
		},
		joules: map[string][]float64{"lia": {10, 11, 12, 13, 14, 30}, "olia": {8, 9, 10, 11, 12, 13}},
		expect: result.Expect{
			Values: []result.Value{
				value(result.Published, "multi", "lia", "10", 1.30, "table 3"), value(result.Published, "single", "lia", "10", .68, "table 3"),
				value(result.Published, "multi", "olia", "10", 1.11, "table 6"), value(result.Published, "single", "olia", "10", .88, "table 6"),
				value(result.Published, "multi", "lia", "30", 1.19, "table 3"), value(result.Published, "single", "lia", "30", .38, "table 3"),
				value(result.Published, "multi", "olia", "30", 1.10, "table 6"), value(result.Published, "single", "olia", "30", .72, "table 6"),
				value(result.Theory, "multi", "lia", "10", 1.296, "fixed point"), value(result.Theory, "single", "lia", "10", .704, "fixed point"),
				{Select: result.Select{Metric: "goodput", Of: "single", At: result.Point{"n1": "30"}}, Kind: result.Optimum, Value: .76, Source: "probing"},
			},
			Claims: []result.Claim{
				{Text: "OLIA leaves the single-path users more than LIA", Source: "§6", Select: result.Select{Metric: "goodput", Of: "single", At: result.Point{"cc": "olia"}},
					To: &result.Select{Metric: "goodput", Of: "single", At: result.Point{"cc": "lia"}}, Relation: result.Above, Bound: 1},
				{Text: "LIA's multipath users get 1.3 times the fair share", Source: "table 3", Select: result.Select{Metric: "goodput", Of: "multi", At: result.Point{"cc": "lia", "n1": "10"}},
					Relation: result.Within, Bound: 1.3, Margin: .05},
				{Text: "OLIA takes more than LIA", Source: "nobody", Select: result.Select{Metric: "goodput", Of: "multi", At: result.Point{"cc": "olia", "n1": "30"}},
					To: &result.Select{Metric: "goodput", Of: "multi", At: result.Point{"cc": "lia"}}, Relation: result.Above, Bound: 1.1},
				{Text: "Balia does well", Source: "nobody", Select: result.Select{Metric: "goodput", Of: "multi", At: result.Point{"cc": "balia"}}, Relation: result.Above, Bound: 1},
			},
			Figures: []result.Figure{
				{Title: "Goodput of both classes", Source: "table 3", Kind: result.Bars, Select: result.Select{Metric: "goodput"}, Over: "n1"},
				{Title: "Single-path goodput as users come", Kind: result.Lines, Select: result.Select{Metric: "goodput", Of: "single"}, Over: "n1"},
				{Title: "Energy of the multipath users", Source: "paper 1, fig 6", Kind: result.Box, Select: result.Select{Metric: "energy", Of: "multi"}, Over: "n1"},
				{Title: "Window", Source: "paper 3, figs 6–8", Kind: result.Traces, Select: result.Select{Metric: "cwnd", At: result.Point{"n1": "10"}}},
				{Title: "Sequence numbers", Source: "paper 3, figs 6–8", Kind: result.Traces, Select: result.Select{Metric: "sequence", At: result.Point{"n1": "10"}}},
			},
		},
	}
}

func (f fixture) write(t testing.TB, path string) {
	t.Helper()
	folder, err := result.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r := result.Result{
		Tool: "v1", Kernel: f.kernel, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seed: 1, Expect: f.expect,
		Scenario: result.Scenario{Name: f.name, Title: "Multipath users beside single-path users", Source: "paper 4, §6",
			Notes: []string{"RED of the kernel has one segment"}, YAML: "name: " + f.name + "\n"},
		Sweep: []result.Axis{{Name: "cc", Values: f.ccs}, {Name: "n1", Values: f.n1s}},
	}
	rate, slower := 10e6, 9.9e6
	for _, cc := range f.ccs {
		for _, n1 := range r.Sweep[1].Values {
			for repeat, goodput := range f.multi[cc][n1] {
				run := result.Run{
					Point: result.Point{"cc": cc, "n1": n1}, Repeat: repeat, Seed: f.seed + uint64(repeat), Warmup: 20, Measured: 100,
					Links: []result.Link{{Name: "ap2", From: "r2", To: "s", Asked: result.Quality{Rate: &rate}, Measured: result.Quality{Rate: &slower},
						Queue: result.Queue{Sent: 9800, Dropped: 200}}},
				}
				multi := result.Class{Name: "multi", Multipath: true, CC: cc}
				for _, j := range f.joules[cc] {
					multi.Users = append(multi.Users, result.User{Bytes: uint64(math.Round(goodput * 100 / 8 * 1e6)), Active: 100,
						Energy: &result.Energy{Joules: j + float64(repeat), Source: result.SourceModel}})
				}
				single := result.Class{Name: "single", CC: "cubic", Users: []result.User{
					{Bytes: uint64(math.Round(f.single[cc][n1][repeat] * 100 / 8 * 1e6)), Active: 100},
				}}
				run.Classes = []result.Class{multi, single}
				if repeat == 0 {
					f.samples(t, folder, &run, len(r.Runs))
				}
				r.Runs = append(r.Runs, run)
			}
		}
	}
	if err := folder.Write(&r); err != nil {
		t.Fatal(err)
	}
}

// samples writes 120 s of three sawteeth, every 100 ms.
func (f fixture) samples(t testing.TB, folder *result.Folder, run *result.Run, index int) {
	w, err := folder.Samples(run, index)
	if err != nil {
		t.Fatal(err)
	}
	subflows := []struct {
		class, dev string
		id, period int
		peak       float64
	}{{"multi", "eth0", 1, 170, 90}, {"multi", "eth1", 2, 230, 60}, {"single", "eth0", 1, 310, 150}}
	bytes := make([]float64, len(subflows))
	for i := range 1200 {
		for k, s := range subflows {
			cwnd := s.peak * (.5 + .5*float64(i%s.period)/float64(s.period))
			bytes[k] += cwnd * 1448
			err := w.Write(result.Sample{Time: float64(i) / 10, Class: s.class, Subflow: s.id, Interface: s.dev, Cwnd: uint32(cwnd),
				SRTT: 100, Rate: cwnd * 1448 * 80, Bytes: uint64(bytes[k])})
			if err != nil {
				t.Fatal(fmt.Errorf("sample %d: %w", i, err))
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
