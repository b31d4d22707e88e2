// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/judge"
)

//go:embed report.html
var pageText string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"join": strings.Join,
	"dark": func() template.CSS { return template.CSS(darkRules()) },
	"svg": func(p Plot) (template.HTML, error) {
		svg, err := p.svg("")
		return template.HTML(svg), err
	},
	"outcome": func(cell string) string {
		if slices.Contains(judge.Verdicts, cell) {
			return strings.ReplaceAll(cell, " ", "-")
		}
		return ""
	},
}).Parse(pageText))

// page returns the report as one self-contained HTML page.
func (r *Report) page() ([]byte, error) {
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, r)
	return out.Bytes(), err
}
