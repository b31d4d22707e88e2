// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/atomicfile"
)

// File is the name of the results in a run folder.
const File = "results.json"

const samplesFolder = "samples"

// Folder is a run folder that is being written. Nothing is written outside it, whatever links are in it already.
type Folder struct {
	Path string
	root *os.Root
}

// Create makes the folder, with those above it, and opens it for writing. It refuses one that holds results.
func Create(path string) (*Folder, error) {
	if _, err := os.Lstat(filepath.Join(path, File)); err == nil {
		return nil, fmt.Errorf("%s holds results already: name another folder", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Folder{path, root}, nil
}

// Close ends the writing, and removes the folder if it is empty.
func (f *Folder) Close() error {
	_ = f.root.Remove(samplesFolder) // both fail if there is something in it
	_ = os.Remove(f.Path)
	return f.root.Close()
}

// Samples makes the CSV of a run, and notes its name in the run. index is the run's place in Result.Runs.
func (f *Folder) Samples(run *Run, index int) (*SampleWriter, error) {
	if err := f.root.MkdirAll(samplesFolder, 0o755); err != nil {
		return nil, err
	}
	run.Samples = filepath.Join(samplesFolder, fmt.Sprintf("%04d.csv", index))
	file, err := f.root.Create(run.Samples)
	if err != nil {
		return nil, err
	}
	return newSampleWriter(file)
}

// Drop removes the samples of a run that failed.
func (f *Folder) Drop(run *Run) error {
	if run.Samples == "" {
		return nil
	}
	return f.root.Remove(run.Samples)
}

// Write writes results.json in one step, so that a run that was killed leaves no half of it, after the repeats as CSV.
// It fills in the format and its version, each user's goodput and each run's measures.
func (f *Folder) Write(r *Result) error {
	r.Format, r.Version = format, version
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	whole := r.whole()
	if err := enc.Encode(whole); err != nil {
		return fmt.Errorf("%s: %w", File, err)
	}
	var repeats bytes.Buffer
	if err := WriteRepeats(&repeats, []Labelled{{Label: r.Scenario.Name, Result: whole}}); err != nil {
		return fmt.Errorf("%s: %w", RepeatsFile, err)
	}
	if err := atomicfile.WriteIn(f.root, RepeatsFile, repeats.Bytes(), 0o644); err != nil {
		return err
	}
	return atomicfile.WriteIn(f.root, File, text.Bytes(), 0o644)
}

// whole returns r with what Write fills in, and with empty lists in place of nil, which JSON would have as null.
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
		list(&run.Faults)
		run.Classes = slices.Clone(run.Classes)
		list(&run.Classes)
		for j := range run.Classes {
			class := &run.Classes[j]
			class.Users = slices.Clone(class.Users)
			list(&class.Users)
			for _, set := range []*map[string]string{&class.CCTunables, &class.SchedulerTunables} {
				if *set == nil {
					*set = map[string]string{}
				}
			}
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

// Read returns a run folder's results.json. Neither that nor the samples it names are read outside the folder,
// whatever paths or links are in it.
func Read(folder string) (*Result, error) {
	path := filepath.Join(folder, File)
	file, err := open(folder, File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(folder); err != nil {
			return nil, fmt.Errorf("%s: no such folder", folder)
		}
		return nil, fmt.Errorf("%s has no %s: name a folder of mpcc run that came to its end", folder, File)
	case err != nil:
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
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
	case r.Format != format:
		return nil, fmt.Errorf("%s is not of mpcc run: its format is %q, not %q", path, r.Format, format)
	case r.Version != version:
		return nil, fmt.Errorf("%s has version %d; this mpcc reads version %d: read it with the mpcc that wrote it, %s",
			path, r.Version, version, r.Tool)
	}
	for i := range r.Runs {
		r.Runs[i].folder = folder
	}
	return &r, nil
}

// open opens a file of a run folder, and nothing outside it: the folder may be anybody's, and mpcc run as root.
func open(folder, name string) (*os.File, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// O_NONBLOCK: opening a pipe would wait for a writer.
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("%s: %s: %w", folder, name, failed.Err)
	}
	if err != nil {
		return nil, err
	}
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s: %s is not a file", folder, name), file.Close())
	}
	return file, nil
}
