// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/pkg/energy"
)

// File returns a file for energy.Parse with the one profile p, which Profile made. Comments tell the errors.
func (r *Result) File(p energy.Profile) ([]byte, error) {
	profile := &yaml.Node{Kind: yaml.MappingNode}
	add := func(key string, value any, comment string) error {
		var v yaml.Node
		err := v.Encode(value)
		v.LineComment = comment
		profile.Content = append(profile.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &v)
		return err
	}
	if err := add("name", p.Name, ""); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		key    string
		value  *float64
		figure *Figure
	}{
		{"uplink_mw_per_mbps", p.Uplink, r.Uplink}, {"downlink_mw_per_mbps", p.Downlink, r.Downlink}, {"base_mw", p.Base, &r.Base},
	} {
		if f.value == nil {
			continue
		}
		if err := add(f.key, *f.value, fmt.Sprintf("standard error %.*f; 95 %%: %s", f.figure.Decimals(), f.figure.Error, f.figure.Interval())); err != nil {
			return nil, err
		}
	}
	if err := add("source", p.Source, ""); err != nil {
		return nil, err
	}
	return yaml.Marshal(map[string][]*yaml.Node{"profiles": {profile}})
}

// Interval is where the figure is with a probability of 95 %, in words.
func (f *Figure) Interval() string {
	return fmt.Sprintf("%.*f to %.*f", f.Decimals(), f.Low, f.Decimals(), f.High)
}
