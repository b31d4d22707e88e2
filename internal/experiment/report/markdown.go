// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
)

// Markdown returns an experiment as a section of a page, under a heading of the second level. remarks, which may
// be empty, follow the claims; image returns the address of a plot by its index.
func (e *Experiment) Markdown(remarks string, image func(plot int) string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "## %s\n\n%s (%s).\n", e.Scenario.Name, e.Scenario.Title, e.Scenario.Source)
	for i, note := range e.Scenario.Notes {
		if i == 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "- %s\n", note)
	}
	for _, run := range e.Runs {
		if run.Quick {
			fmt.Fprintf(&out, "\n%s: the short form was run (--quick): its numbers are not to be relied on.\n", run.Label)
		}
		for _, w := range run.Warnings {
			fmt.Fprintf(&out, "\n%s: %s\n", run.Label, w)
		}
	}
	if len(e.Claims) > 0 {
		out.WriteString(e.ClaimTable().markdown())
	}
	if remarks = strings.TrimSpace(remarks); remarks != "" {
		fmt.Fprintf(&out, "\n%s\n", remarks)
	}
	for _, t := range e.Main() {
		out.WriteString(t.markdown())
	}
	for i, p := range e.Plots {
		source := ""
		if p.Source != "" {
			source = " (as " + p.Source + ")"
		}
		fmt.Fprintf(&out, "\n**%s**%s\n\n![%s](%s)\n", p.Title, source, strings.NewReplacer("[", "(", "]", ")").Replace(p.describe()), image(i))
	}
	out.WriteString(e.RunTable().markdown())
	return out.String()
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
