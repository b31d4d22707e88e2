// SPDX-License-Identifier: Apache-2.0

package report

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Whatever a folder of results has in it, which may be anybody's, it gives a report or an error, and nothing in it
// becomes a part of the page's markup.
func FuzzReport(f *testing.F) {
	c := scenarioC()
	c.ccs, c.n1s = c.ccs[:1], c.n1s[:1]
	c.multi["lia"]["10"] = c.multi["lia"]["10"][:2]
	c.expect.Claims = c.expect.Claims[:2]
	folder := f.TempDir()
	c.write(f, folder)
	results, err := os.ReadFile(filepath.Join(folder, result.File))
	if err != nil {
		f.Fatal(err)
	}
	samples, err := os.ReadFile(filepath.Join(folder, "samples/0000.csv"))
	if err != nil {
		f.Fatal(err)
	}
	short := strings.Join(strings.SplitAfterN(string(samples), "\n", 9)[:8], "")
	f.Add(results, short)
	change := func(from, to string) {
		text := strings.ReplaceAll(string(results), from, to)
		if text == string(results) {
			f.Fatalf("the results have no %s", from)
		}
		f.Add([]byte(text), short)
	}
	change(`"lia"`, `"<script>\u001b[2J"`)
	change(`"10"`, `"NaN"`)
	change(`"n1"`, `""`)
	change(`"measured_seconds": 100`, `"measured_seconds": 0`)
	change(`"repeat": 1`, `"repeat": -1`)
	change(`"active_seconds": 100`, `"active_seconds": 1e308`)
	change(`samples/0000.csv`, `../../../../../../etc/passwd`)
	change(`"bars"`, `"traces"`)
	change(`"is": "above"`, `"is": ""`)
	header, rows, _ := strings.Cut(short, "\n")
	for _, column := range []string{"-1e308", "NaN", "18446744073709551615", "", `"`} {
		f.Add(results, header+"\n"+strings.ReplaceAll(rows, ",0,", ","+column+","))
	}
	f.Fuzz(func(t *testing.T, results []byte, samples string) {
		for name, text := range map[string]string{result.File: string(results), "samples/0000.csv": samples} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Load(folder)
		if err != nil {
			return
		}
		if err := r.Text(io.Discard); err != nil {
			t.Fatal(err)
		}
		page, err := r.page()
		if err == nil && strings.Contains(string(page), "<script>\x1b") {
			t.Error("a name is markup")
		}
		for i := range r.Experiments {
			Markdown(Part{&r.Experiments[i], "", func(int) string { return "" }})
		}
	})
}
