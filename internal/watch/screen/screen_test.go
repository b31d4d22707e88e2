// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/watch"
	"github.com/mpcc/mpcc/pkg/telemetry"
	"github.com/mpcc/mpcc/test/terminal"
)

// sceneEnv is set for a child process that watches a made-up scene: which one.
const sceneEnv = "MPCC_TEST_SCENE"

func TestMain(m *testing.M) {
	scene, ok := os.LookupEnv(sceneEnv)
	if !ok {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := Run(ctx, &watch.Watch{}, scenes[scene], 100*time.Millisecond); err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
}

// start watches the scene on a terminal of 80x24.
func start(t *testing.T, scene string, env ...string) *terminal.Terminal {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe)
	c.Env = append(append(os.Environ(), sceneEnv+"="+scene), env...)
	return terminal.Start(t, c, 80, 24)
}

// scenes are what is there at each refresh.
var scenes = map[string]watch.Source{
	"three": steady(func(int) watch.Reading { return three() }),
	"many":  steady(func(n int) watch.Reading { return many(500, n) }),
	"nothing, then three": steady(func(n int) watch.Reading {
		if n < 5 {
			return watch.Reading{}
		}
		return three()
	}),
	"first fails": func(context.Context) (r watch.Reading, err error) { return r, errors.New("no permission") },
	"second fails": failing(func(n int) error {
		if n >= 2 && n < 32 { // for three seconds, as a busy host may draw late
			return errors.New("the maps are locked")
		}
		return nil
	}),
	"panic": failing(func(n int) error {
		if n == 3 {
			panic("a bug")
		}
		return nil
	}),
	"counts": steady(func(n int) watch.Reading {
		r := three()
		r.Snapshot.Subflows[0].Cwnd = uint32(1000 + n)
		return r
	}),
}

func steady(at func(n int) watch.Reading) watch.Source {
	n := 0
	return func(context.Context) (watch.Reading, error) {
		n++
		return at(n), nil
	}
}

func failing(at func(n int) error) watch.Source {
	n := 0
	return func(context.Context) (watch.Reading, error) {
		n++
		return three(), at(n)
	}
}

func subflow(token telemetry.Token, number uint32, iface string) telemetry.Subflow {
	return telemetry.Subflow{
		ID: uint64(token)<<8 + uint64(number), Token: token, SubflowID: number, CC: "dts", Interface: iface,
		Netns: 1, NetnsName: "phone",
		Cwnd: 10 * number, SRTT: telemetry.Micros(time.Duration(number) * 20 * time.Millisecond),
		Local: netip.MustParseAddrPort("10.0.1.1:40000"), Remote: netip.MustParseAddrPort("10.0.1.2:80"), Coupling: 1.582,
	}
}

// three connections, the second with two subflows.
func three() watch.Reading {
	subflows := []telemetry.Subflow{
		subflow(0xa1, 1, "wlan0"), subflow(0xa2, 1, "wlan0"), subflow(0xa2, 2, "lte0"), subflow(0xa3, 1, "lte0"),
	}
	subflows[3].Cwnd = 77
	return watch.Reading{Loaded: []string{"cc/dts"}, Snapshot: &telemetry.Snapshot{Subflows: subflows}}
}

// many connections of two subflows each, busy with rates that change, at the nth refresh of one a second.
func many(connections, n int) watch.Reading {
	snap := &telemetry.Snapshot{}
	for i := range connections {
		for number := range uint32(2) {
			f := subflow(telemetry.Token(0x1000_0000+i), number+1, "wlan0")
			f.Cwnd = uint32(20 + (7*i+13*n)%50)
			f.SRTT += telemetry.Micros(time.Duration((11*i+17*n)%9000) * time.Microsecond)
			f.Coupling = 1 + float64((3*i+5*n)%1000)/1000
			f.Age = telemetry.Seconds(time.Duration(n) * time.Second)
			f.BytesAcked = uint64(n*(n+1)/2)*100_000 + uint64(i*n)
			f.Energy = new(float64(n*(n+i)) / 10)
			snap.Subflows = append(snap.Subflows, f)
		}
	}
	return watch.Reading{Loaded: []string{"cc/dts"}, Snapshot: snap}
}

// row waits until this line of the screen begins so.
func row(s *terminal.Terminal, y int, begin string) {
	s.Until(fmt.Sprintf("%q in line %d", begin, y), func(lines []string) bool {
		return strings.HasPrefix(lines[y], begin)
	})
}

const (
	down = "\x1b[B"
	home = "\x1b[H"
	esc  = "\x1b"
)

func TestKeys(t *testing.T) {
	s := start(t, "three")
	row(s, 0, "3 connections, 4 subflows")
	row(s, 1, "CONNECTION            CWND    SRTT        RATE COUPLING   POWER  ENERGY HISTORY")
	row(s, 2, "▸ 000000a1 dts          10   20 ms")
	row(s, 3, "▸ 000000a2 dts          30   20 ms")
	row(s, 4, "▸ 000000a3 dts          77   20 ms")
	row(s, 5, "")
	row(s, 23, "q quit  ↑↓ move  enter expand  s sort  r reverse  / filter  p pause  ? help")

	s.Press(down + "\r")
	row(s, 3, "▾ 000000a2 dts          30   20 ms")
	row(s, 4, "   1 wlan0              10   20 ms           -    1.582")
	row(s, 5, "   2 lte0               20   40 ms           -    1.582")
	row(s, 6, "▸ 000000a3")
	s.Press("jj ") // from a subflow: hides it with its connection
	row(s, 4, "▸ 000000a3")
	s.Press("a")
	row(s, 8, "   1 lte0               77")
	s.Press("a")
	row(s, 4, "▸ 000000a3")

	s.Press("ss") // rate, cwnd
	row(s, 2, "▸ 000000a3")
	s.Shows("by cwnd ↓")
	s.Press("r")
	row(s, 2, "▸ 000000a1")
	s.Shows("by cwnd ↑")

	s.Press("?")
	lines := s.Shows("the algorithm's own quantity")
	for _, l := range lines {
		if strings.Contains(l, "…") {
			t.Errorf("cut off: %s", l)
		}
	}
	s.Shows("Any key ends this help")
	s.Press("q") // ends the help only
	row(s, 2, "▸ 000000a1")
	s.Press("q")
	if code := s.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestFilter(t *testing.T) {
	s := start(t, "three")
	row(s, 0, "3 connections, 4 subflows")
	s.Press("/LTE")
	row(s, 0, "2 connections, 2 subflows") // while it is typed
	row(s, 23, "/LTE")
	row(s, 2, "▸ 000000a2 dts          20   40 ms")
	s.Press(" q\r") // a key of the text here
	row(s, 1, "no subflow matches the filter")
	row(s, 23, "filter LTE q (esc: none)  q quit")
	s.Press(esc)
	row(s, 0, "3 connections, 4 subflows")
	row(s, 23, "q quit")
	s.Press("/a3")
	row(s, 0, "1 connection, 1 subflow")
	s.Press(esc)
	row(s, 0, "3 connections, 4 subflows")
	s.Press("/\x1b[200~a1\x1b[201~") // pasted
	row(s, 0, "1 connection, 1 subflow")
	s.Press("\x03")
	if code := s.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestPause(t *testing.T) {
	s := start(t, "counts")
	row(s, 2, "▸ 000000a1 dts        1")
	first := s.Lines()[2]
	// Not for a certain count: each is there for a tenth of a second, and a busy host may look later.
	s.Until("a later refresh", func(lines []string) bool {
		return strings.HasPrefix(lines[2], "▸ 000000a1 dts") && lines[2] != first
	})
	s.Press("p")
	s.Shows("PAUSED")
	paused := s.Lines()[2]
	time.Sleep(500 * time.Millisecond) // five refreshes
	if now := s.Lines()[2]; now != paused {
		t.Errorf("paused, but %q has become %q", paused, now)
	}
	s.Press(" ") // what is there can be looked at
	row(s, 2, "▾ 000000a1")
	s.Press(" p")
	s.Until("a later refresh, not paused", func(lines []string) bool {
		return strings.HasPrefix(lines[2], "▸ 000000a1") && lines[2] != paused && !strings.Contains(lines[0], "PAUSED")
	})
	s.Press("q")
	s.Exit()
}

func TestMany(t *testing.T) {
	s := start(t, "many")
	row(s, 0, "500 connections, 1000 subflows")
	row(s, 2, "▸ 10000000")
	row(s, 22, "▸ 10000014")
	s.Press("\x1b[6~") // page down
	row(s, 22, "▸ 10000015")
	s.Press("a")
	row(s, 22, "▾ 10000015")
	s.Press("G")
	row(s, 22, "   2 wlan0")
	row(s, 20, "▾ 100001f3")
	s.Press("g")
	row(s, 2, "▾ 10000000")
	s.Press("s") // by rate: 0x100001f3 acknowledges most
	row(s, 2, "▾ 100001f3")
	s.Press(home + "q")
	s.Exit()
}

// Windows that are narrow, low, or become so, and one in which nothing fits.
func TestSizes(t *testing.T) {
	s := start(t, "three")
	row(s, 4, "▸ 000000a3")
	for _, size := range []struct {
		columns, rows int
		titles        string
	}{
		{34, 8, "CONNECTION            CWND    SRTT"},
		{12, 8, "CONNECTION"},
		{200, 50, "CONNECTION            CWND SSTHRESH    SRTT BASE RTT        RATE   RECEIVING RETRANS COUPLING   POWER  ENERGY HISTORY"},
		{80, 5, "CONNECTION            CWND    SRTT"},
	} {
		s.Resize(size.columns, size.rows)
		row(s, 1, size.titles)
		row(s, size.rows-1, "q quit")
		row(s, 2, "▸ 000000a1")
	}
	s.Press("G") // two rows fit
	row(s, 2, "▸ 000000a2")
	row(s, 3, "▸ 000000a3")
	s.Resize(80, 8)
	s.Press("?") // the keys stay below what fits of the help
	s.Until("help and keys", func(lines []string) bool {
		return strings.HasPrefix(lines[1], "↑ k") && strings.HasPrefix(lines[7], "q quit")
	})
	s.Press("q")
	for _, rows := range []int{3, 2, 1} {
		s.Resize(20, rows)
		row(s, rows-1, "q quit")
	}
	s.Resize(80, 24)
	row(s, 4, "▸ 000000a3")
	s.Press("q")
	s.Exit()
}

func TestNothingLoaded(t *testing.T) {
	s := start(t, "nothing, then three")
	row(s, 1, "nothing is loaded; mpcc load NAME loads an algorithm")
	row(s, 23, "q quit")
	row(s, 0, "3 connections, 4 subflows")
	s.Press("q")
	s.Exit()
}

// The terminal's Exit looks whether the terminal is as it was before.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		scene string
		end   func(*terminal.Terminal)
		code  int
		says  string
	}{
		"q":         {"three", func(s *terminal.Terminal) { s.Press("q") }, 0, ""},
		"ctrl+c":    {"three", func(s *terminal.Terminal) { s.Press("\x03") }, 0, ""},
		"SIGINT":    {"three", func(s *terminal.Terminal) { s.Signal(unix.SIGINT) }, 0, ""},
		"SIGTERM":   {"three", func(s *terminal.Terminal) { s.Signal(unix.SIGTERM) }, 0, ""},
		"the help":  {"three", func(s *terminal.Terminal) { s.Press("?\x03") }, 0, ""},
		"panic":     {"panic", func(*terminal.Terminal) {}, 1, "a bug"},
		"no rights": {"first fails", func(*terminal.Terminal) {}, 1, "failed: no permission"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, c.scene)
			if c.scene != "first fails" {
				s.Until("raw mode", func([]string) bool { return s.Raw() })
				row(s, 0, "3 connections")
			}
			c.end(s)
			if code := s.Exit(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if text := strings.Join(s.Lines(), "\n"); c.says == "" && strings.TrimSpace(text) != "" {
				t.Errorf("leaves this behind: %s", text)
			}
			if !strings.Contains(s.Written(), c.says) {
				t.Errorf("does not say %q: %q", c.says, s.Written())
			}
		})
	}
}

// A reading that fails later is shown until one is well.
func TestErrorOfAReading(t *testing.T) {
	s := start(t, "second fails")
	row(s, 2, "▸ 000000a1")
	s.Until("the error come and go", func(lines []string) bool {
		return strings.Contains(s.Written(), "mpcc watch: the maps are locked") && strings.HasPrefix(lines[0], "3 connections")
	})
	s.Press("q")
	s.Exit()
}

func TestColours(t *testing.T) {
	s := start(t, "three")
	row(s, 2, "▸ 000000a1")
	if !s.Coloured() {
		t.Error("no colours")
	}
	s.Press("p")
	s.Shows("PAUSED")
	s.Press("q")
	s.Exit()

	s = start(t, "three", "NO_COLOR=1")
	row(s, 2, "▸ 000000a1")
	s.Press("p")
	s.Shows("PAUSED")
	if s.Coloured() {
		t.Error("colours in spite of NO_COLOR")
	}
	s.Press("/x")
	row(s, 1, "no subflow")
	if s.Coloured() {
		t.Error("the filter has colours in spite of NO_COLOR")
	}
	s.Press("\x03")
	s.Exit()
}
