// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
)

// Part is an experiment as one carrier ran it: a kernel, or the simulator.
type Part struct {
	*Experiment
	Remarks string                // they follow the claims; may be empty
	Image   func(plot int) string // returns the address of a plot by its index
}

// Markdown returns an experiment's parts as a page, under the title and notes of the last one.
func Markdown(parts ...Part) string {
	var out strings.Builder
	last := parts[len(parts)-1].Experiment
	fmt.Fprintf(&out, "# %s\n\n%s (%s).\n\n", last.Scenario.Name, last.Scenario.Title, last.Scenario.Source)
	var notes []string
	if s := last.Scenario.Setup; s.Published != "" {
		notes = []string{"Published set-up: " + s.Published, "Ours: " + s.Ours}
		if s.Simulated != "" {
			notes = append(notes, "Simulated: "+s.Simulated)
		}
	}
	notes = append(notes, last.Scenario.Notes...)
	if len(parts) == 1 {
		list(&out, append(notes, last.Notices()...))
		parts[0].markdown(&out)
		return out.String()
	}
	list(&out, notes)
	for _, p := range parts {
		fmt.Fprintf(&out, "\n## %s\n", p.carrier())
		if notices := p.Notices(); len(notices) > 0 {
			out.WriteString("\n")
			list(&out, notices)
		}
		p.markdown(&out)
	}
	return out.String()
}

// carrier returns what ran the experiment, as a title.
func (e *Experiment) carrier() string {
	if e.Simulated() {
		return "Simulated"
	}
	return "With the kernel"
}

func list(out *strings.Builder, items []string) {
	for _, item := range items {
		fmt.Fprintf(out, "- %s\n", item)
	}
}

func (e Part) markdown(out *strings.Builder) {
	if len(e.Claims) > 0 {
		out.WriteString(e.ClaimTable().markdown())
		fmt.Fprintf(out, "\nAgain, with as many repeats as are planned: `%s`\n", e.Rerun(nil, 0))
	}
	if remarks := strings.TrimSpace(e.Remarks); remarks != "" {
		fmt.Fprintf(out, "\n%s\n", remarks)
	}
	for _, t := range e.Main() {
		out.WriteString(t.markdown())
	}
	for i, p := range e.Plots {
		source := ""
		if p.Source != "" {
			source = " (as " + p.Source + ")"
		}
		fmt.Fprintf(out, "\n**%s**%s\n\n![%s](%s)\n", p.Title, source, strings.NewReplacer("[", "(", "]", ")").Replace(p.describe()), e.Image(i))
		fmt.Fprintf(out, "\nAgain: `%s`\n", e.Rerun(p.At, e.Runs[0].Most))
	}
	out.WriteString(e.RunTable().markdown())
}

func (t Table) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n**%s**\n\n", t.Caption)
	row := func(cells []string) {
		for _, c := range cells {
			out.WriteString("| " + strings.ReplaceAll(c, "|", "\\|") + " ")
		}
		out.WriteString("|\n")
	}
	row(t.Head)
	for i := range t.Head {
		if i < t.Words {
			out.WriteString("|---")
		} else {
			out.WriteString("|---:")
		}
	}
	out.WriteString("|\n")
	for _, cells := range t.Rows {
		row(cells)
	}
	return out.String()
}
