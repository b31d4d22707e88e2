// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/result"
	experiment "github.com/mpcc/mpcc/internal/experiment/run"
)

// Lines of progress are told apart from the rest of a virtual machine's output,
// in whatever parts it arrives; the rest is passed on as it is.
func TestProgressReader(t *testing.T) {
	const output = "one\n\x1e{\"Run\":1,\"Runs\":4,\"Doing\":\"measuring\",\"Done\":2000000000,\"All\":9000000000}\ntwo\n"
	for size := 1; size <= len(output); size++ {
		var out bytes.Buffer
		var told []experiment.Progress
		r := &progressReader{out: &out, progress: progress{tell: func(p experiment.Progress) { told = append(told, p) }, done: func() {}}}
		for rest := []byte(output); len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := r.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if out.String() != "one\ntwo\n" {
			t.Errorf("in parts of %d the output is %q", size, out.String())
		}
		if len(told) != 1 || told[0].Run != 1 || told[0].Runs != 4 || told[0].Doing != "measuring" ||
			told[0].Done != 2*time.Second || told[0].All != 9*time.Second {
			t.Errorf("in parts of %d it told %+v", size, told)
		}
	}
}

// Where stderr is no terminal each stage, and each run, has a line.
func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	p := progressLines("two", &out)
	p.stage("booting kernel 6.12")
	for run, cc := range []string{"lia", "olia"} {
		for _, doing := range []string{"building", "measuring", "measuring"} {
			p.tell(experiment.Progress{Run: run, Runs: 2, Point: result.Point{"n": "5", "cc": cc}, Doing: doing})
		}
	}
	p.done()
	want := "two: booting kernel 6.12\ntwo: run 1 of 2, cc lia, n 5\ntwo: run 2 of 2, cc olia, n 5\n"
	if out.String() != want {
		t.Errorf("lines %q, want %q", out.String(), want)
	}
}
