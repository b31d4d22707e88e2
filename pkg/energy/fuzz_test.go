// SPDX-License-Identifier: Apache-2.0

package energy

import (
	"strings"
	"testing"
)

// Whatever a file of profiles has in it, what is taken is what the programs can hold; the rest is refused in a line.
func FuzzParse(f *testing.F) {
	f.Add(builtin)
	for _, text := range []string{
		"profiles: [{name: a, source: me, uplink_mw_per_mbps: 1, downlink_mw_per_mbps: 2, base_mw: 3}]",
		"profiles: [{name: a, source: me, base_mw: .nan}]", "profiles: [{name: a, source: me, uplink_mw_per_mbps: -.inf}]",
		"profiles: [{name: a, source: me, tail: [{mw: 1e300, seconds: -1}]}]", "profiles: &a [*a]", "profiles: {}", "\xff", "a: &a [*a, *a]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		profiles, err := Parse(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
			return
		}
		for _, p := range profiles {
			for _, f := range p.figures() {
				if f.value != nil && !(*f.value >= 0 && uint64(*f.value*1000) <= 1<<32-1) {
					t.Errorf("%s of %s is %g", f.key, p.Name, *f.value)
				}
			}
			if p.Name == "" || p.Source == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}
