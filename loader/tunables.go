// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/nearest"
)

// Tunable is a constant of an algorithm that Options.Set changes. Its value is one of Words or, where there are
// none, a whole number from Low to High.
type Tunable struct {
	Name    string   `json:"name"`
	Default string   `json:"default"`
	Paper   string   `json:"paper,omitempty"` // what the algorithm's source has, where the default differs
	Words   []string `json:"words,omitempty"`
	Low     uint64   `json:"low"`
	High    uint64   `json:"high"`
	Unit    string   `json:"unit,omitempty"` // of a number, in words
	Meaning string   `json:"meaning"`
}

// Range returns the values that the tunable may have, such as "off|on" or "1..255 segments".
func (t Tunable) Range() string {
	if t.Words != nil {
		return strings.Join(t.Words, "|")
	}
	return strings.TrimSpace(fmt.Sprintf("%d..%d %s", t.Low, t.High, t.Unit))
}

// Value returns what the tunable has with such settings as Options.Set.
func (t Tunable) Value(set map[string]string) string {
	if text, given := set[t.Name]; given {
		return text
	}
	if _, asked := set[Paper]; asked && t.Paper != "" {
		return t.Paper
	}
	return t.Default
}

// Paper is a key of Options.Set that stands for all tunables that have a Tunable.Paper: each gets that value,
// unless it is a key itself. Its own value is empty. Algorithms without such a tunable take it too.
const Paper = "paper"

// The texts that begin so describe a tunable in the C sources (bpf/include/mpcc/tunable.h).
const (
	tunableTag = "tunable: "
	paperTag   = "paper: "
)

// Tunables returns an algorithm's tunables in the order of their names.
func Tunables(e catalog.Entry) ([]Tunable, error) {
	spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
	if err != nil {
		return nil, err
	}
	return tunablesOf(spec)
}

// Spec returns an algorithm's object with these tunables, for who runs its programs elsewhere than in a kernel. The error
// wraps ErrUsage if the algorithm cannot be given these values.
func Spec(e catalog.Entry, set map[string]string) (*ebpf.CollectionSpec, error) {
	spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
	if err != nil {
		return nil, err
	}
	return spec, setTunables(spec, e, set)
}

// CheckTunables returns an error that wraps ErrUsage if the algorithm cannot be given these values.
func CheckTunables(e catalog.Entry, set map[string]string) error {
	_, err := Spec(e, set)
	return err
}

func tunablesOf(spec *ebpf.CollectionSpec) ([]Tunable, error) {
	var all []Tunable
	for name, v := range spec.Variables {
		if v.Type == nil {
			continue
		}
		text, ok := tagOf(v, tunableTag)
		if !ok {
			continue
		}
		t, err := parseTunable(name, text)
		if err != nil {
			return nil, err
		}
		var value uint32
		if err := v.Get(&value); err != nil {
			return nil, fmt.Errorf("tunable %s: it is not a number of 32 bits: %w", name, err)
		}
		if uint64(value) < t.Low || uint64(value) > t.High {
			return nil, fmt.Errorf("tunable %s: its default %d is not one of %s", name, value, t.Range())
		}
		t.Default = t.format(value)
		if paper, ok := tagOf(v, paperTag); ok && paper != t.Default {
			if _, err := t.parse(paper); err != nil {
				return nil, fmt.Errorf("tunable %s: the paper's value %q is not one of %s", name, paper, t.Range())
			}
			t.Paper = paper
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Tunable) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// tagOf returns what follows the prefix in the variable's tag that begins with it.
func tagOf(v *ebpf.VariableSpec, prefix string) (text string, ok bool) {
	for _, tag := range v.Type.Tags {
		if text, ok := strings.CutPrefix(tag, prefix); ok {
			return text, true
		}
	}
	return "", false
}

func parseTunable(name, text string) (Tunable, error) {
	t := Tunable{Name: name}
	value, meaning, ok := strings.Cut(text, "; ")
	if !ok {
		return t, fmt.Errorf("tunable %s: %q does not say what it means", name, text)
	}
	t.Meaning = meaning
	if strings.Contains(value, "|") {
		t.Words = strings.Split(value, "|")
		t.High = uint64(len(t.Words) - 1)
		return t, nil
	}
	limits, unit, _ := strings.Cut(value, " ")
	t.Unit = unit
	low, high, _ := strings.Cut(limits, "..")
	var err error
	if t.Low, err = strconv.ParseUint(low, 10, 32); err != nil {
		return t, fmt.Errorf("tunable %s: %w", name, err)
	}
	if t.High, err = strconv.ParseUint(high, 10, 32); err != nil {
		return t, fmt.Errorf("tunable %s: %w", name, err)
	}
	return t, nil
}

func (t Tunable) format(value uint32) string {
	if t.Words != nil {
		return t.Words[value]
	}
	return strconv.FormatUint(uint64(value), 10)
}

func (t Tunable) parse(text string) (uint32, error) {
	if t.Words != nil {
		if i := slices.Index(t.Words, text); i >= 0 {
			return uint32(i), nil
		}
	} else if v, err := strconv.ParseUint(text, 10, 32); err == nil && v >= t.Low && v <= t.High {
		return uint32(v), nil
	}
	return 0, usage("--set %s: %q is not one of %s", t.Name, text, t.Range())
}

func setTunables(spec *ebpf.CollectionSpec, e catalog.Entry, set map[string]string) error {
	tunables, err := tunablesOf(spec)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range tunables {
		names = append(names, t.Name)
	}
	for name, text := range set {
		if name == Paper {
			if text != "" {
				return usage("--set %s=%s: %s takes no value", Paper, text, Paper)
			}
			continue
		}
		if !slices.Contains(names, name) {
			if names == nil {
				return usage("--set %s: %s has no tunables", name, e)
			}
			if near := nearest.Name(name, names); near != "" {
				return usage("--set %s: %s has no such tunable; did you mean %s?", name, e, near)
			}
			return usage("--set %s: %s has no such tunable, only %s", name, e, strings.Join(names, ", "))
		}
	}
	for _, t := range tunables {
		value, err := t.parse(t.Value(set))
		if err != nil {
			return err
		}
		if err := spec.Variables[t.Name].Set(value); err != nil {
			return err
		}
	}
	return nil
}
