// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"os"
	"strings"
	"testing"

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
