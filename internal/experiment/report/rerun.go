// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Rerun returns the command that measures again what the first run has, at the points that have the values of at. With
// 0 repeats it runs as many as the scenario plans.
func (e *Experiment) Rerun(at result.Point, repeats int) string {
	run, command := e.Runs[0], e.Command()
	for _, axis := range e.Axes {
		if values := e.values(axis, at); len(values) > 0 {
			command += " --set " + axis + "=" + strings.Join(values, ",")
		}
	}
	if run.Quick {
		command += " --quick"
	}
	if repeats > 0 {
		command += fmt.Sprintf(" --repeats %d", repeats)
	}
	return command + fmt.Sprintf(" --seed %d", run.Seed)
}

// Command returns the command that runs the scenario as it is planned now.
func (e *Experiment) Command() string {
	command := "mpcc run " + e.Scenario.Name
	switch run := e.Runs[0]; {
	case e.Simulated():
		command += " --sim"
	case run.Machine != "":
		command += " --vm=" + series(run.Kernel)
	}
	return command
}

// Simulated says whether no kernel ran it.
func (e *Experiment) Simulated() bool { return e.Runs[0].Kernel == result.Simulated }

// values returns those of an axis at which anything was measured.
func (e *Experiment) values(axis string, at result.Point) []string {
	var values []string
	for _, row := range e.Rows {
		if v := row.Point[axis]; v != "" && row.Point.Agrees(at) && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	if numbers, all := numbersOf(values); all {
		slices.SortFunc(values, func(a, b string) int { return cmp.Compare(numbers[a], numbers[b]) })
	}
	return values
}

// series returns the first two numbers of a kernel's release, as mpcc run --vm takes them.
func series(release string) string {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return release
	}
	return parts[0] + "." + parts[1]
}
