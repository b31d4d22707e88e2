// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestReadCSV(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		text    string
		power   Power
		samples []Sample
	}{
		"watts, RFC 3339": {
			"time,watts\n2026-01-31T12:00:00Z,99\n2026-01-31T13:00:02.5+01:00,2\n2026-01-31T12:00:03.5Z,-1\n",
			Power{{noon, 0}, {noon.Add(5 * s / 2), 5}, {noon.Add(7 * s / 2), 4}}, nil,
		},
		"joules and counters, seconds": {
			"\ufefftx_bytes, rx_bytes ,joules,time\r\n5,7,100,1769860800\r\n125005,7,103,1769860801.0\r\n125005,500007,105,1769860803\r\n125105,500007,106,1769860804\r\n",
			Power{{noon, 0}, {noon.Add(s), 3}, {noon.Add(3 * s), 5}, {noon.Add(4 * s), 6}},
			[]Sample{
				{Duration: s, Watts: 3, Sent: 1, Active: 1},
				{Duration: 2 * s, Watts: 1, Received: 2, Active: 1},
				{Duration: s, Watts: 1, Sent: 0.0008, Idle: s},
			},
		},
		"one direction, rates": {
			"time,watts,tx_mbps\n1769860800,0,0\n\n1769860801,4,0\n1769860802,5,12.5\n",
			Power{{noon, 0}, {noon.Add(s), 4}, {noon.Add(2 * s), 9}},
			[]Sample{{Duration: s, Watts: 4, Idle: s}, {Duration: s, Watts: 5, Sent: 12.5, Active: 1}},
		},
		"a header alone": {"time,watts", nil, nil},
		"a row alone":    {"time,watts\n1769860800,5\n", Power{{noon, 0}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := ReadCSV(strings.NewReader(test.text))
			if err != nil {
				t.Fatal(err)
			}
			equal := cmp.Options{cmpopts.EquateApprox(1e-9, 0), cmpopts.EquateApproxTime(time.Microsecond)}
			if diff := cmp.Diff(test.power, l.Power(), equal); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.samples, l.Samples(), equal); diff != "" {
				t.Error(diff)
			}
			if l.HasTraffic() != (test.samples != nil) {
				t.Errorf("HasTraffic is %v", l.HasTraffic())
			}
		})
	}
}

func TestReadCSVRefuses(t *testing.T) {
	const head = "time,watts\n"
	for text, want := range map[string]string{
		"":                                      "line 1: the file is empty; its first line has the names of the columns: time, watts, joules, ",
		"time,volts\n":                          `line 1: column "volts" is none of time, watts, joules, tx_bytes, rx_bytes, tx_mbps, rx_mbps`,
		"time,watts,time\n":                     "line 1: there are two columns time",
		"watts\n":                               "line 1: there is no column time",
		"time,tx_bytes\n":                       "line 1: there is neither a column watts nor one joules",
		"time,watts,joules\n":                   "line 1: there are both columns watts and joules",
		"time,watts,tx_bytes,tx_mbps\n":         "line 1: there are both columns tx_bytes and tx_mbps",
		"time,watts,rx_bytes,rx_mbps\n":         "line 1: there are both columns rx_bytes and rx_mbps",
		"1769860800,5\n":                        `line 1: column "1769860800" is none of`,
		head + "1,5\n2\n":                       "line 3: wrong number of fields",
		head + "1,5\n2,5,6\n":                   "line 3: wrong number of fields",
		head + "1,5\n2,\"5\n":                   "line 3: ",
		head + "1,5\n\n1,5\n":                   "line 4: the time is not after that of the row before",
		head + "2,5\n1,5\n":                     "line 3: the time is not after",
		head + "noon,5\n":                       `line 2: time is "noon", neither RFC 3339, as 2026-01-31T12:00:00.5Z, nor seconds since 1970`,
		head + "2026-01-31 12:00:00,5":          `line 2: time is "2026-01-31 12:00:00", neither`,
		head + "-1,5\n":                         `line 2: time is "-1", neither`,
		head + "NaN,5\n":                        `line 2: time is "NaN", neither`,
		head + "1e300,5\n":                      `line 2: time is "1e300", neither`,
		head + "1,\n":                           `line 2: watts is "", not a number`,
		head + "1,5 W\n":                        `line 2: watts is "5 W", not a number`,
		head + "1,NaN\n":                        `line 2: watts is "NaN", not a number`,
		head + "1,-Inf\n":                       `line 2: watts is "-Inf", not a number`,
		head + "1,1e30\n":                       `line 2: watts is "1e30", not a number`,
		"time,joules\n1,5\n2,4\n":               "line 3: joules fell from 5 to 4: it has to be a counter",
		"time,watts,tx_bytes\n1,5,0.5\n":        `line 2: tx_bytes is "0.5", not a whole number of bytes`,
		"time,watts,rx_bytes\n1,5,-1\n":         `line 2: rx_bytes is "-1", not a whole number of bytes`,
		"time,watts,rx_bytes\n1,5,9\n2,5,8\n":   "line 3: rx_bytes fell from 9 to 8: it has to be a counter",
		"time,watts,tx_mbps\n1,5,0\n2,5,-0.1\n": `line 3: tx_mbps is -0.1, below 0`,
		"time,watts,rx_mbps\n1,5,0\n2,5,fast\n": `line 3: rx_mbps is "fast", not a number`,
		"time,watts,tx_bytes\n1,5,99999999999999999999\n": `line 2: tx_bytes is "99999999999999999999", not a whole`,
	} {
		l, err := ReadCSV(strings.NewReader(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, error %v; want %q", text, l, err, want)
		}
	}
}

// Whatever is taken makes samples that can be fitted: times that rise, figures that are finite.
func FuzzReadCSV(f *testing.F) {
	for _, text := range []string{
		"time,watts\n1769860800,5\n1769860801,6\n",
		"time,joules,tx_bytes,rx_mbps\n2026-01-31T12:00:00.5Z,1e3,0,1\n2026-01-31T12:00:01Z,1.5e3,1000000,2.5\n",
		"\ufefftime,watts,rx_bytes\r\n0,-1,18446744073709551614\r\n253402300799,\"2\",18446744073709551615\r\n",
		"time,watts\n1,5\n1,5\n", "time\n", "watts,time\n,\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ReadCSV(strings.NewReader(text))
		if err != nil {
			return
		}
		power, samples := l.Power(), l.Samples()
		if l.HasTraffic() && len(samples) != max(0, len(power)-1) {
			t.Fatalf("%d samples of %d rows", len(samples), len(power))
		}
		for i, p := range power {
			if i > 0 && !p.At.After(power[i-1].At) || math.IsNaN(p.Joules) || math.IsInf(p.Joules, 0) {
				t.Fatalf("row %d: %v", i, p)
			}
		}
		for i, s := range samples {
			for _, v := range []float64{s.Watts, s.Sent, s.Received} {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("sample %d: %+v", i, s)
				}
			}
			if s.Duration <= 0 || s.Idle < 0 || s.Sent < 0 || s.Received < 0 {
				t.Fatalf("sample %d: %+v", i, s)
			}
		}
		if _, err := Fit(samples); err != nil && strings.Contains(err.Error(), "NaN") {
			t.Fatal(err)
		}
	})
}
