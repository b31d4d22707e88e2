// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const dashboardFile = "../../deploy/grafana/mpcc.json"

func TestDashboardSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("testdata/dashboard.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	board, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(board); err != nil {
		t.Errorf("%s: %v", dashboardFile, err)
	}
}

type boardPanel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ RefID, Expr, LegendFormat string }
}

func (p boardPanel) overlaps(q boardPanel) bool {
	a, b := p.GridPos, q.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

// What a schema cannot tell: panels have numbers and places of their own, each query is for the hosts that are chosen, over
// Grafana's interval, and its legend has labels that its metrics have.
func TestDashboardLint(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct {
				Name, Definition string
				Query            any
			}
		}
		Panels []boardPanel
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	variables := []string{"__rate_interval"}
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
		if q, ok := v.Query.(map[string]any); ok && q["query"] != v.Definition {
			t.Errorf("variable %s asks %q and shows %q", v.Name, q["query"], v.Definition)
		}
	}
	labelNames := map[string][]string{} // by metric
	for name, family := range gather(t, full(t)) {
		for _, m := range family.Metric {
			for _, l := range m.Label {
				labelNames[name] = append(labelNames[name], l.GetName())
			}
		}
	}
	for i, p := range board.Panels {
		for _, q := range board.Panels[:i] {
			if p.ID == q.ID || p.overlaps(q) {
				t.Errorf("%q and %q have one id, or one place", p.Title, q.Title)
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%q is beyond the edge", p.Title)
		}
		for j, target := range p.Targets {
			complain := func(what string) { t.Errorf("%q: %s: %s", p.Title, what, target.Expr) }
			if target.RefID != string(rune('A'+j)) {
				complain("queries are named A, B, …")
			}
			selectors := regexp.MustCompile(`(mpcc_\w+)(\{[^}]*\})?`).FindAllStringSubmatch(target.Expr, -1)
			for _, s := range selectors {
				if !strings.Contains(s[2], `instance=~"$instance"`) {
					complain("a query for all hosts")
				}
			}
			for _, span := range regexp.MustCompile(`\[([^]]*)\]`).FindAllStringSubmatch(target.Expr, -1) {
				if span[1] != "$__rate_interval" {
					complain("an interval of its own")
				}
			}
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(variables, v[1]) {
					complain("there is no variable " + v[1])
				}
			}
			for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				metric := strings.TrimSuffix(selectors[0][1], "_bucket")
				if l[1] != "instance" && !slices.Contains(labelNames[metric], l[1]) {
					complain("the legend has a label that it has not: " + l[1])
				}
			}
		}
	}
}

// Every alert has a test in which it fires, and one in which it does not.
func TestAlertsAreTested(t *testing.T) {
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	var tests struct {
		Tests []struct {
			Cases []struct {
				Alertname string
				Expected  []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	for file, into := range map[string]any{"mpcc.rules.yml": &rules, "mpcc.rules.test.yml": &tests} {
		text, err := os.ReadFile("../../deploy/prometheus/" + file)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, c := range test.Cases {
			if len(c.Expected) > 0 {
				fires[c.Alertname] = true
			} else {
				silent[c.Alertname] = true
			}
		}
	}
	for _, rule := range rules.Groups[0].Rules {
		if !fires[rule.Alert] || !silent[rule.Alert] {
			t.Errorf("%s: a test in which it fires: %t, one in which it does not: %t", rule.Alert, fires[rule.Alert], silent[rule.Alert])
		}
	}
}

// Every series that is recorded has a test that shows some of it.
func TestRecordedSeriesAreTested(t *testing.T) {
	var rules struct {
		Groups []struct{ Rules []struct{ Record string } }
	}
	var tests struct {
		Tests []struct {
			Cases []struct {
				Expr     string
				Expected []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	read := func(file string, into any) {
		text, err := os.ReadFile("../../deploy/prometheus/" + file)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read("mpcc.fleet.rules.yml", &rules)
	read("mpcc.fleet.rules.test.yml", &tests)
	shown := map[string]bool{}
	for _, test := range tests.Tests {
		for _, c := range test.Cases {
			for _, name := range regexp.MustCompile(`\w+:mpcc_\w+:\w+`).FindAllString(c.Expr, -1) {
				shown[name] = shown[name] || len(c.Expected) > 0
			}
		}
	}
	for _, rule := range rules.Groups[0].Rules {
		if !shown[rule.Record] {
			t.Errorf("no test shows %s", rule.Record)
		}
	}
}
