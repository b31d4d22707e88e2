// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// File is the name of the results in a run folder.
const File = "results.json"

const samplesFolder = "samples"

// Folder is a run folder that is being written.
type Folder struct{ Path string }

// Create makes the folder, with those above it. A folder that holds results is left alone.
func Create(path string) (*Folder, error) {
	if _, err := os.Lstat(filepath.Join(path, File)); err == nil {
		return nil, fmt.Errorf("%s holds results already: name another folder", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return &Folder{path}, nil
}

// Samples opens the CSV of a run and names it in the run. index is the run's place in Result.Runs.
func (f *Folder) Samples(run *Run, index int) (*SampleWriter, error) {
	if err := os.MkdirAll(filepath.Join(f.Path, samplesFolder), 0o755); err != nil {
		return nil, err
	}
	run.Samples = filepath.Join(samplesFolder, fmt.Sprintf("%04d.csv", index))
	return newSampleWriter(filepath.Join(f.Path, run.Samples))
}

// Drop removes the samples of a run that failed.
func (f *Folder) Drop(run *Run) error {
	if run.Samples == "" {
		return nil
	}
	return os.Remove(filepath.Join(f.Path, run.Samples))
}

// RemoveEmpty removes the folder if nothing has come into it.
func (f *Folder) RemoveEmpty() {
	for _, folder := range []string{filepath.Join(f.Path, samplesFolder), f.Path} {
		_ = os.Remove(folder) // fails if there is something in it
	}
}

// Write writes results.json; until it is whole there is none, so a run that was killed leaves no half of it.
// It sets Format and Version, and fills in each user's goodput and each run's measures.
func (f *Folder) Write(r *Result) error {
	r.Format, r.Version = Format, Version
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r.whole()); err != nil {
		return fmt.Errorf("%s: %w", File, err)
	}
	return WriteFile(filepath.Join(f.Path, File), text.Bytes())
}

// whole is r with what is filled in, and its empty lists as lists, not nulls.
func (r *Result) whole() *Result {
	c := *r
	list(&c.Scenario.Notes)
	list(&c.Sweep)
	list(&c.Expect.Values)
	list(&c.Expect.Claims)
	list(&c.Expect.Figures)
	c.Runs = slices.Clone(c.Runs)
	list(&c.Runs)
	for i := range c.Runs {
		run := &c.Runs[i]
		if run.Point == nil {
			run.Point = Point{}
		}
		list(&run.Links)
		list(&run.RAPL)
		list(&run.Warnings)
		run.Classes = slices.Clone(run.Classes)
		list(&run.Classes)
		for j := range run.Classes {
			class := &run.Classes[j]
			class.Users = slices.Clone(class.Users)
			list(&class.Users)
			for k := range class.Users {
				user := &class.Users[k]
				user.Goodput = user.rate()
				list(&user.Transfers)
				list(&user.Subflows)
			}
		}
		run.Measures = run.measures()
	}
	return &c
}

func list[T any](s *[]T) {
	if *s == nil {
		*s = []T{}
	}
}

// WriteFile replaces a file in one step.
func WriteFile(path string, text []byte) (err error) {
	t, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			t.Close()
			os.Remove(t.Name())
		}
	}()
	if _, err := t.Write(text); err != nil {
		return err
	}
	if err := errors.Join(t.Chmod(0o644), t.Sync(), t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
}

// Read reads a run folder's results.json.
func Read(folder string) (*Result, error) {
	path := filepath.Join(folder, File)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(folder); err != nil {
			return nil, fmt.Errorf("%s: no such folder", folder)
		}
		return nil, fmt.Errorf("%s has no %s: name a folder of mpcc run that came to its end", folder, File)
	case err != nil:
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(text, &r); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("%s, byte %d: %w", path, syntax.Offset, err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case r.Format != Format:
		return nil, fmt.Errorf("%s is not of mpcc run: its format is %q, not %q", path, r.Format, Format)
	case r.Version != Version:
		return nil, fmt.Errorf("%s has version %d; this mpcc reads version %d: read it with the mpcc that wrote it, %s",
			path, r.Version, Version, r.Tool)
	}
	return &r, nil
}
