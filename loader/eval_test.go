// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// evalDoc returns the sections of docs/eval.md by their headings; the text before the first is under "".
func evalDoc(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/eval.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for i, part := range strings.Split(string(text), "\n## ") {
		if i == 0 {
			sections[""] = part
			continue
		}
		heading, body, _ := strings.Cut(part, "\n")
		sections[heading] = body
	}
	return sections
}

func evaluatorOf(t *testing.T, name string) *Evaluator {
	t.Helper()
	e, err := catalog.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	ev, err := NewEvaluator(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ev.Close)
	return ev
}

// The tables name exactly the fields of the C structs, and the text the rest.
func TestEvalDocKeys(t *testing.T) {
	doc := evalDoc(t)
	documented := func(section string) []string {
		var keys []string
		for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+)").FindAllStringSubmatch(doc[section], -1) {
			for _, key := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
				keys = append(keys, key[1])
			}
		}
		slices.Sort(keys)
		return keys
	}
	keys := func(fields []field) []string {
		var keys []string
		for _, f := range fields {
			keys = append(keys, f.key)
		}
		slices.Sort(keys)
		return keys
	}
	check := func(ev *Evaluator, section string, fields []field) {
		t.Helper()
		if got, want := documented(section), keys(fields); !slices.Equal(got, want) {
			t.Errorf("docs/eval.md, %s: the keys are %v, those of a %s are %v", section, got, ev.kind.Noun(), want)
		}
	}
	ev := evaluatorOf(t, "cc/lia")
	check(ev, "Input", ev.in.subflows)
	check(ev, "Output", ev.out.subflows)
	// Each packet scheduler takes the keys of all: one that has many of them, and one that has none.
	for _, name := range []string{"sched/esmptcp", "sched/minrtt"} {
		ev := evaluatorOf(t, name)
		check(ev, "Connection of a packet scheduler", ev.in.connection)
		check(ev, "Memory of a packet scheduler", ev.in.memory)
		check(ev, "Memory of a packet scheduler", ev.out.memory)
		check(ev, "Subflows of a packet scheduler", ev.in.subflows)
		check(ev, "Output of a packet scheduler", ev.out.subflows)
		for _, key := range keys(ev.out.connection) {
			if !strings.Contains(doc["Output of a packet scheduler"], "`"+key+"`") {
				t.Errorf("docs/eval.md does not say what %s of a packet scheduler's connection is", key)
			}
		}
	}
}

// A key is the same number for all packet schedulers that have it.
func TestEvalKeysAgree(t *testing.T) {
	structs, err := ownStructs()
	if err != nil {
		t.Fatal(err)
	}
	parts := evalParts[catalog.Sched]
	shared := 0
	for _, member := range []string{
		parts.in.connection, parts.in.memory, parts.in.subflows, parts.out.connection, parts.out.subflows,
	} {
		first := map[string]string{}
		kinds := map[string]field{}
		for name, s := range structs {
			fields, err := fieldsOf(s, member, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fields {
				kind := field{size: f.size, factor: f.factor, number: f.number, places: f.places}
				if other, ok := first[f.key]; !ok {
					first[f.key], kinds[f.key] = name, kind
				} else if shared++; kind != kinds[f.key] {
					t.Errorf("%s.%s is %+v to %s, and %+v to %s", member, f.key, kind, name, kinds[f.key], other)
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no two packet schedulers share a key; emtcp and esmptcp do")
	}
}

// What only another packet scheduler has use for is taken, checked and left alone.
func TestEvalLeavesForeignKeysAlone(t *testing.T) {
	ev := evaluatorOf(t, "sched/minrtt")
	subflow := func(foreign Numbers) []Numbers {
		maps.Copy(foreign, Numbers{"cwnd": 10, "mss": 1460, "srtt_us": 20000})
		return []Numbers{foreign}
	}
	alone, err := ev.Eval(Input{Subflows: subflow(Numbers{})})
	if err != nil {
		t.Fatal(err)
	}
	memory := Numbers{"k": 3, "lambda_percent": 110, "leader": 2}
	got, err := ev.Eval(Input{
		Connection: Numbers{"copying": 1},
		Memory:     memory,
		Subflows:   subflow(Numbers{"loss": 0.1, "served": 5000, "base_uw": 7, "deviation_us": 1, "max_srtt_us": 0.5}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range memory {
		if got.Memory[key] != value {
			t.Errorf("memory.%s is %v, given was %v", key, got.Memory[key], value)
		}
	}
	if !maps.Equal(got.Connection, alone.Connection) || !maps.Equal(got.Subflows[0], alone.Subflows[0]) {
		t.Errorf("with keys of other schedulers the decision is %v, %v; it was %v, %v",
			got.Connection, got.Subflows[0], alone.Connection, alone.Subflows[0])
	}
	for _, c := range []struct {
		in   Input
		want string
	}{
		{Input{Memory: Numbers{"waiting": 2}}, "memory.waiting: 2 is out of range, 0 to 1"},
		{Input{Connection: Numbers{"mor": 1}}, "connection.mor: unknown key; " +
			"known are now_us, window, unsent, outstanding, reinject, resent, dropped, fresh, awaited, piece, waited_us, early, repeating, repeated, more, copying, copied"},
	} {
		c.in.Subflows = subflow(Numbers{})
		if _, err := ev.Eval(c.in); err == nil || err.Error() != c.want {
			t.Errorf("%v: error is %v, want %s", c.in, err, c.want)
		}
	}
}

func TestEvalDocExample(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```json[^\n]*\n(.*?)```").FindAllStringSubmatch(evalDoc(t)[""], -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/eval.md has %d examples of JSON, not an input and an output", len(blocks))
	}
	output, err := evaluatorOf(t, "cc/lia").EvalJSON([]byte(blocks[0][1]))
	if err != nil {
		t.Fatal(err)
	}
	var got, want struct{ Subflows []map[string]float64 }
	if err := json.Unmarshal(output, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(blocks[1][1]), &want); err != nil {
		t.Fatal(err)
	}
	if len(got.Subflows) != len(want.Subflows) {
		t.Fatalf("%d subflows, want %d", len(got.Subflows), len(want.Subflows))
	}
	for i, w := range want.Subflows {
		if len(got.Subflows[i]) != len(w) {
			t.Errorf("subflows[%d] is %v, want %v", i, got.Subflows[i], w)
		}
		for key, value := range w {
			if math.Abs(got.Subflows[i][key]-value) > 1e-6 {
				t.Errorf("subflows[%d].%s is %v, want %v", i, key, got.Subflows[i][key], value)
			}
		}
	}
}

func TestEvalDocSchedulerExample(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```json[^\n]*\n(.*?)```").FindAllStringSubmatch(evalDoc(t)["Packet schedulers"], -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/eval.md has %d examples of a packet scheduler's JSON, not one", len(blocks))
	}
	output, err := evaluatorOf(t, "sched/ecf").EvalJSON([]byte(blocks[0][1]))
	if err != nil {
		t.Fatal(err)
	}
	var got Output
	if err := json.Unmarshal(output, &got); err != nil {
		t.Fatal(err)
	}
	if got.Connection["waits"] != 1 || got.Memory["waiting"] != 1 || got.Subflows[1]["refused"] != 1 {
		t.Errorf("docs/eval.md tells of a wait; there is %s", output)
	}
}

func TestEvalDocErrors(t *testing.T) {
	ev := evaluatorOf(t, "cc/lia")
	rows := regexp.MustCompile("(?m)^\\| `(.*)` \\| `(.*)` \\|$").FindAllStringSubmatch(evalDoc(t)["Errors"], -1)
	if len(rows) == 0 {
		t.Fatal("docs/eval.md lists no errors")
	}
	for _, row := range rows {
		output, err := ev.EvalJSON([]byte(row[1]))
		if err == nil {
			t.Errorf("%s: no error, but %s", row[1], output)
		} else if err.Error() != row[2] {
			t.Errorf("%s: error is\n%s, want\n%s", row[1], err, row[2])
		}
	}
}

// The largest numbers stay what they are, and the next ones are refused.
func TestEvalLimits(t *testing.T) {
	ev := evaluatorOf(t, "cc/lia")
	for _, c := range []struct {
		key   string
		value float64
		pass  bool
	}{
		{"cwnd", 1<<32 - 1, true},
		{"cwnd", 1<<32 - 0.5, false}, // rounds to 2^32
		{"srtt_us", 1<<29 - 0.125, true},
		{"srtt_us", 1<<29 - 0.05, false},
		{"bytes_since_loss", 1 << 63, true},
		{"bytes_since_loss", 1 << 64, false},
		{"closing", 1, true},
		{"cwnd", math.NaN(), false},
		{"cwnd", math.Inf(1), false},
	} {
		_, err := ev.Eval(Input{Subflows: []Numbers{{c.key: c.value}}})
		if (err == nil) != c.pass {
			t.Errorf("%s %v: %v", c.key, c.value, err)
		}
	}
}
