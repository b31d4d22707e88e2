// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Run runs the pages of a clone that chosen takes, each in a sandbox of its own, with an mpcc and its headers.
// With mend, what a page shows of a command is replaced by what the command prints, where they differ.
func Run(t *testing.T, root, mpcc string, mend bool, chosen func(Page) bool) {
	all, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	prefix := t.TempDir()
	if err := install(prefix, mpcc, filepath.Join(root, "bpf", "include", "mpcc")); err != nil {
		t.Fatal(err)
	}
	for _, page := range all {
		if len(page.Blocks) == 0 || !chosen(page) {
			continue
		}
		t.Run(strings.ReplaceAll(page.Name, "/", "-"), func(t *testing.T) { page.run(t, prefix, mend) })
	}
}

// NeedsKernel reports whether the kernel decides if a block of the page can run.
func (p Page) NeedsKernel() bool {
	for _, b := range p.Blocks {
		for _, name := range b.Needs {
			if Reasons[name].Lacks != nil {
				return true
			}
		}
	}
	return false
}

func (p Page) run(t *testing.T, prefix string, mend bool) {
	s, err := open(t.TempDir(), prefix, p.Network)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	mended := map[int][]string{} // by Step.First
	ran := 0
	for _, b := range p.Blocks {
		if why := b.lacks(); why != nil {
			t.Logf("%s:%d: not run: %v", p.Name, b.Line, why)
			if err := s.unneeded(b, why); err != nil {
				t.Errorf("%s:%d: %v", p.Name, b.Line, err)
			}
			continue
		}
		if b.File != "" {
			if err := s.write(b); err != nil {
				t.Fatalf("%s:%d: %v", p.Name, b.Line, err)
			}
		}
		if err := s.prepare(b); err != nil {
			t.Fatalf("%s:%d: %v", p.Name, b.Line, err)
		}
		for _, step := range b.Steps {
			code, lines, err := s.run(step)
			ran++
			t.Logf("%s:%d: # %s\n%s", p.Name, step.Line, step.Command, strings.Join(lines, "\n"))
			if wrong := step.wrong(code, lines, err); wrong != nil {
				if mend && step.Compared && !step.Interrupt && err == nil && step.Fails() == (code != 0) {
					mended[step.First] = lines
					continue
				}
				t.Errorf("%s:%d: %s\n%v", p.Name, step.Line, step.Command, wrong)
			}
			if err != nil {
				t.FailNow()
			}
		}
	}
	if code, lines, err := s.run(Step{Command: "mpcc unload --all"}); err != nil || code != 0 {
		t.Errorf("%s: mpcc unload --all at the end: exit code %d, %v\n%s", p.Name, code, err, strings.Join(lines, "\n"))
	}
	t.Logf("%s: %d commands run", p.Name, ran)
	if len(mended) > 0 {
		if err := p.mend(mended); err != nil {
			t.Error(err)
		}
	}
}

// wrong tells in what a command did not do what the page says; nil if it did.
func (s Step) wrong(code int, lines []string, err error) error {
	output := strings.Join(lines, "\n")
	switch interrupted := s.Interrupt && code == 130; {
	case err != nil:
		return fmt.Errorf("%w; it printed\n%s", err, output)
	case s.Fails() != (code != 0) && !interrupted:
		return fmt.Errorf("exit code %d; it printed\n%s", code, output)
	case s.Compared && !agrees(s.Want, lines):
		return fmt.Errorf("it printed\n%s\nand the page shows\n%s", output, strings.Join(s.Want, "\n"))
	}
	return nil
}

// unneeded is an error where a block could run although the page says that it takes something that is not there.
func (s *session) unneeded(b Block, why error) error {
	if not := (notRun{}); errors.As(why, &not) {
		for _, step := range b.Steps {
			for line := range strings.Lines(step.Command) {
				if Reasons[not.name].Does.MatchString(strings.TrimSpace(line)) {
					return nil
				}
			}
		}
		return fmt.Errorf("none of its commands is of the kind of %q: take the comment away", not.name)
	}
	s.patience = shorter
	defer func() { s.patience = longest }()
	if s.prepare(b) != nil {
		return nil
	}
	for _, step := range b.Steps {
		step.Command = "(\n" + step.Command + "\n)" // which may end without its shell
		if code, lines, err := s.run(step); step.wrong(code, lines, err) != nil {
			return nil
		}
	}
	return fmt.Errorf("it does what it shows, without %w: take the comment away", why)
}

// prepare runs what comes before a block.
func (s *session) prepare(b Block) error {
	for _, command := range b.Before {
		if code, lines, err := s.run(Step{Command: command}); err != nil || code != 0 {
			return fmt.Errorf("before it: %s: exit code %d, %v\n%s", command, code, err, strings.Join(lines, "\n"))
		}
	}
	return nil
}

// write makes a block a file.
func (s *session) write(b Block) error {
	if b.File != filepath.Base(b.File) {
		return fmt.Errorf("title: %q is not the name of a file alone", b.File)
	}
	text := filepath.Join(s.dir, b.File)
	if err := os.WriteFile(text, []byte(b.Text), 0o644); err != nil {
		return err
	}
	_, _, err := s.run(Step{Command: "cp " + text + " ."}) // wherever the session is
	return err
}

// mend writes the page with other outputs, each in the place of the one that began in that line.
func (p Page) mend(outputs map[int][]string) error {
	text, err := os.ReadFile(p.Path)
	if err != nil {
		return err
	}
	old := strings.Split(string(text), "\n")
	var lines []string
	for i := 0; i < len(old); i++ {
		output, ok := outputs[i+1]
		if !ok {
			lines = append(lines, old[i])
			continue
		}
		lines = append(lines, output...)
		for ; old[i] != "```" && prompt.FindString(old[i]) == ""; i++ {
		}
		lines = append(lines, old[i])
	}
	return os.WriteFile(p.Path, []byte(strings.Join(lines, "\n")), 0o644)
}
