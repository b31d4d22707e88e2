// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/paths"
)

// priced is what an interface draws.
type priced struct {
	Energy `yaml:",inline"`
}

func (p priced) id() id       { return id{kindEnergy, p.Netns, p.Interface} }
func (p priced) name() string { return "energy of " + p.Interface }

func (p priced) value() string {
	f, err := p.figures()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%g mW/Mbps up, %g mW/Mbps down, %g mW", f.Uplink, f.Downlink, f.Base)
}

func (p priced) fits(there thing) bool {
	want, err := p.figures()
	if err != nil {
		return false
	}
	got, err := there.(priced).figures()
	kept := func(milli float64) float64 { return math.Round(milli * 1000) } // to a thousandth
	return err == nil && kept(want.Uplink) == kept(got.Uplink) && kept(want.Downlink) == kept(got.Downlink) && kept(want.Base) == kept(got.Base)
}

func (p priced) put(ctx context.Context, _ thing) error {
	f, err := p.figures()
	if err != nil {
		return err
	}
	return loader.SetProfile(ctx, loader.Interface{Netns: p.Netns, Name: p.Interface}, f)
}

func (p priced) drop(ctx context.Context) error {
	return loader.DeleteProfile(ctx, loader.Interface{Netns: p.Netns, Name: p.Interface})
}

// pathRule is a rule for a path.
type pathRule struct {
	paths.Rule `yaml:",inline"`
}

func (r pathRule) id() id {
	k := r.Key
	k.Netns = ""
	return id{kindPath, r.Netns, k.String()}
}

func (r pathRule) name() string { return "path " + r.id().key }

func (r pathRule) value() string {
	words := []string{fmt.Sprintf("rank %d", r.Rank)}
	if r.Weight > 0 {
		words = append(words, fmt.Sprintf("weight %d", r.Weight))
	}
	if !r.Spill.IsZero() {
		words = append(words, "spill "+r.Spill.String())
	}
	if r.Cap > 0 {
		words = append(words, "cap "+r.Cap.String())
	}
	if !r.Quota.IsZero() {
		words = append(words, "quota "+r.Quota.String())
	}
	if r.Excluded {
		words = append(words, "excluded")
	}
	return strings.Join(words, ", ")
}

func (r pathRule) fits(there thing) bool { return r.Rule == there.(pathRule).Rule }

func (r pathRule) put(ctx context.Context, _ thing) error {
	return paths.Restore(ctx, []paths.Rule{r.Rule}, paths.CountsFile)
}

func (r pathRule) drop(ctx context.Context) error {
	_, err := paths.Reset(ctx, r.Key)
	return err
}
