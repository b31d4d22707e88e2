// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/watch"
	"github.com/mpcc/mpcc/test/terminal"
)

func newModel(t testing.TB, scene string) *model {
	t.Helper()
	m := &model{Watch: &watch.Watch{}, ctx: t.Context(), source: scenes[scene], interval: time.Hour, filter: newFilter()}
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	return m
}

// However a pause falls, one round of reading and waiting goes on after it, and none during it.
func TestRounds(t *testing.T) {
	pause := tea.KeyPressMsg{Code: 'p', Text: "p"}
	m := newModel(t, "counts")
	update := func(what string, msg tea.Msg, goesOn bool) {
		t.Helper()
		if _, next := m.Update(msg); (next != nil) != goesOn {
			t.Errorf("%s: goes on %v, want %v", what, next != nil, goesOn)
		}
	}
	r := three()
	update("wait ends", due{0}, true)
	update("read", read{0, r, nil}, true)
	update("pause", pause, false)
	update("wait ends in the pause", due{0}, false)
	update("a reading ends in the pause", read{0, watch.Reading{}, nil}, false)
	if m.Note() != "" {
		t.Error("a reading shows in a pause")
	}
	update("go on", pause, true)
	update("wait from before the pause ends", due{0}, false)
	update("reading from before the pause ends", read{0, r, nil}, false)
	update("reading ends", read{2, r, nil}, true)
	update("wait ends", due{2}, true)
}

// shown is a model that remembers the view of its last reading.
type shown struct {
	*model
	readings int
	view     atomic.Pointer[view]
}

type view struct {
	readings int
	lines    []string
}

func (s *shown) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if _, ok := msg.(read); ok {
		s.readings++
	}
	_, next := s.model.Update(msg)
	return s, next
}

func (s *shown) View() tea.View {
	v := s.model.View()
	s.view.Store(&view{s.readings, strings.Split(v.Content, "\n")})
	return v
}

// counted is a terminal's screen that counts what is written to it.
type counted struct {
	vt10x.Terminal
	bytes atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.bytes.Add(int64(len(b)))
	return c.Terminal.Write(b)
}

// shows tells whether these lines, without their colours, and nothing else are on the screen.
func (c *counted) shows(lines []string) bool {
	for y, line := range terminal.Lines(c.Terminal) {
		want := ""
		if y < len(lines) {
			want = strings.TrimRight(ansi.Strip(lines[y]), " ")
		}
		if line != want {
			return false
		}
	}
	return true
}

// refreshes shows so many readings, one after the other is on the screen, of 80x24, and returns how many bytes were
// written for them.
func refreshes(t testing.TB, n int, at func(i int) watch.Reading) int64 {
	t.Helper()
	out := &counted{Terminal: vt10x.New(vt10x.WithSize(80, 24))}
	_, _ = out.Terminal.Write([]byte("\x1b[20h")) // a new line begins at the left, as Bubble Tea has it where there is no tty
	m := &shown{model: newModel(t, "three")}
	p := tea.NewProgram(m, tea.WithContext(t.Context()), tea.WithOutput(out), tea.WithInput(nil),
		tea.WithWindowSize(80, 24), tea.WithEnvironment([]string{"TERM=xterm-256color"}), tea.WithFPS(120))
	ended := make(chan error)
	go func() {
		_, err := p.Run()
		ended <- err
	}()
	show := func(i int) {
		p.Send(read{Reading: at(i)})
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
			if v := m.view.Load(); v != nil && v.readings == i+1 && out.shows(v.lines) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the screen does not show reading %d: %s", i, out)
			}
		}
	}
	const full = 10 // from then on, the sparklines are full
	for i := range full {
		show(i)
	}
	before := out.bytes.Load()
	for i := range n {
		show(full + i)
	}
	bytes := out.bytes.Load() - before
	p.Quit()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return bytes
}

// thousand subflows, of which nearly all figures change.
func thousand(i int) watch.Reading { return many(500, i) }

// A refresh writes little more than what has changed: a whole screen is more than 2,000 bytes.
func TestWritten(t *testing.T) {
	const n = 20
	for _, c := range []struct {
		name string
		at   func(int) watch.Reading
		most int64 // bytes for a refresh
	}{
		{"nearly all figures", thousand, 1400},
		{"one figure", func(i int) watch.Reading {
			r := three()
			r.Snapshot.Subflows[0].Cwnd += uint32(i)
			return r
		}, 12},
	} {
		bytes := refreshes(t, n, c.at)
		if bytes > n*c.most {
			t.Errorf("%s: %d bytes for a refresh, want at most %d", c.name, bytes/n, c.most)
		}
		t.Logf("%s: %d bytes for a refresh", c.name, bytes/n)
	}
}

// BenchmarkFrame takes in 1,000 subflows and renders the screen.
func BenchmarkFrame(b *testing.B) {
	m := newModel(b, "many")
	readings := []watch.Reading{thousand(1), thousand(2), thousand(3), thousand(4)}
	for i := 0; b.Loop(); i++ {
		m.Update(read{Reading: readings[i%len(readings)]})
		if len(m.View().Content) < 80*20 {
			b.Fatal("not a full screen")
		}
	}
}

// BenchmarkRefresh does so with the differences to the screen before, what is written for them, and the emulated
// screen. Most of its time it waits for the next frame: the CPU's time tells.
func BenchmarkRefresh(b *testing.B) {
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	bytes := refreshes(b, b.N, thousand)
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(bytes)/float64(b.N), "B/refresh")
	b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "cpu-ms/refresh")
}
