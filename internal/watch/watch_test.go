// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/telemetry"
	"github.com/mpcc/mpcc/test/keydoc"
)

const second = telemetry.Seconds(time.Second)

// subflow is one of a connection in the namespace phone; id tells it from all others.
func subflow(id uint64, token telemetry.Token, number uint32) telemetry.Subflow {
	return telemetry.Subflow{
		ID: id, Token: token, SubflowID: number, CC: "dts", Netns: 1, NetnsCookie: 11, NetnsName: "phone", Interface: "wlan0",
		Local: netip.MustParseAddrPort("10.0.1.1:40000"), Remote: netip.MustParseAddrPort("10.0.1.2:80"),
		Age: second, SRTT: telemetry.Micros(20 * time.Millisecond),
	}
}

func reading(subflows ...telemetry.Subflow) Reading {
	return Reading{[]string{"cc/dts"}, &telemetry.Snapshot{Subflows: subflows}}
}

// later returns the subflow after so many seconds, which it has just been recorded after.
func later(f telemetry.Subflow, seconds float64, acked uint64) telemetry.Subflow {
	f.Age += telemetry.Seconds(seconds * float64(time.Second))
	f.Updated = 0
	f.BytesAcked += acked
	return f
}

func wantRate(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-6*want {
		t.Errorf("%s: %v, want %g", what, got, want)
	}
}

func TestRates(t *testing.T) {
	var w Watch
	f := subflow(1, 7, 1)
	f.BytesAcked, f.BytesReceived = 5000, 70
	w.Refresh(reading(f))
	got := func() *Subflow { return w.connections[0].Subflows[0] }
	if got().Rate != nil || got().Receiving != nil || got().Power != nil || len(got().history) != 0 {
		t.Errorf("rates at the first sight: %+v", got())
	}

	f = later(f, 2, 3000)
	f.BytesReceived += 500
	w.Refresh(reading(f))
	wantRate(t, "rate", got().Rate, 1500)
	wantRate(t, "receiving", got().Receiving, 250)
	if got().Power != nil {
		t.Errorf("power without a profile: %g", *got().Power)
	}

	// A profile is set: nothing was counted before.
	f = later(f, 0.5, 0)
	f.Energy = new(0.25)
	w.Refresh(reading(f))
	wantRate(t, "rate while nothing is acknowledged", got().Rate, 0)
	wantRate(t, "power", got().Power, 0.5)
	f = later(f, 4, 0)
	f.Energy = new(0.75)
	w.Refresh(reading(f))
	wantRate(t, "power", got().Power, 0.125)

	// One that comes later, and the end of the first.
	g := subflow(2, 7, 2)
	w.Refresh(reading(later(f, 1, 100), g))
	w.Refresh(reading(later(g, 1, 40)))
	wantRate(t, "rate of the second", got().Rate, 40)
	if len(w.byID) != 1 || len(got().history) != 1 {
		t.Errorf("%d subflows, history %v", len(w.byID), got().history)
	}
}

// The maps know of a subflow's state with a delay: of what was acknowledged, and when.
func TestRateOfWhatWasRecordedEarlier(t *testing.T) {
	ms := func(n int) telemetry.Seconds { return telemetry.Seconds(time.Duration(n) * time.Millisecond) }
	for _, c := range []struct {
		name                   string
		srtt                   int // ms
		updatedBefore, updated int // ms ago, at two readings one second apart
		acked                  uint64
		rate                   float64
	}{
		// Recorded 80 ms before the first reading and 20 ms before the second: within 1060 ms.
		{name: "steady", srtt: 20, updatedBefore: 80, updated: 20, acked: 1060, rate: 1000},
		// It was idle for a minute: what came since the first reading, less 100 ms in which news may be under way.
		{name: "idle before", srtt: 20, updatedBefore: 60000, updated: 0, acked: 1100, rate: 1000},
		{name: "idle after", srtt: 20, updatedBefore: 0, updated: 900, acked: 90, rate: 100},
		{name: "idle", srtt: 20, updatedBefore: 60000, updated: 61000, rate: 0},
		{name: "long RTT", srtt: 2500, updatedBefore: 1900, updated: 0, acked: 2900, rate: 1000},
		// Nothing new within an RTT: it goes on as before.
		{name: "no news in an RTT", srtt: 2500, updatedBefore: 500, updated: 1500, rate: 77},
	} {
		var w Watch
		f := subflow(1, 7, 1)
		f.SRTT = telemetry.Micros(time.Duration(c.srtt) * time.Millisecond)
		f.Age = 100 * second
		w.Refresh(reading(f))
		before := later(f, 100, 100*77)
		before.Updated = ms(c.updatedBefore)
		w.Refresh(reading(before))
		w.byID[1].Rate = new(77.0)
		now := later(before, 1, c.acked)
		now.Updated = ms(c.updated)
		w.Refresh(reading(now))
		wantRate(t, c.name, w.byID[1].Rate, c.rate)
	}
}

// two connections: 7 with two subflows, 5 with one of another algorithm and namespace.
func two() (wlan, lte, other telemetry.Subflow) {
	wlan, lte, other = subflow(1, 7, 1), subflow(2, 7, 2), subflow(3, 5, 1)
	lte.Interface, lte.Backup, lte.Local = "lte0", true, netip.MustParseAddrPort("[2001:db8::1]:40001")
	other.CC, other.NetnsName, other.Netns, other.NetnsCookie = "lia", "", 2, 22
	wlan.Cwnd, lte.Cwnd, other.Cwnd = 58, 88, 100
	wlan.SRTT, lte.SRTT, other.SRTT = 0, telemetry.Micros(75*time.Millisecond), telemetry.Micros(30*time.Millisecond)
	wlan.Energy, other.Energy = new(2.0), new(3.0)
	wlan.Retrans, lte.Retrans = 3, 4
	wlan.Coupling, lte.Coupling, other.Coupling = -2, -1, -1.5
	return wlan, lte, other
}

func TestConnections(t *testing.T) {
	var w Watch
	wlan, lte, other := two()
	lte.CC = "lia"
	w.Refresh(reading(wlan, lte, other))
	w.Refresh(reading(later(wlan, 1, 100), later(lte, 1, 20), other))
	if len(w.connections) != 2 {
		t.Fatalf("%d connections", len(w.connections))
	}
	c := w.connections[0]
	if c.token != 7 || len(c.Subflows) != 2 || c.Cwnd != 146 || c.Retrans != 7 || c.SRTT != lte.SRTT || c.CC != "dts,lia" ||
		*c.Rate != 120 || *c.Energy != 2 || c.coupling != -1 {
		t.Errorf("%+v", c)
	}
	if c := w.connections[1]; c.token != 5 || c.Rate != nil || c.Power != nil {
		t.Errorf("%+v", c)
	}

	// Histories begin at different times and end together.
	young := subflow(9, 7, 3)
	w.Refresh(reading(later(wlan, 2, 300), later(lte, 2, 20), young))
	w.Refresh(reading(later(wlan, 3, 700), later(lte, 3, 21), later(young, 1, 5000)))
	if got := w.connections[0].history(); !slices.Equal(got, []float64{120, 200, 5401}) {
		t.Errorf("history %v", got)
	}
	for range 2 * historyLength {
		wlan = later(wlan, 1, 1)
		w.Refresh(reading(wlan))
	}
	if n := len(w.byID[1].history); n != historyLength {
		t.Errorf("a history of %d", n)
	}
}

// Connections with the same token in two namespaces are two, and those without token are one each.
func TestWhatIsOneConnection(t *testing.T) {
	var w Watch
	a, b, c, d := subflow(1, 7, 1), subflow(2, 7, 1), subflow(3, 0, 0), subflow(4, 0, 0)
	b.NetnsCookie = 22
	w.Refresh(reading(c, d, a, b))
	if len(w.connections) != 4 {
		t.Errorf("%d connections, want 4", len(w.connections))
	}
}

func tokens(w *Watch) (tokens []telemetry.Token) {
	for _, c := range w.connections {
		tokens = append(tokens, c.token)
	}
	return tokens
}

func TestOrders(t *testing.T) {
	var w Watch
	wlan, lte, other := two()
	idle, alike := subflow(4, 8, 1), subflow(5, 9, 1)
	idle.SRTT, alike.SRTT = 0, 0
	idle.Coupling, alike.Coupling = -9, -8
	w.Refresh(reading(wlan, lte, idle, alike, other))
	wlan, lte, other = later(wlan, 1, 10), later(lte, 1, 10), later(other, 1, 15)
	wlan.Energy, other.Energy = new(2.1), new(3.2)
	w.Refresh(reading(wlan, lte, idle, alike, other)) // the rates of 8 and 9 stay unknown
	type list = []telemetry.Token
	for _, want := range []struct {
		order          string
		tokens         list
		reversed       string
		tokensReversed list
	}{
		{"token ↑", list{7, 8, 9, 5}, "token ↓", list{5, 9, 8, 7}}, // 5 is of another namespace
		{"rate ↓", list{7, 5, 8, 9}, "rate ↑", list{5, 7, 8, 9}},
		{"cwnd ↓", list{7, 5, 8, 9}, "cwnd ↑", list{8, 9, 5, 7}},
		{"srtt ↓", list{7, 5, 8, 9}, "srtt ↑", list{5, 7, 8, 9}},
		{"coupling ↓", list{7, 5, 9, 8}, "coupling ↑", list{8, 9, 5, 7}},
		{"power ↓", list{5, 7, 8, 9}, "power ↑", list{7, 5, 8, 9}},
		{"energy ↓", list{5, 7, 8, 9}, "energy ↑", list{7, 5, 8, 9}},
		{"token ↑", list{7, 8, 9, 5}, "token ↓", list{5, 9, 8, 7}},
	} {
		if got := tokens(&w); w.Order() != want.order || !slices.Equal(got, want.tokens) {
			t.Errorf("by %s: %v, want by %s %v", w.Order(), got, want.order, want.tokens)
		}
		w.Reverse()
		if got := tokens(&w); w.Order() != want.reversed || !slices.Equal(got, want.tokensReversed) {
			t.Errorf("by %s: %v, want by %s %v", w.Order(), got, want.reversed, want.tokensReversed)
		}
		w.NextOrder()
	}
}

func TestFilter(t *testing.T) {
	wlan, lte, other := two()
	for filter, want := range map[string][]uint64{
		"":                    {1, 2, 3},
		"00000007":            {1, 2},
		"dts":                 {1, 2},
		"lte0":                {2},
		"dts wlan":            {1},
		"lia wlan":            {3},
		"lia lte":             {},
		"10.0.1.1:40000":      {1, 3},
		"2001:db8::1":         {2},
		"10.0.1.2:80 phone":   {1, 2},
		"backup":              {2},
		"phone backup 2":      {2},
		"no such thing there": {},
	} {
		var w Watch
		w.Filter(strings.Fields(filter))
		w.Refresh(reading(wlan, lte, other))
		got := []uint64{}
		for _, c := range w.connections {
			for _, f := range c.Subflows {
				got = append(got, f.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q shows %v, want %v", filter, got, want)
		}
	}
	var w Watch
	w.Refresh(reading(wlan, lte, other))
	w.Filter([]string{"lte0"})
	if c := w.connections[0]; len(w.connections) != 1 || c.Cwnd != 88 {
		t.Errorf("the sums have what the filter hides: %+v", c)
	}
}

func TestNetns(t *testing.T) {
	wlan, lte, other := two()
	w := Watch{Netns: "phone"}
	w.Refresh(reading(wlan, lte, other))
	if got := tokens(&w); !slices.Equal(got, []telemetry.Token{7}) {
		t.Errorf("%v", got)
	}
}

func TestNotes(t *testing.T) {
	var w Watch
	note := func(want string) {
		t.Helper()
		if got := w.Note(); got != want {
			t.Errorf("note %q, want %q", got, want)
		}
	}
	w.Refresh(Reading{})
	note("nothing is loaded; mpcc load NAME loads an algorithm")
	w.Refresh(Reading{Snapshot: &telemetry.Snapshot{}}) // with the maps of energy profiles, or of paths
	note(loader.ErrNothingLoaded.Error())
	w.Refresh(reading())
	note("no live subflow runs a congestion control of mpcc; those of new connections show up here")
	w.Refresh(reading(subflow(1, 7, 1)))
	note("")
	w.Filter([]string{"lte"})
	note("no subflow matches the filter")
	w.Refresh(Reading{Snapshot: &telemetry.Snapshot{Subflows: []telemetry.Subflow{subflow(1, 7, 1)}}})
	w.Filter(nil)
	note("") // unloaded, but the connection runs on
}

// shown writes the rows of the window, the one at the cursor in brackets.
func shown(w *Watch, height int) string {
	rows, cursor := w.Window(height)
	var text []string
	for i, r := range rows {
		line := r.Subflows[0].Token.String()[7:]
		if r.Subflow != nil {
			line += "." + string(rune('0'+r.Subflow.SubflowID))
		}
		if i == cursor {
			line = "[" + line + "]"
		}
		text = append(text, line)
	}
	return strings.Join(text, " ")
}

func TestCursor(t *testing.T) {
	var w Watch
	step := func(what, want string) {
		t.Helper()
		if got := shown(&w, 4); got != want {
			t.Fatalf("%s: %s, want %s", what, got, want)
		}
	}
	all := []telemetry.Subflow{subflow(1, 1, 1), subflow(2, 1, 2), subflow(3, 2, 1), subflow(4, 2, 2), subflow(5, 3, 1)}
	step("nothing there", "")
	w.Toggle()
	w.Move(1)
	w.Bottom()
	step("nothing there", "")
	w.Refresh(reading(all...))
	step("three connections", "[1] 2 3")
	w.Toggle()
	step("the first expanded", "[1] 1.1 1.2 2")
	w.Move(1)
	step("down", "1 [1.1] 1.2 2")
	w.Move(1)
	w.Move(1)
	step("down", "1 1.1 1.2 [2]")
	w.Move(1)
	step("down, the window too", "1.1 1.2 2 [3]")
	w.Move(1)
	step("no further", "1.1 1.2 2 [3]")
	w.Move(-2)
	step("up, the window stays", "1.1 [1.2] 2 3")
	w.Move(-9)
	step("up", "[1] 1.1 1.2 2")
	w.Bottom()
	step("the end", "1.1 1.2 2 [3]")
	w.ToggleAll()
	step("all expanded, at the same row", "2 2.1 2.2 [3]")
	w.Move(-1)
	w.Toggle()
	step("hidden from a subflow of it: at its connection", "1.2 [2] 3 3.1")
	w.ToggleAll()
	step("all hidden", "1 [2] 3")

	// The cursor follows the row that was chosen, and stays where it was if that row goes.
	w.Reverse()
	step("reversed", "3 [2] 1")
	w.Move(1)
	w.Reverse()
	step("reversed again", "[1] 2 3")
	w.Move(1)
	w.Refresh(reading(all[0], all[1], all[4]))
	step("the second gone", "1 [3]")
	w.Refresh(reading(all...))
	step("and back", "1 2 [3]")
	w.Refresh(reading(all[0]))
	step("all others gone", "[1]")

	// At the top it stays there.
	w.Refresh(reading(all...))
	w.Move(1)
	w.Top()
	w.Reverse()
	step("at the top", "[3] 2 1")
	w.Refresh(Reading{})
	step("nothing left", "")
	w.Refresh(reading(all...))
	step("again", "[3] 2 1")
}

// A higher window shows what is above, not blank lines below.
func TestWindowGrows(t *testing.T) {
	var w Watch
	w.Refresh(reading(subflow(1, 1, 1), subflow(2, 2, 1), subflow(3, 3, 1)))
	w.Bottom()
	for i, want := range []string{"[3]", "2 [3]", "1 2 [3]", "1 2 [3]"} {
		if got := shown(&w, i+1); got != want {
			t.Errorf("%d rows: %s, want %s", i+1, got, want)
		}
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		values []float64
		width  int
		want   string
	}{
		{nil, 3, "   "},
		{[]float64{0, 0}, 3, " ▁▁"},
		{[]float64{5}, 3, "  █"},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 8, "▁▂▃▄▅▆▇█"},
		{[]float64{70, 0, 3.5, 7}, 3, "▁▄█"}, // against the largest that is shown
	} {
		if got := sparkline(c.values, c.width); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}

func TestColumns(t *testing.T) {
	titles := func(width int) string {
		var all []string
		total := -1
		for _, c := range Columns(width) {
			all = append(all, c.Title)
			total += 1 + c.Width
		}
		if width > 0 && total > width {
			t.Errorf("columns for %d are %d wide", width, total)
		}
		return strings.Join(all, " ")
	}
	for width := range 300 {
		titles(width)
	}
	for width, want := range map[int]string{
		10:  "CONNECTION",
		26:  "CONNECTION CWND",
		34:  "CONNECTION CWND SRTT",
		79:  "CONNECTION CWND SRTT RATE COUPLING POWER HISTORY",
		80:  "CONNECTION CWND SRTT RATE COUPLING POWER ENERGY HISTORY",
		300: "CONNECTION CWND SSTHRESH SRTT BASE RTT RATE RECEIVING RETRANS COUPLING POWER ENERGY HISTORY NETNS PATH",
	} {
		if got := titles(width); got != want {
			t.Errorf("%d: %s, want %s", width, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	wlan, lte, other := two()
	var w Watch
	readings := []Reading{{}, reading(wlan, lte, other), reading(later(wlan, 2, 250_000), later(lte, 2, 0), other)}
	source := func(context.Context) (r Reading, err error) {
		if len(readings) == 0 {
			return r, errors.New("read too often")
		}
		r, readings = readings[0], readings[1:]
		return r, nil
	}
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	var table bytes.Buffer
	err := w.Repeat(t.Context(), source, time.Millisecond, 3, func() error { return w.WriteTable(&table, now) })
	if err != nil {
		t.Fatal(err)
	}
	const want = `15:04:05  nothing is loaded; mpcc load NAME loads an algorithm
15:04:05  2 connections, 3 subflows
TOKEN     ID        CC   IFACE  PATH                    CWND  SSTHRESH  SRTT   BASE RTT  RATE  RECEIVING  RETRANS  COUPLING  POWER  ENERGY  NETNS
00000007  1         dts  wlan0  10.0.1.1 > 10.0.1.2     58    -         -      -         -     -          3        -2.000    -      2 J     phone
00000007  2 backup  dts  lte0   2001:db8::1 > 10.0.1.2  88    -         75 ms  -         -     -          4        -1.000    -      -       phone
00000005  1         lia  wlan0  10.0.1.1 > 10.0.1.2     100   -         30 ms  -         -     -          0        -1.500    -      3 J     2

15:04:05  2 connections, 3 subflows, 1 Mbit/s, 0 W
TOKEN     ID        CC   IFACE  PATH                    CWND  SSTHRESH  SRTT   BASE RTT  RATE      RECEIVING  RETRANS  COUPLING  POWER  ENERGY  NETNS
00000007  1         dts  wlan0  10.0.1.1 > 10.0.1.2     58    -         -      -         1 Mbit/s  0 bit/s    3        -2.000    0 W    2 J     phone
00000007  2 backup  dts  lte0   2001:db8::1 > 10.0.1.2  88    -         75 ms  -         0 bit/s   0 bit/s    4        -1.000    -      -       phone
00000005  1         lia  wlan0  10.0.1.1 > 10.0.1.2     100   -         30 ms  -         -         -          0        -1.500    -      3 J     2

`
	if diff := cmp.Diff(want, table.String()); diff != "" {
		t.Error(diff)
	}

	var line bytes.Buffer
	if err := w.WriteJSON(&line, now); err != nil {
		t.Fatal(err)
	}
	if strings.Count(line.String(), "\n") != 1 {
		t.Errorf("not one line: %s", line.String())
	}
	var got struct {
		Time     time.Time
		Loaded   []string
		Subflows []map[string]any
	}
	if err := json.Unmarshal(line.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Time.Equal(now) || !slices.Equal(got.Loaded, []string{"cc/dts"}) || len(got.Subflows) != 3 {
		t.Fatalf("%+v", got)
	}
	for key, want := range map[string]any{
		"token": "00000007", "cwnd_packets": 58.0, "energy_joules": 2.0, // as mpcc status -j has them
		"rate_bytes_per_second": 125000.0, "receive_rate_bytes_per_second": 0.0, "power_watts": 0.0,
	} {
		if got.Subflows[0][key] != want {
			t.Errorf("%s: %v, want %v", key, got.Subflows[0][key], want)
		}
	}
	if rate, has := got.Subflows[2]["rate_bytes_per_second"]; !has || rate != nil {
		t.Errorf("a rate that is not known yet: %v", rate)
	}
}

func TestRepeatEnds(t *testing.T) {
	var w Watch
	failed := errors.New("failed")
	nothing := func(context.Context) (Reading, error) { return Reading{}, nil }
	fails := func(context.Context) (Reading, error) { return Reading{}, failed }
	if err := w.Repeat(t.Context(), fails, time.Hour, 0, nil); !errors.Is(err, failed) {
		t.Errorf("a reading fails: %v", err)
	}
	if err := w.Repeat(t.Context(), nothing, time.Hour, 0, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("writing fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	written := 0
	err := w.Repeat(ctx, nothing, time.Hour, 0, func() error {
		written++
		cancel()
		return nil
	})
	if err != nil || written != 1 {
		t.Errorf("interrupted: %v, written %d times", err, written)
	}
}

// docs/watch.md has each key of the JSON.
func TestDocumented(t *testing.T) {
	keydoc.Check(t, "../../docs/watch.md", reflect.TypeFor[Refresh](), []reflect.Type{reflect.TypeFor[netip.AddrPort]()},
		"Keys", "Columns", "Without a terminal")
}
