// SPDX-License-Identifier: Apache-2.0

// Package verified keeps what the long checks of make verify have found, in docs/reliability: a file for each part, in it
// a record for each cell of the part's table. A record holds a digest of what it speaks of, by which it is told whether
// that has changed since.
package verified

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Folder has the records, in a clone of mpcc.
const Folder = "docs/reliability"

// A Cell of a part's table is one thing to verify.
type Cell struct {
	Row, Column string
	// Digest is of what the cell speaks of, as it is now.
	Digest string
}

// State is how a check has come out.
type State string

// The states. Refused is what was wanted of a kernel that is too old; NotRun says why in Said.
const (
	Passed  State = "passed"
	Refused State = "refused"
	NotRun  State = "not run"
	Failed  State = "failed"
)

// A Record is what one check has found.
type Record struct {
	Row     string             `json:"row"`
	Column  string             `json:"column,omitempty"`
	Digest  string             `json:"digest"`
	Commit  string             `json:"commit"`
	Date    string             `json:"date"`
	Kernel  string             `json:"kernel,omitempty"`
	State   State              `json:"state"`
	Said    string             `json:"said,omitempty"`
	Seconds float64            `json:"seconds,omitempty"` // that it took
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Of says whether the record is about the cell as it is now.
func (r Record) Of(c Cell) bool { return r.Digest == c.Digest }

// Name is how a cell is called on the command line of make verify.
func (c Cell) Name() string {
	if c.Column == "" {
		return c.Row
	}
	return c.Row + "/" + c.Column
}

// Table is the records of a part.
type Table []Record

// Read reads the records of a part; there are none yet if there is no file.
func Read(root, part string) (t Table, err error) {
	file := filepath.Join(root, Folder, part+".json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// Find returns the record of a cell, be it of something older.
func (t Table) Find(c Cell) (Record, bool) {
	i := slices.IndexFunc(t, func(r Record) bool { return r.Row == c.Row && r.Column == c.Column })
	if i < 0 {
		return Record{}, false
	}
	return t[i], true
}

// Keep puts a record in the place of the cell's former one, and writes the part's file.
func Keep(root, part string, r Record) error {
	t, err := Read(root, part)
	if err != nil {
		return err
	}
	t = slices.DeleteFunc(t, func(former Record) bool { return former.Row == r.Row && former.Column == r.Column })
	t = append(t, r)
	slices.SortFunc(t, func(a, b Record) int { return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.Column, b.Column)) })
	text, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	dir := filepath.Join(root, Folder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Whole, so that a run that is killed leaves all that it had found.
	file := filepath.Join(dir, part+".json")
	if err := os.WriteFile(file+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
