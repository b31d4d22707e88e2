// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// The schedulers with a limit are those whose source tells of one, and all of them are in the line of doctor.
func TestNativeLimits(t *testing.T) {
	line := nativeLimits()
	for _, e := range catalog.Entries {
		got := limits(e)
		if e.Kind == catalog.CC {
			if got != "" {
				t.Errorf("%s: %q, want no limit: it needs no scheduler type", e, got)
			}
			continue
		}
		source, err := os.ReadFile("../bpf/sched/" + e.Name + ".bpf.c")
		if err != nil {
			t.Fatal(err)
		}
		own, told := nativeLimit[e.Name], strings.Contains(string(source), "scheduler type of their own")
		if (own != "") != told {
			t.Errorf("%s: limit %q; its source tells of one: %v", e, own, told)
		}
		want := nativeBuffers
		if told {
			want = own + "; " + nativeBuffers
			if !strings.Contains(line, e.Name+" "+own) {
				t.Errorf("%q does not name %s", line, e)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", e, got, want)
		}
	}
	if !strings.HasSuffix(line, "; "+nativeBuffers) {
		t.Errorf("%q does not tell of send buffers", line)
	}
}

// The kernel's own type of packet schedulers counts only with the callbacks that mpcc's programs are for.
func TestNativeScheds(t *testing.T) {
	pointer := &btf.Pointer{Target: &btf.Void{}}
	table := func(callbacks ...string) btf.Type {
		ops := &btf.Struct{Name: "mptcp_sched_ops"}
		for i, name := range callbacks {
			ops.Members = append(ops.Members, btf.Member{Name: name, Type: pointer, Offset: btf.Bits(64 * i)})
		}
		ops.Size = uint32(8 * len(callbacks))
		return ops
	}
	own := &btf.Struct{Name: nativeSchedType}
	for name, test := range map[string]struct {
		types []btf.Type
		want  bool
	}{
		"no BPF schedulers": {[]btf.Type{table("get_send", "get_retrans")}, false},
		"before 2025":       {[]btf.Type{table("get_subflow"), own}, false},
		"since 2025":        {[]btf.Type{table("get_send", "get_retrans"), own}, true},
	} {
		b, err := btf.NewBuilder(test.types, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := b.Marshal(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got := nativeScheds(spec); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
