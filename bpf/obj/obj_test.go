// SPDX-License-Identifier: Apache-2.0

package obj

import (
	"bytes"
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Kernel functions that every MPCC_NATIVE scheduler may take for granted: the MPTCP development tree has them all, as of
// October 2026. Others must be weak, so that an object loads without them.
var nativeFunctions = []string{
	"bpf_iter_mptcp_subflow_new", "bpf_iter_mptcp_subflow_next", "bpf_iter_mptcp_subflow_destroy",
	"mptcp_subflow_active", "mptcp_subflow_set_scheduled", "bpf_rdonly_cast",
}

// objects are the embedded objects, by name, without .o.
func objects(t *testing.T) map[string]*bytes.Reader {
	t.Helper()
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*bytes.Reader{}
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(e.Name(), ".o")] = bytes.NewReader(text)
	}
	return all
}

func TestNativeFunctions(t *testing.T) {
	checked := 0
	for name, text := range objects(t) {
		if !strings.HasSuffix(name, string(Native)) {
			continue
		}
		checked++
		object, err := elf.NewFile(text)
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := object.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			needed := s.Section == elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_WEAK
			if needed && !slices.Contains(nativeFunctions, s.Name) {
				t.Errorf("%s does not load without %s", name, s.Name)
			}
		}
	}
	if checked == 0 {
		t.Error("there are no native objects")
	}
}

// Under lockdown=confidentiality the kernel offers programs no bpf_probe_read_kernel(), and refuses those that call it.
// docs/security.md says which objects load all the same.
func TestLockdown(t *testing.T) {
	refused := map[string]bool{"cc": true, "sched-prefer": true, "sched-prefer-native": true}
	for name, text := range objects(t) {
		kind, _, _ := strings.Cut(name, "-")
		spec, err := ebpf.LoadCollectionSpecFromReader(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := reads(spec), refused[kind] || refused[name]; got != want {
			t.Errorf("%s calls bpf_probe_read_kernel: %v, want %v", name, got, want)
		}
	}
}

// reads says whether a program calls bpf_probe_read_kernel() or one of its variants.
func reads(spec *ebpf.CollectionSpec) bool {
	gated := []asm.BuiltinFunc{asm.FnProbeRead, asm.FnProbeReadStr, asm.FnProbeReadKernel, asm.FnProbeReadKernelStr}
	for _, p := range spec.Programs {
		for _, i := range p.Instructions {
			if i.IsBuiltinCall() && slices.Contains(gated, asm.BuiltinFunc(i.Constant)) {
				return true
			}
		}
	}
	return false
}
