// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
)

// The program and the variable of bpf/include/mpcc/eval.h and sched_eval.h.
const (
	evalProgram  = "mpcc_eval"
	evalVariable = "eval"
)

// The parts of that variable, by kind: the struct's member and its name in the JSON.
var evalParts = map[catalog.Kind]struct {
	subflows, decisions string
	given, kept         map[string]string
	results             []string
}{
	catalog.CC: {subflows: "paths", decisions: "decisions"},
	catalog.Sched: {
		subflows: "lanes", decisions: "verdicts",
		given:   map[string]string{"connection": "demand", "memory": "memory"},
		kept:    map[string]string{"memory": "memory"},
		results: []string{"resend", "waits"},
	},
}

// Evaluator runs one decision of an algorithm, the bytecode that Load attaches, on given numbers. It takes
// the rights to load BPF, and is for one goroutine at a time. docs/eval.md lists the keys of its input and
// output, with unit and range.
//
// The numbers are the C variable of bpf/include/mpcc/eval.h or sched_eval.h, as the object's BTF describes
// it: a field is a key.
type Evaluator struct {
	kind      catalog.Kind
	coll      *ebpf.Collection
	subflows  *btf.Struct
	decisions *btf.Struct
	layout    map[string]btf.Member
	max       int
}

// NewEvaluator returns an evaluator of the algorithm with these tunables. The error wraps ErrUsage if it has
// no such tunable.
func NewEvaluator(e catalog.Entry, tunables map[string]string) (*Evaluator, error) {
	spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
	if err != nil {
		return nil, err
	}
	if err := setTunables(spec, e, tunables); err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if name != evalProgram {
			delete(spec.Programs, name)
		}
	}
	for name, m := range spec.Maps {
		if m.Type == ebpf.StructOpsMap {
			delete(spec.Maps, name)
		}
		m.Pinning = ebpf.PinNone
	}
	ev := &Evaluator{kind: e.Kind, layout: map[string]btf.Member{}}
	if err := ev.readLayout(spec); err != nil {
		return nil, fmt.Errorf("%s: %w", e.ID(), err)
	}
	if ev.coll, err = ebpf.NewCollection(spec); err != nil {
		return nil, explain(fmt.Sprintf("evaluate %s", e.Name), err)
	}
	return ev, nil
}

// Close frees the program.
func (ev *Evaluator) Close() { ev.coll.Close() }

func (ev *Evaluator) readLayout(spec *ebpf.CollectionSpec) error {
	v, ok := spec.Variables[evalVariable]
	if !ok {
		return fmt.Errorf("the object has no variable %s", evalVariable)
	}
	s, ok := btf.UnderlyingType(v.Type.Type).(*btf.Struct)
	if !ok {
		return fmt.Errorf("variable %s is not a struct", evalVariable)
	}
	for _, m := range s.Members {
		ev.layout[m.Name] = m
	}
	parts := evalParts[ev.kind]
	subflows, ok := ev.layout[parts.subflows].Type.(*btf.Array)
	if !ok {
		return fmt.Errorf("struct %s has no %s", s.Name, parts.subflows)
	}
	decisions, ok := ev.layout[parts.decisions].Type.(*btf.Array)
	if !ok {
		return fmt.Errorf("struct %s has no %s", s.Name, parts.decisions)
	}
	for _, name := range parts.given {
		if _, ok := btf.UnderlyingType(ev.layout[name].Type).(*btf.Struct); !ok {
			return fmt.Errorf("struct %s has no %s", s.Name, name)
		}
	}
	ev.max = int(subflows.Nelems)
	ev.subflows = btf.UnderlyingType(subflows.Type).(*btf.Struct)
	ev.decisions = btf.UnderlyingType(decisions.Type).(*btf.Struct)
	return nil
}

// Numbers are the numbers of one subflow, or of the connection, by key.
type Numbers map[string]float64

// Input is what there is to decide on: the connection's subflows, 1 to 8. Connection and Memory are for
// packet schedulers alone. A key that is left out is 0.
type Input struct {
	Connection Numbers   `json:"connection,omitempty"`
	Memory     Numbers   `json:"memory,omitempty"`
	Subflows   []Numbers `json:"subflows"`
}

// Output is what was decided for the connection and for each subflow, in the input's order, and what a packet
// scheduler then remembers.
type Output struct {
	Connection Numbers   `json:"connection,omitempty"`
	Memory     Numbers   `json:"memory,omitempty"`
	Subflows   []Numbers `json:"subflows"`
}

// Eval returns the decision for all subflows of a connection. It is an error if a key is unknown or its value
// out of range.
func (ev *Evaluator) Eval(in Input) (Output, error) {
	var out Output
	v := ev.coll.Variables[evalVariable]
	raw := make([]byte, v.Size())
	if err := ev.fill(raw, in); err != nil {
		return out, err
	}
	if err := v.Set(raw); err != nil {
		return out, err
	}
	if _, err := ev.coll.Programs[evalProgram].Run(&ebpf.RunOptions{}); err != nil {
		return out, explain("run the evaluation", err)
	}
	if err := v.Get(raw); err != nil {
		return out, err
	}
	parts, size := evalParts[ev.kind], ev.decisions.Size
	for i := range in.Subflows {
		at := ev.layout[parts.decisions].Offset.Bytes() + uint32(i)*size
		out.Subflows = append(out.Subflows, decode(raw[at:at+size], ev.decisions))
	}
	for _, name := range parts.results {
		if out.Connection == nil {
			out.Connection = Numbers{}
		}
		out.Connection[name] = float64(getUint(raw[ev.layout[name].Offset.Bytes():], 4))
	}
	for _, name := range parts.kept {
		s, at := ev.part(name)
		out.Memory = decode(raw[at:at+s.Size], s)
	}
	return out, nil
}

// part is a struct within the variable, and where it starts.
func (ev *Evaluator) part(name string) (*btf.Struct, uint32) {
	m := ev.layout[name]
	return btf.UnderlyingType(m.Type).(*btf.Struct), m.Offset.Bytes()
}

func (ev *Evaluator) fill(raw []byte, in Input) error {
	if len(in.Subflows) == 0 || len(in.Subflows) > ev.max {
		return fmt.Errorf("subflows: %d given, 1 to %d are possible", len(in.Subflows), ev.max)
	}
	parts := evalParts[ev.kind]
	for key, values := range map[string]Numbers{"connection": in.Connection, "memory": in.Memory} {
		if values == nil {
			continue
		}
		name, ok := parts.given[key]
		if !ok {
			return fmt.Errorf("%s: a %s has none", key, ev.kind.Noun())
		}
		s, at := ev.part(name)
		if err := encode(raw[at:at+s.Size], s, values); err != nil {
			return fmt.Errorf("%s.%w", key, err)
		}
	}
	nativeEndian.PutUint32(raw[ev.layout["count"].Offset.Bytes():], uint32(len(in.Subflows)))
	size := ev.subflows.Size
	for i, p := range in.Subflows {
		at := ev.layout[parts.subflows].Offset.Bytes() + uint32(i)*size
		if err := encode(raw[at:at+size], ev.subflows, p); err != nil {
			return fmt.Errorf("subflows[%d].%w", i, err)
		}
	}
	return nil
}

// EvalJSON is Eval from and to JSON: {"subflows": [{"cwnd": 10, "srtt_us": 50000}, ...]}. Its errors tell
// line and column.
func (ev *Evaluator) EvalJSON(in []byte) ([]byte, error) {
	var input Input
	if err := readJSON(in, &input); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	output, err := ev.Eval(input)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	return json.MarshalIndent(output, "", "  ")
}

// readJSON reads one value and nothing after it; errors tell where.
func readJSON(in []byte, value any) error {
	at := func(offset int64, what string) error {
		before := in[:offset]
		return fmt.Errorf("line %d, column %d: %s", 1+bytes.Count(before, []byte("\n")),
			len(before)-bytes.LastIndexByte(before, '\n'), what)
	}
	dec := json.NewDecoder(bytes.NewReader(in))
	dec.DisallowUnknownFields()
	err := dec.Decode(value)
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return at(syntax.Offset-1, syntax.Error())
	case errors.As(err, &wrong):
		return at(wrong.Offset-1, wrong.Value+" where "+jsonWords[wrong.Type.Kind()]+" belongs")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return at(int64(len(in)), "it ends before the value does")
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if rest := bytes.TrimSpace(in[dec.InputOffset():]); len(rest) > 0 {
		return at(int64(bytes.LastIndex(in, rest)), "something follows the value")
	}
	return nil
}

// jsonWords names what the input is made of.
var jsonWords = map[reflect.Kind]string{
	reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "an array", reflect.Float64: "a number",
}

// fixedSuffixes are the formats a C field's name may end in (fixed.h), the suffix that stays in the
// JSON key, and the factor between the two.
var fixedSuffixes = []struct {
	c, json string
	factor  float64
}{
	{"_us8", "_us", 8},
}

func jsonKey(field string) (key string, factor float64) {
	for _, s := range fixedSuffixes {
		if base, ok := strings.CutSuffix(field, s.c); ok {
			return base + s.json, s.factor
		}
	}
	return field, 1
}

func encode(raw []byte, s *btf.Struct, values Numbers) error {
	left := len(values)
	var known []string
	for _, m := range s.Members {
		key, factor := jsonKey(m.Name)
		known = append(known, key)
		value, ok := values[key]
		if !ok {
			continue
		}
		left--
		if _, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok {
			if value < 0 || math.IsNaN(value) || math.IsInf(value, 0) {
				return fmt.Errorf("%s: %v is out of range, 0 and up", key, value)
			}
			encodeNumber(raw[m.Offset.Bytes():], value)
			continue
		}
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			return err
		}
		number, limit := math.Round(value*factor), math.Ldexp(1, size*8)
		if size == 1 {
			limit = 2 // a byte is a flag
		}
		if value < 0 || number >= limit || math.IsNaN(value) {
			return fmt.Errorf("%s: %v is out of range, 0 to %.0f", key, value, (limit-1)/factor)
		}
		putUint(raw[m.Offset.Bytes():], size, uint64(number))
	}
	if left == 0 {
		return nil
	}
	for key := range values {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s: unknown key; known are %s", key, strings.Join(known, ", "))
		}
	}
	return nil
}

func decode(raw []byte, s *btf.Struct) Numbers {
	d := Numbers{}
	for _, m := range s.Members {
		at := raw[m.Offset.Bytes():]
		if t, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok {
			d[m.Name] = decodeNumber(at, t)
			continue
		}
		size, err := btf.Sizeof(m.Type)
		if err == nil {
			d[m.Name] = float64(getUint(at, size))
		}
	}
	return d
}

// encodeNumber writes the struct of fixed.h that stands for one number: 2^31 <= m < 2^32, or 0.
func encodeNumber(raw []byte, value float64) {
	fraction, exponent := math.Frexp(value)
	m := uint64(math.Ldexp(fraction, 32))
	nativeEndian.PutUint32(raw, uint32(m))
	nativeEndian.PutUint32(raw[4:], uint32(int32(exponent-32)))
}

// decodeNumber reads the structs of fixed.h and path.h that stand for one number.
func decodeNumber(raw []byte, s *btf.Struct) float64 {
	num := func(at []byte) float64 {
		return math.Ldexp(float64(nativeEndian.Uint32(at)), int(int32(nativeEndian.Uint32(at[4:]))))
	}
	switch s.Name {
	case "mpcc_step":
		return num(raw) - num(raw[8:])
	case "mpcc_coupling":
		if nativeEndian.Uint32(raw[8:]) != 0 {
			return -num(raw)
		}
	}
	return num(raw)
}
