// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// guestTest is a test that ran in a VM.
type guestTest struct {
	Name     string // without its parents' names
	Outcome  string // pass, fail or skip; "" when it never ended
	Output   string
	Duration time.Duration
	Subtests []*guestTest
}

// event is what is needed of a line that `go tool test2json` prints.
type event struct {
	Action  string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// readTests reads the lines of `go tool test2json`. It calls done with each
// top-level test, with its subtests, when the test ends or, if it never does, at
// the end of the stream. It returns what was printed outside of all tests.
func readTests(r io.Reader, done func(*guestTest)) (rest string, err error) {
	known := map[string]*guestTest{}
	var open []*guestTest // top-level, in the order of their start
	var outside strings.Builder
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return outside.String(), fmt.Errorf("not a line of test2json: %q: %w", lines.Text(), err)
		}
		if e.Test == "" {
			outside.WriteString(e.Output)
			continue
		}
		test := known[e.Test]
		if test == nil {
			test = &guestTest{Name: e.Test}
			known[e.Test] = test
			if parent := parentOf(e.Test, known); parent == "" {
				open = append(open, test)
			} else {
				test.Name = strings.TrimPrefix(e.Test, parent+"/")
				known[parent].Subtests = append(known[parent].Subtests, test)
			}
		}
		switch e.Action {
		case "output":
			if !isFraming(e.Output) {
				test.Output += e.Output
			}
		case "pass", "fail", "skip":
			test.Outcome = e.Action
			test.Duration = time.Duration(e.Elapsed * float64(time.Second))
		}
		for len(open) > 0 && open[0].Outcome != "" {
			done(open[0])
			open = open[1:]
		}
	}
	for _, test := range open {
		done(test)
	}
	return outside.String(), lines.Err()
}

// parentOf returns the name of the test that name is a subtest of; "" for a
// top-level test. A subtest's own name may have slashes in it.
func parentOf(name string, known map[string]*guestTest) string {
	for i := strings.LastIndexByte(name, '/'); i >= 0; i = strings.LastIndexByte(name[:i], '/') {
		if known[name[:i]] != nil {
			return name[:i]
		}
	}
	return ""
}

// isFraming says whether go test itself printed a line, about a test's progress.
func isFraming(line string) bool {
	line = strings.TrimLeft(line, " ")
	for _, prefix := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME ", "--- PASS: ", "--- FAIL: ", "--- SKIP: "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// verdict returns what is wrong with a test's outcome; "" if nothing is. A skip is
// wrong unless it is expected: a test that does not run tests nothing.
func (t *guestTest) verdict(skipExpected bool) string {
	switch {
	case t.Outcome == "pass", t.Outcome == "skip" && skipExpected:
		return ""
	case t.Outcome == "skip":
		return "skipped in the VM, which is not expected with this kernel"
	case t.Outcome == "fail":
		return "failed in the VM"
	}
	return "did not end in the VM"
}
