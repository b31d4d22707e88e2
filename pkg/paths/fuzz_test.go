// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/bpf/obj"
)

// Whatever a file of rules has in it, what is taken is what the map gives back and what a file can say again; the rest
// is refused in a line.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "paths: []", "paths: [{}]", "paths: &a [*a]", "paths: [{path: a}, {path: a}]",
		"paths: [{path: lte0, rank: 2, weight: 3, spill: 100ms, quota: 20G/month, cap: 5mbit, only: port=7}]",
		"paths: [{path: 'local=192.0.2.1/24', exclude: true, netns: phone}]", "paths: [{path: 'remote=2001:db8::1%eth0', only: mark=4294967295}]",
		"paths: [{path: local-id=255, cap: 1e99gbit}]", "paths: [{path: a, quota: 18446744073709551615T}]", "paths: [{path: a, spill: 9999999h}]",
		"paths: [{path: a, cap: .0000001bit}]", "paths: [{path: 'remote=::ffff:1.2.3.4/97'}]", "paths: [{path: a, only: cgroup=../..}]", "\xff",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := Parse(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
			return
		}
		for _, r := range rules {
			var raw obj.MapsMpccPathRule
			if r.Path.toMap(&raw); pathOf(raw) != r.Path {
				t.Errorf("%v is %v in the map", r.Path, pathOf(raw))
			}
		}
		written, err := yaml.Marshal(map[string][]Rule{"paths": rules})
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(written)
		if err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		for i := range rules {
			if again[i] != rules[i] {
				t.Errorf("%+v is written and read as %+v", rules[i], again[i])
			}
		}
	})
}
