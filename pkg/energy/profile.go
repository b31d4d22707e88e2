// SPDX-License-Identifier: Apache-2.0

// Package energy has the published power profiles of radio interfaces, by which the energy of a subflow is
// modelled, and reads the energy meters that this machine has: RAPL and batteries.
//
// The model is power = uplink × rate sent + downlink × rate received + base while the interface is active.
package energy

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed profiles.yaml
var builtin []byte

// Profile is the power that a kind of interface draws. A figure that was not published is nil.
type Profile struct {
	Name     string   `yaml:"name" json:"name"`
	Uplink   *float64 `yaml:"uplink_mw_per_mbps" json:"uplink_mw_per_mbps"`     // sending, mW/Mbps; 0 to MaxSlope
	Downlink *float64 `yaml:"downlink_mw_per_mbps" json:"downlink_mw_per_mbps"` // receiving, mW/Mbps; 0 to MaxSlope
	Base     *float64 `yaml:"base_mw" json:"base_mw"`                           // while active, mW; 0 to MaxBase
	// Tail lists the states the radio stays in after the last packet, one after the other. Experiments count them
	// (TailJoules); the totals of live connections do not.
	Tail       []Tail   `yaml:"tail" json:"tail,omitempty"`
	Source     string   `yaml:"source" json:"source"`
	Unverified []string `yaml:"unverified" json:"unverified,omitempty"` // keys not yet compared with the source
}

// Tail is one state of a radio after the last packet.
type Tail struct {
	State   string   `yaml:"state" json:"state,omitempty"` // as the standard calls it
	Power   *float64 `yaml:"mw" json:"mw"`                 // mW; nil where it was not published
	Seconds float64  `yaml:"seconds" json:"seconds"`
}

// TailJoules returns the energy of the radio's tail between two times since the last packet. A state without a published
// power counts as 0.
func (p Profile) TailJoules(from, to time.Duration) float64 {
	joules, begin := 0.0, 0.0
	for _, t := range p.Tail {
		end := begin + t.Seconds
		if spent := min(end, to.Seconds()) - max(begin, from.Seconds()); spent > 0 && t.Power != nil {
			joules += spent * *t.Power / 1000
		}
		begin = end
	}
	return joules
}

// The most that a figure may be: what the programs can hold, 32 bits of uW/Mbps and of uW.
const (
	MaxSlope = float64(math.MaxUint32) / 1000 // mW/Mbps
	MaxBase  = float64(math.MaxUint32) / 1000 // mW
)

// Builtin returns the profiles that mpcc brings, each with its source.
func Builtin() []Profile {
	profiles, err := Parse(builtin)
	if err != nil {
		panic("energy: profiles.yaml: " + err.Error())
	}
	return profiles
}

// ReadFile returns the profiles of a file of the user's own, as Parse reads it.
func ReadFile(path string) ([]Profile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	profiles, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return profiles, nil
}

// Parse returns the profiles of a YAML text, a list under "profiles:". It is an error if a profile has no
// name of its own or no source, a figure out of range, or a key that Profile does not have.
func Parse(text []byte) ([]Profile, error) {
	var file struct {
		Profiles []Profile `yaml:"profiles"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if len(file.Profiles) == 0 {
		return nil, errors.New(`no profiles; they stand in a list under "profiles:"`)
	}
	seen := map[string]bool{}
	for i, p := range file.Profiles {
		switch {
		case p.Name == "":
			return nil, fmt.Errorf("profile %d has no name", i+1)
		case seen[p.Name]:
			return nil, fmt.Errorf("there are two profiles %s", p.Name)
		case p.Source == "":
			return nil, fmt.Errorf("profile %s: say in source where its figures are from", p.Name)
		}
		seen[p.Name] = true
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("profile %s: %w", p.Name, err)
		}
	}
	return file.Profiles, nil
}

// figure is one of the numbers the model needs.
type figure struct {
	key, unit string
	value     *float64
	max       float64
}

func (p Profile) figures() []figure {
	return []figure{
		{"uplink_mw_per_mbps", "mW/Mbps", p.Uplink, MaxSlope},
		{"downlink_mw_per_mbps", "mW/Mbps", p.Downlink, MaxSlope},
		{"base_mw", "mW", p.Base, MaxBase},
	}
}

func (p Profile) check() error {
	for _, f := range p.figures() {
		if f.value != nil && !(*f.value >= 0 && *f.value <= f.max) {
			return fmt.Errorf("%s is %g, not 0 to %.0f %s", f.key, *f.value, f.max, f.unit)
		}
	}
	return nil
}

// MissingError is the error of a profile without a figure that the model needs.
type MissingError struct {
	Profile string // its name
	Key     string // of the figure, as in JSON and YAML
	Unit    string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("profile %s has no published %s (%s)", e.Profile, e.Key, e.Unit)
}

// Complete returns nil if the profile has all figures that the model needs, in range; a *MissingError if it
// lacks one.
func (p Profile) Complete() error {
	for _, f := range p.figures() {
		if f.value == nil {
			return &MissingError{p.Name, f.key, f.unit}
		}
	}
	return p.check()
}

// Find returns the profile of a name; the error lists the names that there are.
func Find(profiles []Profile, name string) (Profile, error) {
	names := make([]string, len(profiles))
	for i, p := range profiles {
		if p.Name == name {
			return p, nil
		}
		names[i] = p.Name
	}
	return Profile{}, fmt.Errorf("no profile %q; there are %s", name, strings.Join(names, ", "))
}
