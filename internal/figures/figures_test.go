// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"math"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

func TestFigures(t *testing.T) {
	ms := telemetry.Micros(time.Millisecond)
	for _, c := range []struct{ got, want string }{
		{BitRate(0), "0 bit/s"},
		{BitRate(0.05), "0.4 bit/s"},
		{BitRate(125), "1 kbit/s"},
		{BitRate(1_550_000), "12.4 Mbit/s"},
		{BitRate(124_912_500), "999 Mbit/s"}, // 999.3
		{BitRate(124_950_000), "1 Gbit/s"},   // 999.6: not 1e+03 Mbit/s
		{BitRate(2e15), "1.6e+04 Tbit/s"},
		{Size(16_700_000), "16.7 MB"},
		{RTT(0), "-"},
		{RTT(ms / 25), "40 µs"},
		{RTT(32*ms + 700*ms/1000), "32.7 ms"},
		{RTT(999 * ms), "999 ms"},
		{RTT(999*ms + 600*ms/1000), "1 s"},
		{RTT(1234 * ms), "1.23 s"},
		{Joules(nil), "-"},
		{Joules(new(0.0)), "0 J"},
		{Joules(new(39.3)), "39.3 J"},
		{Joules(new(0.0393)), "39.3 mJ"},
		{Joules(new(39.3e-6)), "39.3 µJ"},
		{Joules(new(12_345.0)), "12.3 kJ"},
		{Optional(new(0.9994), "W"), "999 mW"},
		{Optional(new(0.9996), "W"), "1 W"},
		{Coupling(1.5822), "1.582"},
		{Coupling(-999.9994), "-999.999"},
		{Coupling(1234.5), "1234"},
		{Coupling(-1234567), "-1234567"},
		{Coupling(-12345678), "-1.2e+07"},
		{Coupling(math.MaxFloat64), "1.8e+308"},
		{Token(0), "-"},
		{Token(0xf3fd52c), "0f3fd52c"},
		{SubflowID(2, false), "2"},
		{SubflowID(2, true), "2 backup"},
		{Ssthresh(nil), "-"},
		{Ssthresh(new(uint32(42))), "42"},
		{Netns("phone", 4026532001), "phone"},
		{Netns("", 4026532001), "4026532001"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
