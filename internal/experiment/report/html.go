// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"strings"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"join": strings.Join,
	"dark": func() template.CSS { return template.CSS(darkRules()) },
	"svg": func(p Plot) (template.HTML, error) {
		svg, err := p.svg("")
		return template.HTML(svg), err
	},
	"outcome": func(cell string) string {
		switch cell {
		case Reproduced, NotReproduced, Undecided:
			return strings.ReplaceAll(cell, " ", "-")
		}
		return ""
	},
}).Parse(page))

// HTML is the report as one page that needs nothing else.
func (r *Report) HTML() ([]byte, error) {
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, r)
	return out.Bytes(), err
}
