// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/test/said"
)

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
		t.Run(in, func(t *testing.T) { said.InALine(t, readJSON([]byte(in), &value), want) })
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
		said.InALine(t, err, fmt.Sprintf("--set cap: %q is not one of 2..1000 packets", text))
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
	said.InALine(t, err, `--set metric: "1" is not one of rate|square`)
	for _, text := range []string{"2..1000 packets", "two..3; words", "2..; none"} {
		if _, err := parseTunable("x", text); err == nil {
			t.Errorf("tunable %q passes", text)
		}
	}
}

// dts has two tunables whose default is not the paper's value, and one whose default is.
func TestPaperSetsWhatThePaperHas(t *testing.T) {
	e, err := catalog.Find("cc/dts")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ set, want map[string]string }{
		{nil, map[string]string{"base_rtt": "window", "min_cwnd": "2", "cap": "off"}},
		{map[string]string{Paper: ""}, map[string]string{"base_rtt": "lifetime", "min_cwnd": "1", "cap": "off"}},
		{
			map[string]string{Paper: "", "min_cwnd": "2", "cap": "on"},
			map[string]string{"base_rtt": "lifetime", "min_cwnd": "2", "cap": "on"},
		},
	} {
		spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
		if err != nil {
			t.Fatal(err)
		}
		given := maps.Clone(test.set)
		if err := setTunables(spec, e, test.set); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(given, test.set) {
			t.Errorf("%v became %v", given, test.set)
		}
		// What was set is now the default of the spec.
		now, err := tunablesOf(spec)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range test.want {
			if i := slices.IndexFunc(now, func(t Tunable) bool { return t.Name == name }); i < 0 || now[i].Default != want {
				t.Errorf("with %v %s is not %s: %+v", test.set, name, want, now)
			}
		}
	}
}

// What docs/gen/defaults.md says of all congestion controls. mpCUBIC has a course of its own and no growth.
func TestDefaultsOfEveryControl(t *testing.T) {
	for _, e := range catalog.Entries {
		if e.Kind != catalog.CC {
			continue
		}
		want := map[string]string{
			"alone": "cubic", "couple": "shared", "growth": "cubic", "plain": "kernel", "response": "queue", "slow_start": "hystart",
		}
		all, err := Tunables(e)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, tunable := range all {
			if want[tunable.Name] != "" {
				got[tunable.Name] = tunable.Default
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s comes with %v, want %v", e, got, want)
		}
	}
}

func TestEveryAlgorithmTakesPaper(t *testing.T) {
	for _, e := range catalog.Entries {
		if err := CheckTunables(e, map[string]string{Paper: ""}); err != nil {
			t.Error(err)
		}
		err := CheckTunables(e, map[string]string{Paper: "1"})
		said.InALine(t, err, "--set paper=1: paper takes no value")
		if !errors.Is(err, ErrUsage) {
			t.Errorf("%v is no usage error", err)
		}
	}
}

func TestPaperValuesAreChecked(t *testing.T) {
	e, err := catalog.Find("cc/dts")
	if err != nil {
		t.Fatal(err)
	}
	for tag, want := range map[string]string{"paper: 3": `tunable min_cwnd: the paper's value "3" is not one of 1..2 packets`, "paper: 2": ""} {
		spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
		if err != nil {
			t.Fatal(err)
		}
		v := spec.Variables["min_cwnd"].Type
		i := slices.Index(v.Tags, "paper: 1")
		if i < 0 {
			t.Fatalf("min_cwnd has the tags %q", v.Tags)
		}
		v.Tags[i] = tag
		all, err := tunablesOf(spec)
		if want != "" {
			said.InALine(t, err, want)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(all, func(t Tunable) bool { return t.Name == "min_cwnd" }); all[i].Paper != "" {
			t.Errorf("the default is the paper's value, but Paper is %q", all[i].Paper)
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
		said.InALine(t, err, test.want)
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
