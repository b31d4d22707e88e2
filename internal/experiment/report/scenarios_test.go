// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// madeUp returns a folder with made-up results of a scenario, in the shape that a run gives them: two repeats, of
// the first users of each class.
func madeUp(t *testing.T, name string) string {
	t.Helper()
	file, err := scenario.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := result.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	r := &result.Result{
		Scenario: result.Scenario{Name: string(file.Name), Title: file.Title, Source: file.Source, Notes: file.Notes, Setup: file.Setup},
		Sweep:    file.Axes(false), Expect: file.Expect,
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, run := range file.Runs(false) {
		if run.Repeat > 1 {
			continue
		}
		network := run.Network()
		made := result.Run{Point: run.Point, Repeat: run.Repeat, Measured: 100}
		for _, l := range network.Links {
			made.Links = append(made.Links, result.Link{Name: string(l.Name), Queue: result.Queue{Sent: 1000, Dropped: random.Uint64N(50)}})
		}
		for _, c := range network.Classes {
			class := result.Class{Name: string(c.Name), CC: c.CC, HostPower: network.HostPower(&c)}
			for range min(2, len(c.Members)) {
				seconds, some := 1+random.Float64(), random.Uint64N(100)
				user := result.User{
					Bytes: 1e6 + random.Uint64N(1e6), Active: 100, Transfers: []result.Transfer{{Bytes: 1e6, Seconds: &seconds}},
					OutOfOrder: &some, Received: &[]uint64{1000}[0], Energy: &result.Energy{Joules: 10 + random.Float64(), Source: result.SourceModel},
				}
				for i, l := range network.Links {
					if slices.Contains(l.Between, c.Members[0].From) {
						user.Subflows = append(user.Subflows, result.Subflow{ID: i + 1, Interface: l.Interface, Bytes: 1e6, SRTT: 50, SRTT95: 60})
					}
				}
				class.Users = append(class.Users, user)
			}
			made.Classes = append(made.Classes, class)
		}
		if run.Repeat == 0 {
			trace(t, folder, &made, len(r.Runs))
		}
		r.Runs = append(r.Runs, made)
	}
	if err := folder.Write(r); err != nil {
		t.Fatal(err)
	}
	return folder.Path
}

func trace(t *testing.T, folder *result.Folder, run *result.Run, index int) {
	t.Helper()
	w, err := folder.Samples(run, index)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		for _, c := range run.Classes {
			for _, s := range c.Users[0].Subflows {
				sample := result.Sample{Time: float64(i), Class: c.Name, Subflow: s.ID, Interface: s.Interface, Cwnd: uint32(i), Bytes: uint64(i) * 1000}
				if err := w.Write(sample); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// A whole run of every scenario that mpcc brings can be judged and drawn: all that its claims, figures and values
// are about is measured.
func TestScenariosAreReported(t *testing.T) {
	for _, name := range scenario.Names() {
		t.Run(name, func(t *testing.T) {
			r, err := Load(madeUp(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.page(); err != nil {
				t.Error(err)
			}
			file, err := scenario.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			e := &r.Experiments[0]
			for _, v := range e.Claims {
				if len(v.Checks) == 0 {
					t.Errorf("claim %q is about nothing that is measured", v.Text)
				}
			}
			for _, f := range file.Expect.Figures {
				if !slices.ContainsFunc(e.Plots, func(p Plot) bool { return strings.HasPrefix(p.Title, f.Title) }) {
					t.Errorf("figure %q is not drawn", f.Title)
				}
			}
			for _, v := range file.Expect.Values {
				if !slices.ContainsFunc(e.Rows, func(r Row) bool {
					return r.Metric == v.Metric && r.Of == v.Of && r.Point.Agrees(v.At) &&
						slices.ContainsFunc(r.Theirs, func(o Reference) bool { return o.Kind == v.Kind && o.Value == v.Value })
				}) {
					t.Errorf("%s value of %s of %s at %v is beside no figure", v.Kind, v.Metric, v.Of, v.At)
				}
			}
		})
	}
}
