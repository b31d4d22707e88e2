// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadTests(t *testing.T) {
	stream := `{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Test":"TestA/one"}
{"Action":"run","Test":"TestA/two/three"}
{"Action":"output","Test":"TestA/one","Output":"    a_test.go:3: told\n"}
{"Action":"output","Test":"TestA/one","Output":"    --- PASS: TestA/one (0.25s)\n"}
{"Action":"pass","Test":"TestA/one","Elapsed":0.25}
{"Action":"skip","Test":"TestA/two/three","Elapsed":0}
{"Action":"pass","Test":"TestA","Elapsed":1.5}
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestC"}
{"Action":"fail","Test":"TestC","Elapsed":2}
{"Action":"output","Output":"panic: lost\n"}
{"Action":"fail","Elapsed":4}
`
	var got []*guestTest
	rest, err := readTests(strings.NewReader(stream), func(test *guestTest) { got = append(got, test) })
	if err != nil {
		t.Fatal(err)
	}
	want := []*guestTest{
		{Name: "TestA", Outcome: "pass", Duration: 1500 * time.Millisecond, Subtests: []*guestTest{
			{Name: "one", Outcome: "pass", Output: "    a_test.go:3: told\n", Duration: 250 * time.Millisecond},
			{Name: "two/three", Outcome: "skip"},
		}},
		{Name: "TestB"},
		{Name: "TestC", Outcome: "fail", Duration: 2 * time.Second},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	if rest != "panic: lost\n" {
		t.Errorf("outside of tests: %q", rest)
	}
}

// A test is told at its end, not at the end of the run: runs take minutes.
func TestReadTestsTellsAtOnce(t *testing.T) {
	stream := `{"Action":"run","Test":"TestA"}
{"Action":"pass","Test":"TestA"}
not JSON`
	told := 0
	_, err := readTests(strings.NewReader(stream), func(*guestTest) { told++ })
	if told != 1 || err == nil || !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("told %d tests, error %v", told, err)
	}
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		outcome      string
		skipExpected bool
		good         bool
	}{
		{"pass", false, true},
		{"pass", true, true}, // the whole run tells that the list is out of date
		{"skip", true, true},
		{"skip", false, false},
		{"fail", false, false},
		{"fail", true, false},
		{"", false, false},
		{"", true, false},
	} {
		fault := (&guestTest{Outcome: test.outcome}).verdict(test.skipExpected)
		if (fault == "") != test.good {
			t.Errorf("outcome %q, skip expected %v: %q", test.outcome, test.skipExpected, fault)
		}
	}
}
