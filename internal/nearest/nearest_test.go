// SPDX-License-Identifier: Apache-2.0

package nearest

import "testing"

func TestName(t *testing.T) {
	names := []string{"lia", "olia", "balia", "wvegas", "roundrobin", "dts"}
	for typed, want := range map[string]string{
		"lai":         "lia", // in the wrong order
		"lia":         "lia",
		"bala":        "balia",
		"vegas":       "wvegas",
		"round-robin": "roundrobin",
		"rondrobbin":  "roundrobin",
		"dtx":         "dts",
		"bbr":         "",
		"cubic":       "",
		"x":           "",
		"":            "",
	} {
		if got := Name(typed, names); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
	if got := Name("lia", nil); got != "" {
		t.Errorf("of no names %q", got)
	}
}
