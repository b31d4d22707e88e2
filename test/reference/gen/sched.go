// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/mpcc/mpcc/test/reference/sched"
)

const drawnScenes = 24

// writeSchedulers writes what test/reference/sched decides for some connections drawn at random.
func writeSchedulers(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, name := range sched.Names() {
		s, err := sched.Of(name)
		if err != nil {
			return err
		}
		var cases []string
		for _, set := range append([]sched.Tunables{nil}, s.Sets...) {
			r := rand.New(rand.NewPCG(1, 2))
			for i := range drawnScenes {
				c := sched.Case{
					Name: fmt.Sprintf("drawn %d", i+1), Source: "test/reference/sched/" + name + ".go",
					Set: set, Scene: s.Random(r),
				}
				if c.Expect, err = s.Decide(c.Scene, set).Expected(); err != nil {
					return err
				}
				for _, list := range [][]float64{c.Expect.Rate, c.Expect.Cost, c.Expect.Objective} {
					for j := range list {
						list[j] = rounded(list[j])
					}
				}
				text, err := json.Marshal(c)
				if err != nil {
					return err
				}
				// A line for each subflow.
				cases = append(cases, "\t"+strings.ReplaceAll(string(text), `{"subflow_id"`, "\n\t\t{\"subflow_id\""))
			}
		}
		text := fmt.Sprintf("{\"scheduler\": %q, \"cases\": [\n%s\n]}\n", name, strings.Join(cases, ",\n"))
		if err := os.WriteFile(filepath.Join(folder, name+".json"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
