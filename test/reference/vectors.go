// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// Vectors is a file of testdata/vectors; the README there has its schema.
type Vectors struct {
	Algorithm string `json:"algorithm"`
	Cases     []Case `json:"cases"`
}

// Case is one connection and what the algorithm decides for it.
type Case struct {
	Name     string    `json:"name"`
	Source   string    `json:"source"`
	Set      Tunables  `json:"set,omitempty"`
	Subflows []Subflow `json:"subflows"`
	Expect   Expect    `json:"expect"`
}

// Expect has one number for each subflow, or none at all where the source gives none.
type Expect struct {
	Increase  []float64 `json:"increase,omitempty"`
	AfterLoss []float64 `json:"after_loss,omitempty"`
	Coupling  []float64 `json:"coupling,omitempty"`
	Window    []float64 `json:"window,omitempty"`
	Ssthresh  []float64 `json:"ssthresh,omitempty"`
}

// ReadVectors reads a vector file.
func ReadVectors(path string) (Vectors, error) {
	var v Vectors
	if err := Decode(path, &v); err != nil {
		return v, err
	}
	if len(v.Cases) == 0 {
		return v, fmt.Errorf("%s: no cases", path)
	}
	for _, c := range v.Cases {
		if err := c.check(); err != nil {
			return v, fmt.Errorf("%s: case %q: %w", path, c.Name, err)
		}
	}
	return v, nil
}

// Decode reads a file of JSON that has nothing but what v has.
func Decode(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (c Case) check() error {
	given := 0
	e := c.Expect
	for _, list := range [][]float64{e.Increase, e.AfterLoss, e.Coupling, e.Window, e.Ssthresh} {
		if list != nil && len(list) != len(c.Subflows) {
			return fmt.Errorf("%d subflows, %d expected values", len(c.Subflows), len(list))
		}
		given += len(list)
	}
	if given == 0 {
		return fmt.Errorf("expects nothing")
	}
	return nil
}
