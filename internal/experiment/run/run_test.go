// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

const twoRuns = `
name: two
title: Two runs
source: my own
repeats: 2
phases: {measure: 200 ms}
hosts: [{name: a}, {name: b}]
links:
  - {name: one, between: [a, b], rate: 10 Mbit/s}
users: [{name: user, from: a, to: b, cc: reno, transport: tcp, traffic: bulk}]
`

// A stopped series keeps the runs that were complete, and no folder where none was.
func TestStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(path, []byte(twoRuns), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := scenario.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for complete := range 2 {
		folder, err := result.Create(filepath.Join(t.TempDir(), "results"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r, err := All(ctx, file, folder, Options{Progress: func(p Progress) {
			if p.Run == complete {
				stop()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped: %v", err)
		}
		if err := folder.Close(); err != nil {
			t.Fatal(err)
		}
		var left []string
		err = filepath.WalkDir(folder.Path, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				left = append(left, d.Name())
			}
			return err
		})
		if complete == 0 {
			if r != nil || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("no run was complete, and there are %v of %v, %v", left, r, err)
			}
			continue
		}
		slices.Sort(left)
		if want := []string{"0000.csv", result.RepeatsFile, result.File}; err != nil || !slices.Equal(left, want) {
			t.Errorf("after one of two runs there are %v, %v", left, err)
		}
		kept, err := result.Read(folder.Path)
		if err != nil || len(r.Runs) != 1 || len(kept.Runs) != 1 || kept.Runs[0].Seed != r.Runs[0].Seed || len(kept.Runs[0].Classes) != 1 {
			t.Errorf("kept %+v, %v", kept, err)
		}
	}
}
