// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// results are what a script of the kernel's selftests says of its tests.
type results struct {
	passed          int
	failed, skipped []string // names
}

func (r results) total() int { return r.passed + len(r.failed) + len(r.skipped) }

var (
	tapPlan = regexp.MustCompile(`^1\.\.(\d+)$`)
	tapTest = regexp.MustCompile(`^(ok|not ok) \d+ - (?:\w+: )?(.*?) *(?:# *(.*))?$`)
)

// readTAP reads the results in what a script printed: lines in the Test Anything Protocol, at the end. It is an
// error if some are missing.
func readTAP(text string) (r results, err error) {
	_, text, found := strings.Cut(text, "TAP version 13\n")
	if !found {
		return r, fmt.Errorf("it printed no results")
	}
	planned := -1
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if plan := tapPlan.FindStringSubmatch(line); plan != nil {
			if planned, err = strconv.Atoi(plan[1]); err != nil {
				return r, err
			}
			continue
		}
		test := tapTest.FindStringSubmatch(line)
		switch {
		case test == nil:
		case strings.HasPrefix(test[3], "SKIP"):
			r.skipped = append(r.skipped, test[2])
		case test[1] == "ok" && !strings.HasPrefix(test[3], "IGNORE"): // that is a failure of a test marked as flaky
			r.passed++
		default:
			r.failed = append(r.failed, test[2])
		}
	}
	if planned != r.total() || planned == 0 {
		return r, fmt.Errorf("it printed %d results of %d", r.total(), max(planned, 0))
	}
	return r, nil
}
