// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/strictyaml"
)

const (
	// frameBits are those of the Ethernet frame around a packet of 1500 bytes.
	frameBits = 8 * 1514
	// slowest is the least rate that a link can have: what a trace has as 0.
	slowest Rate = 8e3
	// shortestStep is that of the key step.
	shortestStep = 10 * time.Millisecond
)

// inline replaces the recordings that traces name by their rates: what is run has to be in one file.
func inline(path string, root *yaml.Node) error {
	for _, trace := range entry(root, "traces").Content {
		trace = strictyaml.Target(trace)
		file := entry(trace, "file")
		if file.Value == "" || entry(trace, "rates").Content != nil {
			continue // check tells what is wrong
		}
		var step Duration
		if step.UnmarshalText([]byte(entry(trace, "step").Value)) != nil || step.Std() < shortestStep {
			step = defaultStep // the decoder tells what is wrong
		}
		name := file.Value
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		rates, err := readMahimahi(name, step.Std())
		if err != nil {
			return strictyaml.Problems{{File: path, Line: file.Line, Column: file.Column, Text: err.Error()}}
		}
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Line: file.Line, Column: file.Column}
		for _, r := range rates {
			list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: r.String(), Line: file.Line, Column: file.Column})
		}
		for i := 0; i+1 < len(trace.Content); i += 2 {
			if trace.Content[i].Value == "file" {
				trace.Content[i].Value, trace.Content[i+1] = "rates", list
			}
		}
	}
	return nil
}

const defaultStep = Duration(200 * time.Millisecond)

// longestTrace is in steps: each is a change of the link.
const longestTrace = 100_000

// readMahimahi returns the rates of a recording, each over a step. The last line says where it ends; what is left of the
// last step has the step's rate.
func readMahimahi(path string, step time.Duration) ([]Rate, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var packets []int
	last := int64(0)
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		at, err := strconv.ParseInt(text, 10, 40)
		if err != nil || at < last {
			return nil, fmt.Errorf("%s:%d: %q: a line is a time in whole ms, none before that of the line above", path, n, text)
		}
		last = at
		// A packet at the very end of a step is of that step: the first one comes at 1 ms, or at 0.
		i := int(max(0, at-1) / step.Milliseconds())
		if i >= longestTrace {
			return nil, fmt.Errorf("%s:%d: above %d steps: take a longer step", path, n, longestTrace)
		}
		for len(packets) <= i {
			packets = append(packets, 0)
		}
		packets[i]++
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if last == 0 {
		return nil, fmt.Errorf("%s has no times: it is no recording of Mahimahi", path)
	}
	rates := make([]Rate, len(packets))
	for i, n := range packets {
		length := min(step, time.Duration(last)*time.Millisecond-time.Duration(i)*step)
		rates[i] = Rate(float64(n*frameBits) / length.Seconds())
	}
	return rates, nil
}

// shapes returns the shapes of all links as the file has them.
func (s *Scenario) shapes() (all []*Shape) {
	for i := range s.Links {
		all = append(all, &s.Links[i].Shape)
		if s.Links[i].Back != nil {
			all = append(all, s.Links[i].Back)
		}
	}
	for i := range s.Generate {
		all = append(all, &s.Generate[i].Access, &s.Generate[i].Fabric)
	}
	return all
}

// trace returns the one of a name; nil without any.
func (s *Scenario) trace(name Name) *Trace {
	i := slices.IndexFunc(s.Traces, func(t Trace) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Traces[i]
}

// setRates gives links with a trace its highest rate: at that they are measured before a run. A rate beside a trace is
// left for check to tell.
func (s *Scenario) setRates() {
	for _, shape := range s.shapes() {
		if t := s.trace(shape.Trace); t != nil && len(t.Rates) > 0 && shape.Rate == 0 {
			shape.Rate = t.highest()
		}
	}
}

func (t *Trace) highest() Rate { return max(slices.Max(t.Rates), slowest) }

// Changes returns the events of the run and those that its traces make, in their order.
func (r Run) Changes() []Event {
	s := r.Scenario
	all := slices.Clone(s.Events)
	if len(s.Traces) > 0 {
		end := s.Phases.Warmup + s.Phases.Measure
		into := rand.New(rand.NewPCG(r.Seed, forTraces)).Float64()
		b := build(s)
		for i := range b.Links {
			l := &b.Links[i]
			back := l.Shape
			if l.Back != nil {
				back = *l.Back
			}
			all = append(all, s.trace(l.Trace).events(l.Name, There, into, end)...)
			all = append(all, s.trace(back.Trace).events(l.Name, Back, into, end)...)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return int(a.At - b.At) })
	return all
}

// forTraces is what the random numbers of a run are for, beside 0 and 1 of users and those of packet sim.
const forTraces = 3

// events returns the changes of a link that the trace makes: one wherever the rate is another one.
func (t *Trace) events(link LinkName, way Way, into float64, end Duration) (all []Event) {
	if t == nil {
		return nil
	}
	first, now := int(into*float64(t.Within)/float64(t.Step)), t.highest()
	for i := 0; Duration(i)*t.Step < end; i++ {
		rate := max(t.Rates[(first+i)%len(t.Rates)], slowest)
		if rate != now {
			all = append(all, Event{At: Duration(i) * t.Step, Link: link, Rate: &rate, Only: way})
			now = rate
		}
	}
	return all
}
