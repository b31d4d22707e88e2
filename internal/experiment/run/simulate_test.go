// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

const simulated = `
name: simulated
title: Two users, one with files
source: a test
sweep: [{name: cc, values: [lia, cubic]}]
phases: {warmup: 1 s, measure: 5 s}
hosts: [{name: a}, {name: b}, {name: server}]
routers: [r]
links:
  - {name: wlan, between: [r, a], rate: 10 Mbit/s, delay: 10 ms, loss: 0.5 %, energy: wlan}
  - {name: lte, between: [r, a], rate: 5 Mbit/s, delay: 30 ms, energy: 3g}
  - {name: line, between: [r, b], rate: 8 Mbit/s, delay: 5 ms}
  - {name: lan, between: [server, r]}
users:
  - {name: multi, from: a, to: server, direction: down, cc: $(cc), traffic: bulk}
  - {name: files, from: b, to: server, direction: down, transport: tcp, traffic: file, size: 500 KB, files: 40, start: 1500 ms}
events:
  - {at: 3 s, link: lte, rate: 2 Mbit/s}
`

// As many repeats are simulated as a claim plans, and the results say of how many they are.
func TestSimulatePlanned(t *testing.T) {
	r, _, err := simulate(t, t.Context(), simulated+`
expect:
  claims:
    - text: the file's claim
      source: my own
      metric: goodput
      of: multi
      at: {cc: lia}
      is: above
      bound: 1
      plan: {effect: 2, spread: 1, source: a guess}
`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	planned := map[string][]int{}
	for _, one := range r.Runs {
		planned[one.Point["cc"]] = append(planned[one.Point["cc"]], one.Planned)
	}
	if n := len(planned["lia"]); n < 2 || planned["lia"][n-1] != n || !slices.Equal(planned["cubic"], []int{0}) {
		t.Errorf("the planned repeats of the runs are %v", planned)
	}
}

func simulate(t *testing.T, ctx context.Context, text string, o Options) (*result.Result, string, error) {
	t.Helper()
	file, err := scenario.Parse("simulated.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	folder, err := result.Create(filepath.Join(t.TempDir(), "results"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	r, err := Simulate(ctx, file, folder, o)
	return r, folder.Path, err
}

// Runs that go on side by side are in their order in the results, have the metrics of the kernel's, and are the same
// each time.
func TestSimulate(t *testing.T) {
	r, path, err := simulate(t, t.Context(), simulated, Options{Repeats: 3, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 6 || r.Kernel != result.Simulated {
		t.Fatalf("%d runs of kernel %q", len(r.Runs), r.Kernel)
	}
	again, _, err := simulate(t, t.Context(), simulated, Options{Repeats: 3, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Runs, again.Runs, cmpopts.IgnoreUnexported(result.Run{})); diff != "" {
		t.Errorf("the same seed gives something else:\n%s", diff)
	}
	for i, one := range r.Runs {
		if cc := []string{"lia", "cubic"}[i/3]; one.Point["cc"] != cc || one.Repeat != i%3 {
			t.Errorf("run %d is repeat %d of %v", i, one.Repeat, one.Point)
		}
		multi, files := one.Classes[0].Users[0], one.Classes[1].Users[0]
		if len(multi.Subflows) != 2 || multi.Subflows[0].Interface != "wlan" || multi.Subflows[1].Interface != "lte" {
			t.Errorf("run %d: subflows %+v", i, multi.Subflows)
		}
		// 10 and first 5, then 2 Mbit/s; losses take some of it.
		if rate := float64(multi.Bytes) * 8 / 1e6 / one.Measured; rate < 3 || rate > 13 {
			t.Errorf("run %d: goodput %.1f Mbit/s", i, rate)
		}
		if multi.Energy == nil || multi.Energy.Joules <= 0 || multi.OutOfOrder == nil || multi.Reinjected == nil {
			t.Errorf("run %d lacks metrics: %+v", i, multi)
		}
		if n := len(files.Transfers); n < 5 || files.Bytes < uint64(n-1)*500000 || files.Energy != nil {
			t.Errorf("run %d: %d files, %d bytes", i, n, files.Bytes)
		}
		samples := 0
		read := one
		stored, err := result.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		read = stored.Runs[i]
		if err := read.ReadSamples(func(result.Sample) { samples++ }); err != nil {
			t.Fatal(err)
		}
		if want := int(one.Measured * 10 * 3); samples < want*8/10 {
			t.Errorf("run %d: %d samples, want about %d", i, samples, want)
		}
	}
}

// Of a run that is over only what came out of it is kept: thousands of runs take no more memory than a few.
func TestSimulateForgets(t *testing.T) {
	const repeats, most = 30, 15 << 20
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one run at a time, however many processors there are
	held := map[int]uint64{}                        // bytes, as a run begins
	_, _, err := simulate(t, t.Context(), simulated, Options{Repeats: repeats, Progress: func(p Progress) {
		if _, seen := held[p.Run]; seen {
			return
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		held[p.Run] = m.HeapAlloc
	}})
	if err != nil {
		t.Fatal(err)
	}
	if few, all := held[4], held[2*repeats-1]; all > few+most {
		t.Errorf("%d bytes of memory held as run 4 begins, %d as the last of %d runs does", few, all, 2*repeats)
	}
}

// What is interrupted leaves the runs that were complete, and nothing else.
func TestSimulateInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, path, err := simulate(t, ctx, simulated, Options{Repeats: 4, Progress: func(Progress) { cancel() }})
	if !errors.Is(err, context.Canceled) || r != nil {
		t.Fatalf("%v, results %v", err, r != nil)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}
