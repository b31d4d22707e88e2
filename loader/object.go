// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/atomicfile"
)

// Object is an algorithm of somebody else's: a file that a BPF program was compiled to, with a table of the kernel's
// struct_ops. Built with mpcc's headers it shares mpcc's maps, and has tunables and an evaluation as mpcc's own have.
type Object struct {
	catalog.Entry        // the kind and the name alone, both as the table has them
	File          string // its absolute path

	text  []byte
	table string // the name of the struct_ops map
	// programs are those of the table, by the table's member.
	programs map[string]string
}

// opsTypes are the struct_ops types of algorithms.
var opsTypes = map[string]catalog.Kind{
	"tcp_congestion_ops": catalog.CC,
	"mptcp_sched_ops":    catalog.Sched,
	"mptcp_xsched_ops":   catalog.Sched,
}

// objectSize is more than any such file has, with all debug information.
const objectSize = 64 << 20

// ReadObject reads an object file. It wraps ErrUsage if the file is nothing that can be loaded.
func ReadObject(path string) (*Object, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parseObject(path, text)
}

func parseObject(path string, text []byte) (*Object, error) {
	refused := func(format string, args ...any) error {
		return usage("%s: %s", path, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
	}
	o := &Object{text: text}
	var err error
	if o.File, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(o.text))
	switch {
	case !bytes.HasPrefix(o.text, []byte(elf.ELFMAG)):
		return nil, refused("it is no object file; clang -target bpf -g -O2 -c makes one of C")
	case err != nil:
		return nil, refused("it is damaged, perhaps cut off: %v", err)
	case f.Machine != elf.EM_BPF:
		return nil, refused("it is for another machine than BPF (%v); compile it with clang -target bpf", f.Machine)
	case f.ByteOrder.Uint16([]byte{1, 0}) != nativeEndian.Uint16([]byte{1, 0}):
		return nil, refused("it has another byte order than this machine; compile it with clang -target bpf")
	case sizeOf(f) > objectSize:
		return nil, refused("it is damaged: its sections would take more than %d MB of memory", objectSize>>20)
	}
	if f.Section(plainSection) != nil && f.Section(linkSection) != nil {
		return nil, refused("it has several algorithms, in the sections %s and %s; mpcc takes files with one", plainSection, linkSection)
	}
	if o.text, err = linkTables(o.text, f); err != nil {
		return nil, refused("it is damaged, perhaps cut off: %v", err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(o.text))
	if err != nil {
		return nil, refused("%v", err)
	}
	programs, err := tablesOf(f, spec)
	if err != nil {
		return nil, refused("it is damaged: %v", err)
	}
	var names []string
	for table := range programs {
		if isComplete(programs[table]) {
			names = append(names, table)
		}
	}
	slices.Sort(names)
	switch {
	case len(programs) == 0:
		return nil, refused("it has no congestion control or packet scheduler: no struct tcp_congestion_ops or mptcp_sched_ops in section .struct_ops.link")
	case len(names) == 0:
		return nil, refused("its congestion control is incomplete: the kernel wants ssthresh, undo_cwnd, and cong_avoid or cong_control")
	case len(names) > 1:
		return nil, refused("it has %d algorithms (%s); mpcc takes files with one", len(names), strings.Join(names, ", "))
	}
	o.table, o.programs = names[0], programs[names[0]]
	o.Kind, o.Name = kindAndName(spec.Maps[o.table])
	// It is also the name of a file in the BPF file system, and a word of names there.
	if !regexp.MustCompile(`^[A-Za-z0-9_]{1,15}$`).MatchString(o.Name) {
		return nil, refused("names have 1 to 15 letters, digits and _, and its algorithm is called %q", o.Name)
	}
	return o, nil
}

// readFile reads a regular file of a size that makes sense.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, usage("%s: it is no file", path)
	case info.Size() > objectSize:
		return nil, usage("%s: it has %d MB; no object file of BPF has more than %d", path, info.Size()>>20, objectSize>>20)
	}
	return io.ReadAll(io.LimitReader(f, objectSize))
}

// sizeOf is how much memory the sections take once they are unpacked. A file of a few bytes can ask for any amount: by a
// section of zeroes, by compression, or by many sections that are the same part of the file.
func sizeOf(f *elf.File) (size uint64) {
	for _, s := range f.Sections {
		size += min(s.Size, 2*objectSize)
	}
	return size
}

// kindAndName reads a table. The name ends with the first zero.
func kindAndName(m *ebpf.MapSpec) (catalog.Kind, string) {
	s, ok := m.Value.(*btf.Struct)
	if !ok || len(m.Contents) != 1 {
		return "", ""
	}
	value, _ := m.Contents[0].Value.([]byte)
	for _, member := range s.Members {
		if start := int(member.Offset.Bytes()); member.Name == "name" && start < len(value) {
			return opsTypes[s.Name], unix.ByteSliceToString(value[start:min(start+16, len(value))])
		}
	}
	return opsTypes[s.Name], ""
}

// isComplete reports whether the kernel takes a table with these members. An object may have others too, which tests
// of the kernel have.
func isComplete(programs map[string]string) bool {
	has := func(member string) bool { return programs[member] != "" }
	cc := has("ssthresh") && has("undo_cwnd") && (has("cong_avoid") || has("cong_control"))
	return cc || has("get_send") || has("get_subflow")
}

// spec returns the programs and the maps of the table, less whatever else is in the file.
func (o *Object) spec() (*ebpf.CollectionSpec, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(o.text))
	if err != nil {
		return nil, err
	}
	maps, programs := spec.Maps, spec.Programs
	// What is attached to a member that two tables have is attached to the last of them.
	ops := maps[o.table].Value.(*btf.Struct).Name
	wanted := map[string]*ebpf.ProgramSpec{}
	for member, name := range o.programs {
		programs[name].AttachTo = ops + ":" + member
		wanted[name] = programs[name]
	}
	if eval := programs[evalProgram]; eval != nil {
		wanted[evalProgram] = eval
	}
	spec.Programs = wanted
	for name, m := range maps {
		if m.Type == ebpf.StructOpsMap && name != o.table {
			delete(maps, name)
		}
	}
	return spec, nil
}

// CheckName returns an error that wraps ErrUsage if an algorithm of somebody else's cannot have this name, as it is that
// of another one.
func CheckName(name string) error {
	switch {
	case slices.ContainsFunc(catalog.Entries, func(e catalog.Entry) bool { return e.Name == name }):
		return usage("%s is the name of an algorithm that mpcc brings; give yours another one", name)
	case name == Multipath || slices.ContainsFunc(plugs, func(p *plug) bool { return slices.Contains(p.own, name) }):
		return usage("%s is a name of the kernel's own; give yours another one", name)
	}
	return nil
}

// Tunables returns the object's tunables, if it is built with mpcc's headers.
func (o *Object) Tunables() ([]Tunable, error) {
	spec, err := o.spec()
	if err != nil {
		return nil, err
	}
	return tunablesOf(spec)
}

// CheckTunables is as the function of that name.
func (o *Object) CheckTunables(set map[string]string) error {
	spec, err := o.spec()
	if err != nil {
		return err
	}
	return setTunables(spec, o.Entry, set)
}

// source is an algorithm with the object that has its programs.
type source struct {
	catalog.Entry
	of *Object // nil for the catalog's
}

// open parses the object in the variant for this kernel. It returns the name of the struct_ops map too.
func (s source) open() (spec *ebpf.CollectionSpec, table string, err error) {
	if s.of != nil {
		spec, err = s.of.spec()
		return spec, s.of.table, err
	}
	v := obj.Stock
	if s.Kind == catalog.Sched && hasNativeScheds() {
		v = obj.Native
	}
	spec, err = obj.Load(s.Kind, s.Name, v)
	return spec, s.Name, err
}

// word is what a user types for it.
func (s source) word() string {
	if s.of != nil {
		return s.of.File
	}
	return s.String()
}

// check refuses what cannot be loaded, or not under this name.
func (s source) check() error {
	if s.of != nil {
		if err := CheckName(s.Name); err != nil {
			return usage("%s: %v", s.of.File, err)
		}
	}
	return checkKernel(s.Entry)
}

// agrees returns an error if another file than the object's is loaded under the name.
func (s source) agrees() error {
	if s.of == nil || !isPinned(s.Entry) {
		return nil
	}
	if from := readNote(s.Entry).File; from != s.of.File {
		return fmt.Errorf("load %s: %s is loaded already, from %s; mpcc unload %[2]s ends that", s.of.File, s, orUnknown(from))
	}
	return nil
}

func orUnknown(file string) string {
	if file == "" {
		return "an unknown file"
	}
	return file
}

// LoadedObject is an object file that is loaded.
type LoadedObject struct {
	Kind catalog.Kind `json:"kind"`
	Name string       `json:"name"`
	note
}

// Entry returns the algorithm as one of the catalog, of which only kind and name are known.
func (l LoadedObject) Entry() catalog.Entry { return catalog.Entry{Kind: l.Kind, Name: l.Name} }

func (l LoadedObject) String() string {
	if l.File == "" {
		return l.Entry().ID() + " loaded from an unknown file"
	}
	return fmt.Sprintf("%s loaded from %s at %s", l.Entry().ID(), l.File, l.Since.Format(time.DateTime))
}

// note is what is known of a loaded object beside its pin, in a file of objectDir of its own.
type note struct {
	File  string    `json:"file,omitempty"` // "" if it is not known
	Since time.Time `json:"since,omitzero"`
}

const objectDir = stateDir + "/objects"

func notePath(k catalog.Kind, name string) string {
	return filepath.Join(objectDir, string(k)+"-"+name)
}

// writeNote comes before the pin. A note without a pin is swept.
func (o *Object) writeNote() error {
	if err := os.MkdirAll(objectDir, 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(note{o.File, time.Now().Round(time.Second)})
	if err != nil {
		return err
	}
	return atomicfile.Write(notePath(o.Kind, o.Name), text, 0o644)
}

// readNote returns an empty note where there is none that can be read: all else that is known is in the kernel.
func readNote(e catalog.Entry) (n note) {
	text, err := os.ReadFile(notePath(e.Kind, e.Name))
	if err != nil || json.Unmarshal(text, &n) != nil {
		return note{}
	}
	return n
}

// sweepNotes removes the notes of what is not loaded, and what a write that was killed left.
func sweepNotes() error {
	files, err := os.ReadDir(objectDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		kind, name, _ := strings.Cut(f.Name(), "-")
		if _, err := os.Stat(filepath.Join(pinDir, kind, name)); err == nil {
			continue
		}
		if err := os.Remove(filepath.Join(objectDir, f.Name())); err != nil {
			return err
		}
	}
	return removeIfEmpty(objectDir)
}

// LoadedObjects returns the object files that are loaded. Algorithms that only another version of mpcc knows are among
// them, of an unknown file.
func LoadedObjects() ([]LoadedObject, error) {
	found := []LoadedObject{}
	pins, err := pins()
	if err != nil {
		return nil, err
	}
	for _, p := range pins {
		if isInCatalog(p.kind, p.name) {
			continue
		}
		names, err := p.offered()
		if err != nil {
			return nil, err
		}
		if slices.Contains(names, p.name) {
			found = append(found, LoadedObject{p.kind, p.name, readNote(catalog.Entry{Kind: p.kind, Name: p.name})})
		}
	}
	return found, nil
}

func isInCatalog(k catalog.Kind, name string) bool {
	return slices.ContainsFunc(catalog.Entries, func(e catalog.Entry) bool { return e.Kind == k && e.Name == name })
}
