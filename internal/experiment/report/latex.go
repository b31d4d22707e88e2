// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"
)

// LaTeX writes the tables of claims and of the main metrics for a paper, with the rules of the package booktabs. They
// are tabulars to be put into a table of one's own.
func (r *Report) LaTeX(w io.Writer) error {
	out := &strings.Builder{}
	out.WriteString("% Written by mpcc report. In the preamble: \\usepackage{booktabs}\n")
	for i := range r.Experiments {
		e := &r.Experiments[i]
		tables := e.Main()
		if len(e.Claims) > 0 {
			tables = append(tables, e.ClaimTable().without("condition"))
		}
		for _, t := range tables {
			t.latex(out, e.Scenario.Name)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (t Table) latex(out *strings.Builder, scenario string) {
	fmt.Fprintf(out, "\n%% %s: %s\n\\begin{tabular}{%s%s}\n\\toprule\n", scenario, t.Caption,
		strings.Repeat("l", t.Words), strings.Repeat("r", len(t.Head)-t.Words))
	row := func(cells []string) {
		escaped := make([]string, len(cells))
		for i, c := range cells {
			escaped[i] = forLaTeX.Replace(c)
		}
		out.WriteString(strings.Join(escaped, " & ") + " \\\\\n")
	}
	row(t.Head)
	out.WriteString("\\midrule\n")
	for _, cells := range t.Rows {
		row(cells)
	}
	out.WriteString("\\bottomrule\n\\end{tabular}\n")
}

var forLaTeX = strings.NewReplacer(`\`, `\textbackslash{}`, "&", `\&`, "%", `\%`, "$", `\$`, "#", `\#`, "_", `\_`, "{", `\{`, "}", `\}`,
	"~", `\textasciitilde{}`, "^", `\textasciicircum{}`, "±", `$\pm$`, "·", `$\cdot$`, "<", "$<$", ">", "$>$", "≥", `$\geq$`, "√", `$\surd$`)
