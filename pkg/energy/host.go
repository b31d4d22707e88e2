// SPDX-License-Identifier: Apache-2.0

package energy

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"math"

	"go.yaml.in/yaml/v3"
	"gonum.org/v1/gonum/stat"
)

//go:embed hosts.yaml
var builtinHosts []byte

// HostProfile is the power that a kind of host draws against the rate of all its traffic: base + slope · Mbit/s, the
// line of least squares through the points that were published.
type HostProfile struct {
	Name       string      `yaml:"name"`
	RelativeTo string      `yaml:"relative_to"` // what a power of 1 is; empty: a watt
	Points     []HostPoint `yaml:"points"`
	Missing    []string    `yaml:"missing"` // what the source shows, but not in numbers: the model knows nothing of it
	Source     string      `yaml:"source"`

	Base     float64 `yaml:"-"` // power at no rate
	Slope    float64 `yaml:"-"` // per Mbit/s
	Residual float64 `yaml:"-"` // the largest distance of a point from the line
}

// HostPoint is one published figure.
type HostPoint struct {
	Rate  float64 `yaml:"mbps"`
	Power float64 `yaml:"power"`
}

// BuiltinHosts returns the hosts' profiles that mpcc brings, each with its source.
func BuiltinHosts() []HostProfile {
	hosts, err := parseHosts(builtinHosts)
	if err != nil {
		panic("energy: hosts.yaml: " + err.Error())
	}
	return hosts
}

// FindHost returns the built-in host profile of that name. The error lists those that there are.
func FindHost(name string) (HostProfile, error) {
	var names []string
	for _, h := range BuiltinHosts() {
		if h.Name == name {
			return h, nil
		}
		names = append(names, h.Name)
	}
	return HostProfile{}, fmt.Errorf("no host profile %q; there are %v", name, names)
}

func parseHosts(text []byte) ([]HostProfile, error) {
	var file struct {
		Hosts []HostProfile `yaml:"hosts"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return nil, err
	}
	for i := range file.Hosts {
		if err := file.Hosts[i].fit(); err != nil {
			return nil, fmt.Errorf("host %s: %w", file.Hosts[i].Name, err)
		}
	}
	return file.Hosts, nil
}

func (h *HostProfile) fit() error {
	var rates, powers []float64
	for _, p := range h.Points {
		rates, powers = append(rates, p.Rate), append(powers, p.Power)
	}
	if len(rates) < 2 || h.Source == "" {
		return errors.New("a line needs two points, and a profile a source")
	}
	h.Base, h.Slope = stat.LinearRegression(rates, powers, nil, false)
	for _, p := range h.Points {
		h.Residual = max(h.Residual, math.Abs(h.Base+h.Slope*p.Rate-p.Power))
	}
	if math.IsNaN(h.Slope) || h.Base < 0 || h.Slope < 0 {
		return fmt.Errorf("the line %g + %g · Mbit/s is none of a power", h.Base, h.Slope)
	}
	return nil
}
