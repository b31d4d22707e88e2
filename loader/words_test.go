// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// said fails the test unless the error is one line with this text in it.
func said(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	} else if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}

func TestInputErrorsTellWhere(t *testing.T) {
	for in, want := range map[string]string{
		``:                                  "line 1, column 1: it ends before the value does",
		"{\"a\":\n[1,":                      "line 2, column 4: it ends before the value does",
		"{\"a\":\n oops}":                   "line 2, column 2: invalid character 'o'",
		`[]`:                                "line 1, column 1: array where an object belongs",
		`{"a": {}}`:                         "line 1, column 7: object where an array belongs",
		"{\"a\": [\n{\"x\":\n true}\n]}":    "line 3, column 5: bool where a number belongs",
		"{\"a\": []}\n\n  {\"a\": []}":      "line 3, column 3: something follows the value",
		"{\"a\": []} {\"a\": []}{\"a\":[]}": "line 1, column 11: something follows the value",
		`{"b": 1}`:                          `unknown field "b"`,
	} {
		var value struct {
			A []Numbers `json:"a"`
		}
		t.Run(in, func(t *testing.T) { said(t, readJSON([]byte(in), &value), want) })
	}
}

func TestTunablesAreParsed(t *testing.T) {
	number, err := parseTunable("cap", "2..1000 packets; the most")
	if err != nil {
		t.Fatal(err)
	}
	if got := number.Range(); got != "2..1000 packets" {
		t.Errorf("range %q", got)
	}
	for text, want := range map[string]uint32{"2": 2, "1000": 1000} {
		if got, err := number.parse(text); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"1", "1001", "-1", "2.5", "", "4294967298"} {
		_, err := number.parse(text)
		said(t, err, fmt.Sprintf("--set cap: %q is not one of 2..1000 packets", text))
		if !errors.Is(err, ErrUsage) {
			t.Errorf("%q is no usage error", text)
		}
	}
	words, err := parseTunable("metric", "rate|square; which one")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := words.parse("square"); err != nil || got != 1 {
		t.Errorf("square is %d, %v", got, err)
	}
	_, err = words.parse("1")
	said(t, err, `--set metric: "1" is not one of rate|square`)
	for _, text := range []string{"2..1000 packets", "two..3; words", "2..; none"} {
		if _, err := parseTunable("x", text); err == nil {
			t.Errorf("tunable %q passes", text)
		}
	}
}

func TestErrorsAreInWords(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
		kind error
	}{
		{fmt.Errorf("create map: %w", unix.EPERM), "load x: not permitted; it takes root", nil},
		{fmt.Errorf("attach: %w", unix.EEXIST), "load x: the name is taken", nil},
		{fmt.Errorf("probe: %w", ebpf.ErrNotSupported), "lacks a BPF feature", ErrUnsupported},
		{fmt.Errorf("map a: %w", ebpf.ErrMapIncompatible), "mpcc unload --all removes them", nil},
		{&ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"R1 invalid"}}, "refuses the program; --debug shows its log", ErrUnsupported},
		{errors.New("one\ntwo"), "load x: one two", nil},
	} {
		err := explain("load x", test.err)
		said(t, err, test.want)
		if !errors.Is(err, test.err) {
			t.Errorf("%v hides its cause", err)
		}
		if got := errors.Is(err, ErrUnsupported); got != (test.kind == ErrUnsupported) {
			t.Errorf("%v: unsupported %v", err, got)
		}
	}
	err := explain("load x", &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"R1 invalid"}})
	if log := VerifierLog(err); !strings.Contains(log, "R1 invalid") {
		t.Errorf("log %q", log)
	}
}

func TestDefaultsOfOthersAreNotOurs(t *testing.T) {
	for _, p := range plugs {
		for _, name := range append([]string{"bbr", "", "cc/lia"}, p.own...) {
			if p.isOurs(name) {
				t.Errorf("%q is taken for a %s of mpcc's", name, p.kind.Noun())
			}
		}
		for _, e := range catalog.Entries {
			if p.isOurs(e.Name) != (e.Kind == p.kind) && e.String() == e.Name {
				t.Errorf("is %s a %s of mpcc's? %v", e.ID(), p.kind.Noun(), p.isOurs(e.Name))
			}
		}
	}
}
