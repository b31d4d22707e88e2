// SPDX-License-Identifier: Apache-2.0

// Package figures writes what is measured as people read it: three digits and a unit, and "-" for what is unknown.
package figures

import (
	"fmt"
	"math"
	"time"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

// BitRate shows a rate in bit/s.
func BitRate(bytesPerSecond float64) string { return scaled(bytesPerSecond*8, "bit/s", upwards) }

// Size shows an amount of data.
func Size(bytes uint64) string { return scaled(float64(bytes), "B", upwards) }

// RTT shows a round-trip time; "-" before the first one.
func RTT(m telemetry.Micros) string {
	if m == 0 {
		return "-"
	}
	return scaled(time.Duration(m).Seconds(), "s", bothWays)
}

// Joules shows energy; "-" without a profile.
func Joules(e *float64) string { return Optional(e, "J") }

// Optional shows a value with the unit's prefix, and "-" for none.
func Optional(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	return scaled(*v, unit, bothWays)
}

// Coupling shows an algorithm's own quantity in few characters.
func Coupling(v float64) string {
	switch size := math.Abs(v); {
	case size < 999.9995:
		return fmt.Sprintf("%.3f", v)
	case size < 1e7:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

// Token shows a connection's token; "-" where the connection is not multipath.
func Token(t telemetry.Token) string {
	if t == 0 {
		return "-"
	}
	return t.String()
}

// SubflowID shows the number of a subflow, and whether it is a backup.
func SubflowID(id uint32, backup bool) string {
	if backup {
		return fmt.Sprintf("%d backup", id)
	}
	return fmt.Sprint(id)
}

// Path shows between which addresses a subflow is.
func Path(f *telemetry.Subflow) string {
	return fmt.Sprintf("%s > %s", f.Local.Addr(), f.Remote.Addr())
}

// Ssthresh shows a threshold in packets; "-" before the first loss.
func Ssthresh(packets *uint32) string {
	if packets == nil {
		return "-"
	}
	return fmt.Sprint(*packets)
}

// Netns names a namespace: by its inode number where it has no name.
func Netns(name string, inode uint64) string {
	if name == "" {
		return fmt.Sprint(inode)
	}
	return name
}

// The prefixes of units. A thousandth of a bit is none.
var (
	upwards  = []prefix{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}, {"", 1}}
	bothWays = append(upwards[:len(upwards):len(upwards)], prefix{"m", 1e-3}, prefix{"µ", 1e-6})
)

type prefix struct {
	name  string
	times float64
}

// scaled takes the prefix with which the number is at least 1 when it is rounded to three digits.
func scaled(v float64, unit string, prefixes []prefix) string {
	for _, p := range prefixes {
		if math.Abs(v) >= 0.9995*p.times {
			return fmt.Sprintf("%.3g %s%s", v/p.times, p.name, unit)
		}
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}
