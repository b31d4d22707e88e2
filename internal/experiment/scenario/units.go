// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Rate is a rate in bit/s, written "10 Mbit/s"; 0 if none is given.
type Rate uint64

// Duration is a time.Duration, written "150 ms".
type Duration time.Duration

// Size is a number of bytes, written "16 MB".
type Size uint64

// Percent is a number of percent, written "1 %".
type Percent float64

// Name is the name of a host, a router or a class of users.
type Name string

// LinkName is the name of a link, short enough for an interface.
type LinkName Name

// Variable is the name of a variable of the sweep.
type Variable string

// Std returns d as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

type unit struct {
	name  string
	value float64
}

// The units of each kind. The first is for what is less than one of the second.
var (
	rates     = []unit{{"bit/s", 1}, {"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}}
	durations = []unit{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}}
	sizes     = []unit{{"B", 1}, {"KB", 1e3}, {"KiB", 1 << 10}, {"MB", 1e6}, {"MiB", 1 << 20},
		{"GB", 1e9}, {"GiB", 1 << 30}, {"TB", 1e12}}
	percents = []unit{{"%", 1}}
)

var quantity = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?) ?([A-Za-z/%]+)$`)

// parse reads a number with a unit. The error shows the example.
func parse(text []byte, units []unit, example string) (float64, error) {
	m := quantity.FindStringSubmatch(string(text))
	if m != nil {
		for _, u := range units {
			if u.name != m[2] {
				continue
			}
			n, err := strconv.ParseFloat(m[1], 64)
			// Above this a float64 does not have every whole number, and an int64 overflows soon.
			if err != nil || n*u.value > 1<<53 {
				return 0, fmt.Errorf("%s is too much", text)
			}
			return n * u.value, nil
		}
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return 0, fmt.Errorf("%q is no number with a unit of %s: write it like %s",
		text, strings.Join(names, ", "), example)
}

// format returns v in the largest unit in which it is a short number.
func format(v float64, units []unit) string {
	best := units[0]
	for _, u := range units[1:] {
		if n := v / u.value; n >= 1 && math.Abs(n*1e3-math.Round(n*1e3)) < 1e-9 {
			best = u
		}
	}
	return strconv.FormatFloat(v/best.value, 'f', -1, 64) + " " + best.name
}

// UnmarshalText reads "10 Mbit/s".
func (r *Rate) UnmarshalText(text []byte) error {
	v, err := parse(text, rates, "10 Mbit/s")
	*r = Rate(math.Round(v))
	return err
}

// UnmarshalText reads "150 ms".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := parse(text, durations, "150 ms")
	*d = Duration(math.Round(v))
	return err
}

// UnmarshalText reads "16 MB".
func (s *Size) UnmarshalText(text []byte) error {
	v, err := parse(text, sizes, "16 MB")
	*s = Size(math.Round(v))
	return err
}

// UnmarshalText reads "1 %".
func (p *Percent) UnmarshalText(text []byte) error {
	v, err := parse(text, percents, "1 %")
	*p = Percent(v)
	return err
}

func (r Rate) String() string     { return format(float64(r), rates) }
func (d Duration) String() string { return format(float64(d), durations) }
func (s Size) String() string     { return format(float64(s), sizes) }
func (p Percent) String() string  { return format(float64(p), percents) }

// The lengths leave room for a number behind the name.
var (
	validName     = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,19}$`)
	validLink     = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,14}$`)
	validVariable = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
)

// UnmarshalText reads a name.
func (n *Name) UnmarshalText(text []byte) error {
	if !validName.Match(text) {
		return fmt.Errorf("name %q: use 1 to 20 of a-z, 0-9 and -", text)
	}
	*n = Name(text)
	return nil
}

// UnmarshalText reads a link's name.
func (n *LinkName) UnmarshalText(text []byte) error {
	if !validLink.Match(text) || string(text) == "lo" {
		return fmt.Errorf("link name %q: use 1 to 15 of a-z, 0-9 and -, not lo", text)
	}
	*n = LinkName(text)
	return nil
}

// UnmarshalText reads a variable's name.
func (v *Variable) UnmarshalText(text []byte) error {
	if !validVariable.Match(text) {
		return fmt.Errorf("variable %q: use 1 to 32 of a-z, 0-9 and _, a letter first", text)
	}
	*v = Variable(text)
	return nil
}

var (
	_ encoding.TextUnmarshaler = (*Rate)(nil)
	_ encoding.TextUnmarshaler = (*Duration)(nil)
	_ encoding.TextUnmarshaler = (*Size)(nil)
	_ encoding.TextUnmarshaler = (*Percent)(nil)
	_ encoding.TextUnmarshaler = (*Name)(nil)
	_ encoding.TextUnmarshaler = (*LinkName)(nil)
	_ encoding.TextUnmarshaler = (*Variable)(nil)
)
