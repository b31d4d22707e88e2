// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

type documented struct{ Type, Labels string }

var metricRow = regexp.MustCompile("(?m)^\\| `(mpcc_[a-z_]+)` \\| ([a-z]+) \\| ([^|]+) \\| ([^|]*) \\| (.+) \\|$")

// docs/metrics.md lists every metric, with its type and labels, and no other.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]documented{}
	for _, row := range metricRow.FindAllStringSubmatch(string(text), -1) {
		name, unit := row[1], strings.TrimSpace(row[3])
		if unit != "–" && !strings.Contains(name, strings.ReplaceAll(unit, " ", "_")) {
			t.Errorf("%s does not name its unit, %s", name, unit)
		}
		labels := strings.Fields(row[4])
		slices.Sort(labels)
		want[name] = documented{row[2], strings.Join(labels, " ")}
	}
	got := map[string]documented{}
	for name, f := range gather(t, full(t)) {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		got[name] = documented{strings.ToLower(dto.MetricType_name[int32(f.GetType())]), strings.Join(labels, " ")}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/metrics.md against the exporter: %s", diff)
	}
	descs := make(chan *prometheus.Desc, 100)
	full(t).Describe(descs)
	if len(descs) != len(got) {
		t.Errorf("%d metrics are described, %d shown", len(descs), len(got))
	}
}

// Beside the collector's metrics the server has those that docs/metrics.md names at its end, and no others.
func TestDocumentationOfTheServer(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, end, ok := strings.Cut(string(text), "\nBeside these: ")
	if !ok {
		t.Fatal("docs/metrics.md does not say what is beside its metrics")
	}
	beside := map[string]bool{} // by the beginning of a name: shown
	for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(end, -1) {
		beside[name[1]] = false
	}
	c := full(t)
	handler := newHandler(c)
	own := gather(t, c)
	_, scrape := ask(handler, "/metrics")
	for _, row := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(scrape, -1) {
		known := own[row[1]] != nil
		for name := range beside {
			if strings.HasPrefix(row[1], name) {
				beside[name], known = true, true
			}
		}
		if !known {
			t.Errorf("docs/metrics.md does not name %s", row[1])
		}
	}
	for name, shown := range beside {
		if !shown {
			t.Errorf("docs/metrics.md names %s, which the server does not show", name)
		}
	}
}

// The dashboard and the rules ask for metrics that exist.
func TestDeployedQueries(t *testing.T) {
	known := gather(t, full(t))
	for _, file := range []string{"grafana/mpcc.json", "prometheus/mpcc.rules.yml", "prometheus/mpcc.rules.test.yml", "prometheus/mpcc.fleet.rules.yml", "prometheus/mpcc.fleet.rules.test.yml", "prometheus/prometheus.yml"} {
		text, err := os.ReadFile("../../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		// What rules record has a colon before it.
		names := regexp.MustCompile(`(?:^|[^:\w])(mpcc_[a-z_]+)`).FindAllStringSubmatch(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, match := range names {
			name := match[1]
			if known[strings.TrimSuffix(name, "_bucket")] == nil {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
}
