// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const traced = `name: try
title: A try
source: nobody
phases: {warmup: 1 s, measure: 4 s}
traces:
  - {name: down, step: 1 s, rates: [4 Mbit/s, 0 bit/s, 0 bit/s, 8 Mbit/s]}
  - {name: up, file: ./cell.up, step: 100 ms}
hosts: [{name: train}, {name: server}]
routers: [core]
links:
  - {name: lan, between: [core, server]}
  - {name: lte, between: [core, train], trace: down, queue: {bytes: 150 KB}, back: {trace: up, queue: {bytes: 60 KB}}}
users:
  - {name: user, from: train, to: server, traffic: bulk}
events:
  - {at: 2500 ms, link: lte, delay: 20 ms}
`

// change is an event in short.
func change(e Event) string {
	what := e.At.String() + " " + string(e.Link)
	if e.Rate != nil {
		what += " " + e.Rate.String()
	}
	return what + fmt.Sprint(" ", e.Changes(There), e.Changes(Back))
}

func TestTraces(t *testing.T) {
	folder := t.TempDir()
	// Four packets in the first 100 ms, one in the second, none in the third, two in the 50 ms that are left.
	recording := "10\n10\n50\n100\n101\n320\n350\n"
	if err := os.WriteFile(filepath.Join(folder, "cell.up"), []byte(recording), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "try.yaml")
	if err := os.WriteFile(path, []byte(traced), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	// What is run, and kept, needs no other file.
	if f, err = Parse("elsewhere.yaml", []byte(f.YAML())); err != nil {
		t.Fatal(err)
	}
	frame := 8 * 1514.0
	want := []Rate{Rate(4 * frame / 0.1), Rate(frame / 0.1), 0, Rate(2 * frame / 0.05)}
	if diff := cmp.Diff(want, f.Traces[1].Rates); diff != "" {
		t.Errorf("the recording is read as %s", diff)
	}
	run := f.Runs(false)[0]
	l := run.Network().Links[1]
	if l.Rate != 8e6 || l.Back.Rate != want[0] { // the highest
		t.Errorf("the link begins with %v and %v", l.Rate, l.Back.Rate)
	}
	var down, both []string
	up := 0
	for _, e := range run.Changes() {
		switch {
		case e.Only == BothWays:
			both = append(both, change(e))
		case e.Changes(There):
			down = append(down, change(e))
		default:
			if up++; *e.Rate != max(want[int(e.At.Std()/(100*time.Millisecond))%4], 8e3) {
				t.Errorf("the way back changes at %v to %v", e.At, e.Rate)
			}
		}
	}
	if diff := cmp.Diff([]string{"0 ns lte 4 Mbit/s true false", "1 s lte 8 kbit/s true false", "3 s lte 8 Mbit/s true false", "4 s lte 4 Mbit/s true false"}, down); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"2.5 s lte true true"}, both); diff != "" {
		t.Error(diff)
	}
	if up != 37 { // at 49 steps, less 12 at which the recording begins anew with the rate that it ended with
		t.Errorf("the way back changes %d times", up)
	}
}

// Traces of a run begin equally far in, and elsewhere in another repeat.
func TestTracesBeginAnywhere(t *testing.T) {
	text := strings.Replace(traced, "{name: up, file: ./cell.up, step: 100 ms}", "{name: up, step: 1 s, within: 4 s, rates: [4 Mbit/s, 0 bit/s, 0 bit/s, 8 Mbit/s]}", 1)
	text = strings.Replace(text, "name: down,", "name: down, within: 4 s,", 1)
	f, err := Parse("try.yaml", []byte(text+"repeats: 20\n"))
	if err != nil {
		t.Fatal(err)
	}
	begins := map[string]bool{}
	for _, run := range f.Runs(false) {
		var ways [2]string
		for _, e := range run.Changes() {
			if e.Only != BothWays {
				ways[e.Only-There] += fmt.Sprint(e.At, *e.Rate, " ")
			}
		}
		if ways[0] != ways[1] {
			t.Fatalf("there %s, back %s", ways[0], ways[1])
		}
		begins[ways[0]] = true
	}
	if len(begins) < 3 {
		t.Errorf("20 repeats begin in %d ways", len(begins))
	}
}

func TestTraceMistakes(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := strings.Replace(traced, "file: ./cell.up, step: 100 ms", "rates: [1 Mbit/s]", 1)
	for _, c := range []struct{ old, new, says string }{
		{"", "", ""},
		{"trace: down,", "trace: dwn,", "no trace dwn: there are down, up"},
		{"trace: down,", "trace: down, rate: 1 Mbit/s,", "a rate beside a trace"},
		{"queue: {bytes: 150 KB}", "queue: {packets: 10}", "a trace needs a queue in bytes"},
		{"name: up, rates: [1 Mbit/s]", "name: up", "trace up: give one of rates and file"},
		{"name: up, rates: [1 Mbit/s]", "name: up, file: x, rates: [1 Mbit/s]", "trace up: give one of rates and file"},
		{"name: up,", "name: down,", "there is another trace down"},
		{"name: up, rates: [1 Mbit/s]", "name: up, file: " + write("words", "1\ntwo\n"), `words:2: "two": a line is a time in whole ms`},
		{"name: up, rates: [1 Mbit/s]", "name: up, file: " + write("back", "5\n4\n"), `back:2: "4": a line is a time`},
		{"name: up, rates: [1 Mbit/s]", "name: up, file: " + write("empty", ""), "empty has no times"},
		{"name: up, rates: [1 Mbit/s]", "name: up, file: nowhere", "nowhere: no such file"},
		{"name: up, rates: [1 Mbit/s]", "name: up, file: " + write("long", "1000000000\n"), "long:1: above 100000 steps"},
	} {
		_, err := Parse(filepath.Join(folder, "try.yaml"), []byte(strings.Replace(plain, c.old, c.new, 1)))
		if c.says == "" && err == nil {
			continue
		}
		if err == nil || c.says == "" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}
