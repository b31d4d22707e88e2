// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	experiment "github.com/mpcc/mpcc/internal/experiment/run"
)

// progress shows what mpcc run is doing.
type progress struct {
	stage func(string)              // to call before the first run, with what is being done
	tell  func(experiment.Progress) // to call from then on
	done  func()                    // removes the bar
}

// showProgress shows progress as a bar where out is a terminal, else as lines if these are wanted.
func showProgress(name string, out *os.File, lines bool) progress {
	switch {
	case inGuest():
		return progress{tell: writeProgress, done: func() {}}
	case term.IsTerminal(int(out.Fd())):
		return progressBar(name, out)
	case lines:
		return progressLines(name, out)
	}
	return progress{stage: func(string) {}, tell: func(experiment.Progress) {}, done: func() {}}
}

func progressBar(name string, out io.Writer) progress {
	bar := progressbar.NewOptions(1, progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	return progress{
		stage: func(what string) { bar.Describe(name + " " + what) },
		tell: func(p experiment.Progress) {
			bar.ChangeMax(max(1, int(p.All.Seconds())))
			bar.Describe(fmt.Sprintf("%s %d/%d %s", name, p.Run+1, p.Runs, p.Doing))
			_ = bar.Set(min(int(p.Done.Seconds()), int(p.All.Seconds())-1))
		},
		done: func() { _ = bar.Clear() },
	}
}

// progressLines writes a line for each stage and for each run.
func progressLines(name string, out io.Writer) progress {
	stage := func(what string) { fmt.Fprintf(out, "%s: %s\n", name, what) }
	told := -1
	return progress{
		stage: stage,
		tell: func(p experiment.Progress) {
			if p.Run == told {
				return
			}
			told = p.Run
			what := fmt.Sprintf("run %d of %d", p.Run+1, p.Runs)
			for _, axis := range slices.Sorted(maps.Keys(p.Point)) {
				what += fmt.Sprintf(", %s %s", axis, p.Point[axis])
			}
			stage(what)
		},
		done: func() {},
	}
}

// In a virtual machine, where the environment variable tellProgress is set,
// progress is written among the output: as lines that begin with progressMark.
const (
	tellProgress = "MPCC_TELL_PROGRESS"
	progressMark = "\x1e"
)

func inGuest() bool { return os.Getenv(tellProgress) != "" }

func writeProgress(p experiment.Progress) {
	if line, err := json.Marshal(p); err == nil {
		fmt.Printf("%s%s\n", progressMark, line)
	}
}

// progressReader passes a virtual machine's output on to out, but for the lines of progress, which it shows.
type progressReader struct {
	out  io.Writer
	line []byte // not yet complete
	progress
}

func (r *progressReader) Write(p []byte) (int, error) {
	r.line = append(r.line, p...)
	for {
		end := bytes.IndexByte(r.line, '\n')
		if end < 0 {
			return len(p), nil
		}
		line := r.line[:end+1]
		r.line = r.line[end+1:]
		text, marked := bytes.CutPrefix(line, []byte(progressMark))
		if !marked {
			r.done() // the bar is where the line is to begin
			if _, err := r.out.Write(line); err != nil {
				return 0, err
			}
			continue
		}
		var p experiment.Progress
		if err := json.Unmarshal(text, &p); err == nil {
			r.tell(p)
		}
	}
}
