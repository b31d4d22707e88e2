// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"encoding/json"
	"fmt"

	"github.com/mpcc/mpcc/test/reference"
)

// Vectors is a file of testdata/vectors/sched; the README there has its schema.
type Vectors struct {
	Scheduler string `json:"scheduler"`
	Cases     []Case `json:"cases"`
}

// Case is one connection and what the scheduler decides for it.
type Case struct {
	Name   string   `json:"name"`
	Source string   `json:"source"`
	Set    Tunables `json:"set,omitempty"`
	Scene
	Expect Expect `json:"expect"`
}

// Expect has one number for each subflow, or none at all where the source gives none.
type Expect struct {
	Send      []float64          `json:"send"`
	Waits     *float64           `json:"waits,omitempty"`
	Resend    *float64           `json:"resend,omitempty"`
	Wait      *float64           `json:"wait_us,omitempty"`
	Look      *float64           `json:"look_us,omitempty"`
	Repeats   *float64           `json:"repeats,omitempty"`
	Rate      []float64          `json:"rate,omitempty"`
	Cost      []float64          `json:"cost,omitempty"`
	Objective []float64          `json:"objective,omitempty"`
	Memory    map[string]float64 `json:"memory,omitempty"`
}

// ReadVectors reads a vector file.
func ReadVectors(path string) (Vectors, error) {
	var v Vectors
	if err := reference.Decode(path, &v); err != nil {
		return v, err
	}
	if len(v.Cases) == 0 {
		return v, fmt.Errorf("%s: no cases", path)
	}
	for _, c := range v.Cases {
		for _, list := range [][]float64{c.Expect.Rate, c.Expect.Cost, c.Expect.Objective} {
			if len(list) != 0 && len(list) != len(c.Subflows) {
				return v, fmt.Errorf("%s: case %q: %d subflows, %d expected values", path, c.Name, len(c.Subflows), len(list))
			}
		}
		if len(c.Expect.Send) != len(c.Subflows) {
			return v, fmt.Errorf("%s: case %q: %d subflows, send for %d", path, c.Name, len(c.Subflows), len(c.Expect.Send))
		}
	}
	return v, nil
}

// Expected is all of an outcome.
func (o Outcome) Expected() (Expect, error) {
	e := Expect{
		Send: o.Send, Waits: &o.Waits, Resend: &o.Resend, Wait: &o.Wait, Look: &o.Look, Repeats: &o.Repeats,
		Rate: o.Rate, Cost: o.Cost, Objective: o.Objective,
	}
	raw, err := json.Marshal(o.Memory)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(raw, &e.Memory)
}
