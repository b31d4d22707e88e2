// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

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

// The tables name exactly the fields of the C structs.
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
	fields := func(s *btf.Struct) []string {
		var keys []string
		for _, m := range s.Members {
			key, _ := jsonKey(m.Name)
			keys = append(keys, key)
		}
		slices.Sort(keys)
		return keys
	}
	ev := evaluatorOf(t, "cc/lia")
	if got, want := documented("Input"), fields(ev.subflows); !slices.Equal(got, want) {
		t.Errorf("docs/eval.md, Input: the keys are %v, those of struct mpcc_path are %v", got, want)
	}
	if got, want := documented("Output"), fields(ev.decisions); !slices.Equal(got, want) {
		t.Errorf("docs/eval.md, Output: the keys are %v, those of struct mpcc_decision are %v", got, want)
	}
	ev = evaluatorOf(t, "sched/minrtt")
	connection, _ := ev.part("demand")
	memory, _ := ev.part("memory")
	for part, s := range map[string]*btf.Struct{
		"Connection": connection, "Memory": memory, "Subflows": ev.subflows, "Output": ev.decisions,
	} {
		section := part + " of a packet scheduler"
		if got, want := documented(section), fields(s); !slices.Equal(got, want) {
			t.Errorf("docs/eval.md, %s: the keys are %v, those of struct %s are %v", section, got, s.Name, want)
		}
	}
}

func TestEvalDocExample(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(evalDoc(t)[""], -1)
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
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(evalDoc(t)["Packet schedulers"], -1)
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
