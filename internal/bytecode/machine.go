// SPDX-License-Identifier: Apache-2.0

// Package bytecode runs the programs of a BPF object in user space, on any machine and without any rights: it translates
// their instructions to WebAssembly, which wazero compiles to the machine's own code, or interprets where it has no
// compiler for it.
//
// An object's addresses are those of its own BTF, as it was compiled: nothing is relocated to a kernel. Kernel structs
// are memory that the caller allocates, and kernel functions are functions in Go that he gives.
//
// A function of the object becomes one of WebAssembly, a register a local variable, and the stack, the values of maps
// and what is allocated lie in one memory. An address outside it ends the program. Programs are taken to have passed a
// kernel's verifier: that they end, and that they read what they have written, is not checked. Results are the same, bit
// by bit, on all machines, and those of the kernel.
package bytecode

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Addresses of programs begin here, so that a null pointer and what is near one leads nowhere. Behind it come the
// stack, then what is allocated.
const (
	nowhere    = 1 << 16
	callDepth  = 8 // functions that call each other, as in the kernel
	stackBytes = callDepth * frameBytes
)

// The WebAssembly module's imports that every program has, and its global.
const (
	importFault = 0
	importWatch = 1
	imports     = 2
	globalEnd   = 0 // the last offset at which eight bytes can be read
)

const castFunction = "bpf_rdonly_cast"

const pageBytes = 1 << 16

var errUnknown = errors.New("this instruction is not supported")

// Call is a call of a helper or a kernel function. It gives what r0 is to be.
type Call func(r1, r2, r3, r4, r5 uint64) uint64

// Function is a helper or a kernel function.
type Function struct {
	Arguments int // how many of the registers it has use for
	Call      Call
}

// Watch has a function called with the address whenever a program takes one for a pointer to the type, by
// bpf_rdonly_cast.
type Watch struct {
	Type btf.TypeID
	Call func(address uint64)
}

// Options say what a machine has beside the object.
type Options struct {
	Helpers   map[asm.BuiltinFunc]Function
	Functions map[string]Function // the kernel's, by name
	Watch     *Watch
	Interpret bool // also where there is a compiler
}

// Fault is an access outside the memory. It ends the program.
type Fault struct {
	Function    string
	Index       int // of the instruction in the function
	Instruction string
	Address     uint64
}

func (f *Fault) Error() string {
	return fmt.Sprintf("function %s, instruction %d (%s): %#x is no address of anything", f.Function, f.Index, f.Instruction, f.Address)
}

// host is a function that programs call and the machine has.
type host struct {
	Function
	name  string
	index uint64
}

// Machine holds the programs of one object, with their maps and memory. It is for one goroutine at a time.
type Machine struct {
	options   Options
	functions map[string]*function
	order     []*function // by their index
	hosts     []*host
	places    []place // the instructions that may fault
	variables map[string]*ebpf.VariableSpec
	maps      map[string]*Map
	byHandle  []*Map

	runtime wazero.Runtime
	module  api.Module
	end     api.MutableGlobal
	memory  []byte
	free    uint64 // offset of the first byte that is not allocated
	ctx     context.Context
}

// compiled keeps what was compiled, for good: repeats of an experiment run the same programs, side by side too, and what
// tunables change is in the memory.
var compiled = wazero.NewCompilationCache()

// New returns a machine with the object's programs, its variables as they stand in the spec, and empty maps.
func New(spec *ebpf.CollectionSpec, o Options) (*Machine, error) {
	m := &Machine{
		options: o, functions: map[string]*function{}, variables: spec.Variables,
		maps: map[string]*Map{}, ctx: context.Background(), free: stackBytes,
	}
	if spec.ByteOrder != nil && spec.ByteOrder != binary.LittleEndian {
		return nil, errors.New("the object is big-endian, which is not supported")
	}
	if err := m.addMaps(spec); err != nil {
		return nil, err
	}
	programs := slices.Sorted(maps.Keys(spec.Programs))
	for _, name := range programs {
		if err := m.addFunctions(name, spec.Programs[name].Instructions); err != nil {
			return nil, err
		}
	}
	text, err := m.write(programs)
	if err != nil {
		return nil, err
	}
	if err := m.start(text); err != nil {
		m.Close()
		return nil, fmt.Errorf("run the translated programs: %w", err)
	}
	if err := m.fill(spec); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close frees the machine's programs and memory.
func (m *Machine) Close() error {
	if m.runtime == nil {
		return nil
	}
	return m.runtime.Close(m.ctx)
}

// addFunctions takes a program apart into its functions. Programs may share some.
func (m *Machine) addFunctions(program string, insns asm.Instructions) error {
	if len(insns) == 0 {
		return fmt.Errorf("program %s is empty", program)
	}
	called := map[string]bool{}
	for _, ins := range insns {
		if ins.IsFunctionCall() {
			called[ins.Reference()] = true
		}
	}
	var f *function
	for i, ins := range insns {
		name := ins.Symbol()
		switch {
		case i == 0:
			name = program
		case !called[name]:
			name = ""
		}
		if name != "" {
			f = &function{name: name, arguments: -1}
			if m.functions[name] == nil {
				m.functions[name] = f
				m.order = append(m.order, f)
			}
		}
		f.insns = append(f.insns, ins)
	}
	return nil
}

// host returns the function that a call of a helper or a kernel function leads to.
func (m *Machine) host(ins asm.Instruction) (*host, error) {
	var name string
	var f Function
	ok := false
	switch {
	case ins.IsBuiltinCall():
		name = asm.BuiltinFunc(ins.Constant).String()
		if f, ok = m.options.Helpers[asm.BuiltinFunc(ins.Constant)]; !ok {
			f, ok = m.helper(asm.BuiltinFunc(ins.Constant))
		}
	case ins.IsKfuncCall():
		name = ins.Reference()
		f, ok = m.options.Functions[name]
	}
	if !ok {
		return nil, fmt.Errorf("the function %s is not supported", name)
	}
	if i := slices.IndexFunc(m.hosts, func(h *host) bool { return h.name == name }); i >= 0 {
		return m.hosts[i], nil
	}
	h := &host{f, name, imports + uint64(len(m.hosts))}
	m.hosts = append(m.hosts, h)
	return h, nil
}

// constant is what a 64-bit constant stands for: itself, a map's handle or an address.
func (m *Machine) constant(ins asm.Instruction) (int64, error) {
	switch {
	case ins.IsLoadFromMap():
		p, ok := m.maps[ins.Reference()]
		switch {
		case !ok:
			return 0, fmt.Errorf("there is no map %s", ins.Reference())
		case ins.Src == asm.PseudoMapFD:
			return p.handle, nil
		case p.array == 0:
			return 0, fmt.Errorf("map %s has no values at fixed addresses", ins.Reference())
		}
		return int64(p.array + uint64(ins.Constant)>>32), nil
	case ins.Src != 0 || ins.Reference() != "":
		return 0, errUnknown
	}
	return ins.Constant, nil
}

// place is an instruction.
type place struct {
	f  *function
	at int
}

// note returns the number of an instruction that may fault.
func (m *Machine) note(p place) int32 {
	m.places = append(m.places, p)
	return int32(len(m.places) - 1)
}

// write translates all functions to a module.
func (m *Machine) write(programs []string) ([]byte, error) {
	for _, f := range m.order {
		if err := m.countArguments(f, map[string]bool{}); err != nil {
			return nil, err
		}
	}
	// A program is called from outside, with its context alone.
	for _, name := range programs {
		m.functions[name].arguments = 1
	}
	first := imports + uint64(len(m.hosts))
	for i, f := range m.order {
		f.index = first + uint64(i)
	}
	// The types are those of functions of so many arguments and the frame, of hosts, then fault and watch.
	var types, imported, functions, exports, bodies []text
	signature := func(results []byte, params ...byte) {
		t := text{0x60}
		t.sized(params)
		t.sized(results)
		types = append(types, t)
	}
	all64 := slices.Repeat([]byte{wasmI64}, argumentRegisters+1)
	for n := range argumentRegisters + 1 {
		signature([]byte{wasmI64}, all64[:n+1]...)
	}
	for n := range argumentRegisters + 1 {
		signature([]byte{wasmI64}, all64[:n]...)
	}
	signature(nil, wasmI32, wasmI64)
	signature(nil, wasmI64)
	const typeHost, typeFault, typeWatch = argumentRegisters + 1, 2 * (argumentRegisters + 1), 2*(argumentRegisters+1) + 1
	addImport := func(name string, kind int) {
		var t text
		t.sized([]byte(hostModule))
		t.sized([]byte(name))
		t.bytes(0)
		t.unsigned(uint64(kind))
		imported = append(imported, t)
	}
	addImport(faultName, typeFault)
	addImport(watchName, typeWatch)
	for _, h := range m.hosts {
		addImport(h.name, typeHost+h.Arguments)
	}
	export := func(name string, kind byte, index uint64) {
		var t text
		t.sized([]byte(name))
		t.bytes(kind)
		t.unsigned(index)
		exports = append(exports, t)
	}
	export(memoryName, 2, 0)
	export(endName, 3, globalEnd)
	for _, f := range m.order {
		body, err := m.translate(f)
		if err != nil {
			return nil, err
		}
		var kind, sized text
		kind.unsigned(uint64(f.arguments))
		functions = append(functions, kind)
		sized.sized(body)
		bodies = append(bodies, sized)
		if slices.Contains(programs, f.name) {
			export(programPrefix+f.name, 0, f.index)
		}
	}
	sections := map[byte]text{}
	for id, parts := range map[byte][]text{
		sectionTypes: types, sectionImports: imported, sectionFunctions: functions, sectionExports: exports, sectionCode: bodies,
	} {
		var t text
		t.list(parts)
		sections[id] = t
	}
	var memory text
	memory.bytes(1, 0)
	memory.unsigned((m.free + pageBytes - 1 + 8) / pageBytes)
	sections[sectionMemory] = memory
	global := text{1, wasmI64, 1}
	global.i64(0)
	global.bytes(opEnd)
	sections[sectionGlobals] = global
	return module(sections), nil
}

const (
	hostModule    = "host"
	faultName     = " fault" // no name of a kernel function
	watchName     = " watch"
	memoryName    = "memory"
	endName       = "end"
	programPrefix = "program "
)

// start has wazero compile and instantiate the module.
func (m *Machine) start(text []byte) error {
	config := wazero.NewRuntimeConfig()
	if m.options.Interpret {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	m.runtime = wazero.NewRuntimeWithConfig(m.ctx, config.WithCompilationCache(compiled))
	b := m.runtime.NewHostModuleBuilder(hostModule)
	add := func(name string, f api.GoFunc, params, results []api.ValueType) {
		b.NewFunctionBuilder().WithGoFunction(f, params, results).Export(name)
	}
	i64 := api.ValueTypeI64
	add(faultName, func(_ context.Context, stack []uint64) {
		p := m.places[uint32(stack[0])]
		panic(&Fault{p.f.name, p.at, fmt.Sprint(p.f.insns[p.at]), stack[1] + nowhere})
	}, []api.ValueType{api.ValueTypeI32, i64}, nil)
	add(watchName, func(_ context.Context, stack []uint64) { m.options.Watch.Call(stack[0]) }, []api.ValueType{i64}, nil)
	for _, h := range m.hosts {
		add(h.name, h.enter(), slices.Repeat([]api.ValueType{i64}, h.Arguments), []api.ValueType{i64})
	}
	if _, err := b.Instantiate(m.ctx); err != nil {
		return err
	}
	code, err := m.runtime.CompileModule(m.ctx, text)
	if err != nil {
		return err
	}
	if m.module, err = m.runtime.InstantiateModule(m.ctx, code, wazero.NewModuleConfig()); err != nil {
		return err
	}
	m.end = m.module.ExportedGlobal(endName).(api.MutableGlobal)
	m.seeMemory()
	return nil
}

// enter returns the function as wazero calls it: its parameters and its result are on the stack.
func (h *host) enter() api.GoFunc {
	return func(_ context.Context, stack []uint64) {
		var r [argumentRegisters]uint64
		copy(r[:], stack[:h.Arguments])
		stack[0] = h.Call(r[0], r[1], r[2], r[3], r[4])
	}
}

func (m *Machine) seeMemory() {
	size := m.module.Memory().Size()
	m.memory, _ = m.module.Memory().Read(0, size)
	m.end.Set(uint64(size) - 8)
}

// fill gives sections their first contents.
func (m *Machine) fill(spec *ebpf.CollectionSpec) error {
	for name, p := range m.maps {
		for _, kv := range p.spec.Contents {
			value, ok := kv.Value.([]byte)
			key, isNumber := kv.Key.(uint32)
			if !ok || !isNumber || p.array == 0 || key >= p.spec.MaxEntries {
				return fmt.Errorf("map %s: its first contents are not supported", name)
			}
			copy(m.Bytes(p.array+uint64(key)*p.stride(), uint64(p.spec.ValueSize)), value)
		}
	}
	for name, v := range spec.Variables {
		if v.Value == nil {
			continue
		}
		to, err := m.Variable(name)
		if err != nil {
			return err
		}
		copy(to, v.Value)
	}
	return nil
}

// Allocate returns the address of so many bytes, which are zero and at a multiple of 8.
func (m *Machine) Allocate(size uint64) uint64 {
	address := m.free + nowhere
	m.free += (size + 7) &^ 7
	if m.module == nil {
		return address
	}
	if missing := int64(m.free+8) - int64(len(m.memory)); missing > 0 {
		pages := (uint64(missing) + pageBytes - 1) / pageBytes
		// As much again, so that growing, which may copy all, is rare.
		if _, ok := m.module.Memory().Grow(uint32(max(pages, uint64(len(m.memory)/pageBytes)))); !ok {
			if _, ok := m.module.Memory().Grow(uint32(pages)); !ok {
				panic(fmt.Sprintf("bytecode: %d bytes are more than programs can address", m.free))
			}
		}
		m.seeMemory()
	}
	return address
}

// Bytes returns the memory at an address. It is valid until more is allocated.
func (m *Machine) Bytes(address, size uint64) []byte {
	at := address - nowhere
	return m.memory[at : at+size : at+size]
}

// Variable returns the bytes of a variable of the object. They are valid until more is allocated.
func (m *Machine) Variable(name string) ([]byte, error) {
	v, ok := m.variables[name]
	if !ok {
		return nil, fmt.Errorf("the object has no variable %s", name)
	}
	section, ok := m.maps[v.SectionName]
	if !ok || uint64(v.Offset)+uint64(v.Size()) > uint64(section.spec.ValueSize) {
		return nil, fmt.Errorf("variable %s is in no section", name)
	}
	return m.Bytes(section.array+uint64(v.Offset), uint64(v.Size())), nil
}

// Program is one that can be run.
type Program struct {
	m     *Machine
	name  string
	call  api.Function
	stack [2]uint64
}

// Program returns a program of the object.
func (m *Machine) Program(name string) (*Program, error) {
	f := m.module.ExportedFunction(programPrefix + name)
	if f == nil {
		return nil, fmt.Errorf("the object has no program %s", name)
	}
	return &Program{m: m, name: name, call: f}, nil
}

// Run runs the program with the address of its context, and returns its result. The error wraps a *Fault if it went
// outside the memory.
func (p *Program) Run(context uint64) (uint64, error) {
	p.stack = [2]uint64{context, nowhere + stackBytes}
	if err := p.call.CallWithStack(p.m.ctx, p.stack[:]); err != nil {
		return 0, p.explain(err)
	}
	return p.stack[0], nil
}

// explain leaves out wazero's stack trace, which is about the translation.
func (p *Program) explain(err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	return fmt.Errorf("program %s: %w", p.name, err)
}
