// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
)

// The program and the variables of bpf/include/mpcc/eval.h and sched_eval.h.
const (
	evalProgram     = "mpcc_eval"
	evalVariable    = "eval"
	evalOwnVariable = "eval_own"  // of a packet scheduler
	evalOwnStruct   = "sched_own" // the C struct in it
)

// evalMembers names the members of a C struct that hold what is in the objects of the JSON. That of subflows is
// an array with an element for each.
type evalMembers struct{ connection, memory, subflows string }

var evalParts = map[catalog.Kind]struct{ in, out evalMembers }{
	catalog.CC: {in: evalMembers{subflows: "paths"}, out: evalMembers{subflows: "decisions"}},
	catalog.Sched: {
		in:  evalMembers{connection: "demand", memory: "memory", subflows: "lanes"},
		out: evalMembers{connection: "outcome", memory: "memory", subflows: "verdicts"},
	},
}

// evalFields are the fields that the objects of the JSON may have.
type evalFields struct{ connection, memory, subflows []field }

// add adds the fields of a struct whose keys are not there yet.
func (e *evalFields) add(s *btf.Struct, image int, members evalMembers) error {
	for _, part := range []struct {
		fields *[]field
		member string
	}{
		{&e.connection, members.connection}, {&e.memory, members.memory}, {&e.subflows, members.subflows},
	} {
		fields, err := fieldsOf(s, part.member, image)
		if err != nil {
			return err
		}
		for _, f := range fields {
			if !hasKey(*part.fields, f.key) {
				*part.fields = append(*part.fields, f)
			}
		}
	}
	return nil
}

// evalImage describes the bytes of a C struct: those of a variable of the program, or, for the keys that only
// another packet scheduler uses, bytes that no program sees.
type evalImage struct {
	variable string // "" for the latter
	size     int
}

// Evaluator runs one decision of an algorithm, the bytecode that Load attaches, on given numbers. It takes
// the rights to load BPF, and is for one goroutine at a time. docs/eval.md lists the keys of its input and
// output, with unit and range.
//
// The numbers are the C variables of bpf/include/mpcc/eval.h or sched_eval.h, as the object's BTF describes
// them: a field is a key. A key that only another packet scheduler uses is taken too: its range is checked, it
// changes nothing, and one of the memory comes back as it was given.
type Evaluator struct {
	kind    catalog.Kind
	coll    *ebpf.Collection
	images  []evalImage
	in, out evalFields
	count   field // of the subflows
}

// NewEvaluator returns an evaluator of the algorithm with these tunables. The error wraps ErrUsage if it has
// no such tunable.
func NewEvaluator(e catalog.Entry, tunables map[string]string) (*Evaluator, error) {
	spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
	if err != nil {
		return nil, err
	}
	return newEvaluator(spec, e, tunables)
}

// NewEvaluator is as the function of that name. The object has to be built with mpcc's headers.
func (o *Object) NewEvaluator(tunables map[string]string) (*Evaluator, error) {
	spec, err := o.spec()
	if err != nil {
		return nil, err
	}
	if spec.Programs[evalProgram] == nil {
		return nil, usage("%s: it cannot be evaluated: only what is built with mpcc's headers has the program %s", o.File, evalProgram)
	}
	return newEvaluator(spec, o.Entry, tunables)
}

func newEvaluator(spec *ebpf.CollectionSpec, e catalog.Entry, tunables map[string]string) (*Evaluator, error) {
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
	ev := &Evaluator{kind: e.Kind}
	if err := ev.readLayout(spec, e); err != nil {
		return nil, fmt.Errorf("%s: %w", e.ID(), err)
	}
	var err error
	if ev.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types}); err != nil {
		return nil, explain(fmt.Sprintf("evaluate %s", e.Name), err)
	}
	return ev, nil
}

// Close frees the program.
func (ev *Evaluator) Close() { ev.coll.Close() }

func (ev *Evaluator) readLayout(spec *ebpf.CollectionSpec, e catalog.Entry) error {
	v, ok := spec.Variables[evalVariable]
	if !ok || v.Type == nil {
		return fmt.Errorf("the object has no variable %s", evalVariable)
	}
	s, ok := btf.UnderlyingType(v.Type.Type).(*btf.Struct)
	if !ok {
		return fmt.Errorf("variable %s is not a struct", evalVariable)
	}
	if err := ev.add(s, evalImage{evalVariable, int(v.Size())}); err != nil {
		return err
	}
	i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == "count" })
	if i < 0 || ev.in.subflows == nil || ev.out.subflows == nil {
		return fmt.Errorf("struct %s lacks the count of subflows or a list of them", s.Name)
	}
	ev.count = field{key: "count", at: s.Members[i].Offset.Bytes(), size: 4, factor: 1}
	if e.Kind == catalog.Sched {
		if err := ev.addOwn(spec, e); err != nil {
			return err
		}
	}
	return ev.checkPlaces()
}

// checkPlaces returns an error if a field is not within its variable: sizes in somebody else's object need not agree.
func (ev *Evaluator) checkPlaces() error {
	for _, fields := range [][]field{
		{ev.count}, ev.in.connection, ev.in.memory, ev.in.subflows, ev.out.connection, ev.out.memory, ev.out.subflows,
	} {
		for _, f := range fields {
			if size := ev.images[f.image].size; f.end() > uint64(size) {
				return fmt.Errorf("%s ends at byte %d of a variable of %d", f.key, f.end(), size)
			}
		}
	}
	if in, out := ev.in.subflows[0].places, ev.out.subflows[0].places; in != out {
		return fmt.Errorf("it takes %d subflows and decides for %d", in, out)
	}
	return nil
}

// addOwn adds what a packet scheduler has for itself, and what the others have.
func (ev *Evaluator) addOwn(spec *ebpf.CollectionSpec, e catalog.Entry) error {
	own, ok := spec.Variables[evalOwnVariable]
	if !ok {
		return fmt.Errorf("the object has no variable %s", evalOwnVariable)
	}
	structs, err := ownStructs()
	if err != nil {
		return err
	}
	var its *btf.Struct
	if err := spec.Types.TypeByName(evalOwnStruct, &its); err != nil {
		return fmt.Errorf("struct %s: %w", evalOwnStruct, err)
	}
	if err := ev.add(its, evalImage{evalOwnVariable, int(own.Size())}); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(structs)) {
		if name == e.Name {
			continue
		}
		if err := ev.add(structs[name], evalImage{size: int(structs[name].Size)}); err != nil {
			return err
		}
	}
	return nil
}

// add adds an image, which holds a struct, and the fields of that struct whose keys no image before it has.
func (ev *Evaluator) add(s *btf.Struct, of evalImage) error {
	ev.images = append(ev.images, of)
	parts, i := evalParts[ev.kind], len(ev.images)-1
	if err := ev.in.add(s, i, parts.in); err != nil {
		return err
	}
	return ev.out.add(s, i, parts.out)
}

// ownStructs returns struct sched_own of every packet scheduler, by the scheduler's name.
var ownStructs = sync.OnceValues(func() (map[string]*btf.Struct, error) {
	structs := map[string]*btf.Struct{}
	for _, e := range catalog.Entries {
		if e.Kind != catalog.Sched {
			continue
		}
		spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
		if err != nil {
			return nil, err
		}
		var s *btf.Struct
		if err := spec.Types.TypeByName(evalOwnStruct, &s); err != nil {
			return nil, fmt.Errorf("%s: struct %s: %w", e.ID(), evalOwnStruct, err)
		}
		structs[e.Name] = s
	}
	return structs, nil
})

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
	images := make([][]byte, len(ev.images))
	for i, image := range ev.images {
		images[i] = make([]byte, image.size)
	}
	if err := ev.fill(images, in); err != nil {
		return out, err
	}
	for i, image := range ev.images {
		if image.variable == "" {
			continue
		}
		if err := ev.coll.Variables[image.variable].Set(images[i]); err != nil {
			return out, err
		}
	}
	if _, err := ev.coll.Programs[evalProgram].Run(&ebpf.RunOptions{}); err != nil {
		return out, explain("run the evaluation", err)
	}
	for i, image := range ev.images {
		if image.variable == "" {
			continue
		}
		if err := ev.coll.Variables[image.variable].Get(images[i]); err != nil {
			return out, err
		}
	}
	out.Connection = decode(images, ev.out.connection, 0)
	out.Memory = decode(images, ev.out.memory, 0)
	for i := range in.Subflows {
		out.Subflows = append(out.Subflows, decode(images, ev.out.subflows, i))
	}
	return out, nil
}

func (ev *Evaluator) fill(images [][]byte, in Input) error {
	if n, most := len(in.Subflows), ev.in.subflows[0].places; n == 0 || n > most {
		return fmt.Errorf("subflows: %d given, 1 to %d are possible", n, most)
	}
	for _, part := range []struct {
		key    string
		values Numbers
		fields []field
	}{
		{"connection", in.Connection, ev.in.connection}, {"memory", in.Memory, ev.in.memory},
	} {
		if part.values != nil && part.fields == nil {
			return fmt.Errorf("%s: a %s has none", part.key, ev.kind.Noun())
		}
		if err := encode(images, part.fields, 0, part.values); err != nil {
			return fmt.Errorf("%s.%w", part.key, err)
		}
	}
	for i, values := range in.Subflows {
		if err := encode(images, ev.in.subflows, i, values); err != nil {
			return fmt.Errorf("subflows[%d].%w", i, err)
		}
	}
	return ev.count.write(images[0], float64(len(in.Subflows)))
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
