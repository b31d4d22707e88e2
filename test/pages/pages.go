// SPDX-License-Identifier: Apache-2.0

// Package pages runs the commands that the documentation shows, in a sandbox with a network of its own, and compares
// what they print with what the page says.
//
// In a Markdown page
//
//	```console   is a session: lines that begin with "# " or "$ " are commands, "> " goes on with one, the rest is output;
//	             "^C" interrupts a command that runs until then
//	```sh        is commands alone, all of which have to succeed
//	title="x"    behind a fence's language writes the block to the file x before what follows
//
// All others are shown, and not run; none of them may look like a session. A command has to exit with 0, or, where its
// output has a line "mpcc: …", with something else. A comment on a line of its own before a block says more:
//
//	<!-- needs: REASON -->    the block runs only where this is there (Reasons)
//	<!-- before: COMMAND -->  runs a command that is not shown, such as one that has the phone send
//	<!-- network: WORDS -->   of the whole page: see Network
//
// Compared are exit codes and, in a console, all lines of output, with numbers, units, addresses and tokens taken out
// (see blur). The test's flag -mend has it write what commands print into pages that show something else.
package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Page is a page of the documentation.
type Page struct {
	Path    string // of the file
	Name    string // below the root of the repository
	Network Network
	Blocks  []Block
}

// Block is a fenced block that is run, or written to a file.
type Block struct {
	Line   int
	Needs  []string // names of Reasons
	Before []string
	Steps  []Step
	File   string // to write Text to
	Text   string
}

// Step is a command, and what the page shows of its output.
type Step struct {
	Line      int // of the command
	Command   string
	Compared  bool // a console shows the output, be it none
	Want      []string
	First     int // line of Want[0] in the page
	Interrupt bool
	Until     int // how many lines of Want come before the interrupt
}

// Fails reports whether the page shows that the command fails.
func (s Step) Fails() bool {
	return slices.ContainsFunc(s.Want, func(line string) bool { return strings.HasPrefix(line, "mpcc: ") })
}

// Read reads the pages of a clone, or of a folder that has what a clone has of them.
func Read(root string) ([]Page, error) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	files = append(files, filepath.Join(root, "README.md"), filepath.Join(root, "deploy", "README.md"))
	var all []Page
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return nil, err
		}
		page, err := parse(name, string(text))
		if err != nil {
			return nil, err
		}
		page.Path = file
		all = append(all, page)
	}
	return all, nil
}

var (
	fence     = regexp.MustCompile("^( *)```([a-z]*)(.*)$")
	title     = regexp.MustCompile(`title="([^"]+)"`)
	directive = regexp.MustCompile(`^ *<!-- (needs|before|network): (.*) -->$`)
	prompt    = regexp.MustCompile(`^[#$] (.+)$`)
	looksRun  = regexp.MustCompile(`^([#$]|mpcc|make|apt|ip|sysctl|systemctl|kubectl|ansible-playbook) `)
)

// parse finds the blocks of a page.
func parse(name, text string) (Page, error) {
	page := Page{Name: name}
	var block *Block
	var language, indent, last string
	var needs, before []string
	for i, line := range strings.Split(text, "\n") {
		n := i + 1
		wrong := func(format string, args ...any) (Page, error) {
			return page, fmt.Errorf("%s:%d: %s", name, n, fmt.Sprintf(format, args...))
		}
		if block == nil {
			if d := directive.FindStringSubmatch(line); d != nil {
				switch d[1] {
				case "needs":
					for reason := range strings.SplitSeq(d[2], ", ") {
						if _, ok := Reasons[reason]; !ok {
							return wrong("needs: %q is none of the reasons", reason)
						}
						needs = append(needs, reason)
					}
				case "before":
					before = append(before, d[2])
				default:
					var err error
					if page.Network, err = parseNetwork(d[2]); err != nil {
						return wrong("%v", err)
					}
				}
			} else if m := fence.FindStringSubmatch(line); m != nil {
				indent, language = m[1], m[2]
				if !slices.Contains([]string{"", "console", "sh", "yaml", "json"}, language) {
					return wrong("a block of %s: a session is ```console, commands alone are ```sh", language)
				}
				block = &Block{Line: n, Needs: needs, Before: before}
				if t := title.FindStringSubmatch(m[3]); t != nil {
					block.File = t[1]
				}
				needs, before = nil, nil
			} else if line != "" && (needs != nil || before != nil) {
				return wrong("the comment before it is about no block")
			}
			last = ""
			continue
		}
		line = strings.TrimPrefix(line, indent)
		if line == "```" {
			if language == "sh" && block.Steps != nil {
				block.Steps[0].Command = "set -e\n" + block.Steps[0].Command + "set +e"
			}
			if block.Steps == nil && (block.Needs != nil || block.Before != nil) {
				return wrong("the comment before the block is about one that is not run")
			}
			if block.Steps != nil || block.File != "" {
				page.Blocks = append(page.Blocks, *block)
			}
			block = nil
			continue
		}
		block.Text += line + "\n"
		command := prompt.FindStringSubmatch(line)
		switch {
		case language == "sh":
			if block.Steps == nil {
				block.Steps = []Step{{Line: n}}
			}
			block.Steps[0].Command += line + "\n"
		case language == "console" && command != nil:
			block.Steps = append(block.Steps, Step{Line: n, Command: command[1], Compared: true, First: n + 1})
			last = "command"
		case language == "console" && len(block.Steps) == 0:
			return wrong("a session begins with a command, after %q or %q", "# ", "$ ")
		case language == "console":
			step := &block.Steps[len(block.Steps)-1]
			if more, ok := strings.CutPrefix(line, "> "); ok && last == "command" {
				step.Command += "\n" + more
				step.First = n + 1
				break
			}
			last = "output"
			if line == "^C" {
				step.Interrupt, step.Until = true, len(step.Want)
				break
			}
			step.Want = append(step.Want, line)
		case language == "" && looksRun.MatchString(line):
			return wrong("a command that is not run: make the block ```console or ```sh")
		}
	}
	if block != nil {
		return page, fmt.Errorf("%s: a block from line %d on has no end", name, block.Line)
	}
	return page, nil
}
