// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/watch"
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

// written counts what a program writes.
type written struct{ bytes, writes atomic.Int64 }

func (w *written) Write(b []byte) (int, error) {
	w.bytes.Add(int64(len(b)))
	w.writes.Add(1)
	return len(b), nil
}

// refreshes shows so many readings, one after the other has been drawn, on a screen of 80x24, and returns what was
// written for them.
func refreshes(t testing.TB, n int, at func(i int) watch.Reading) (bytes, writes int64) {
	t.Helper()
	var out written
	m := newModel(t, "three")
	p := tea.NewProgram(m, tea.WithContext(t.Context()), tea.WithOutput(&out), tea.WithInput(nil),
		tea.WithWindowSize(80, 24), tea.WithEnvironment([]string{"TERM=xterm-256color"}), tea.WithFPS(120))
	ended := make(chan error)
	go func() {
		_, err := p.Run()
		ended <- err
	}()
	show := func(i int) {
		before := out.writes.Load()
		p.Send(read{Reading: at(i)})
		for end := time.Now().Add(2 * time.Minute); out.writes.Load() == before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nothing is written")
			}
		}
	}
	const full = 10 // from then on, the sparklines are full
	for i := range full {
		show(i)
	}
	bytes, writes = out.bytes.Load(), out.writes.Load()
	for i := range n {
		show(full + i)
	}
	bytes, writes = out.bytes.Load()-bytes, out.writes.Load()-writes
	p.Quit()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return bytes, writes
}

// thousand subflows, of which nearly all figures change.
func thousand(i int) watch.Reading { return many(500, i) }

// Each refresh is one write, and of little more than what has changed: a whole screen is more than 2,000 bytes.
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
		bytes, writes := refreshes(t, n, c.at)
		if writes != n {
			t.Errorf("%s: %d writes for %d refreshes", c.name, writes, n)
		}
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

// BenchmarkRefresh does so with the differences to the screen before, and what is written for them. Most of its time
// it waits for the next frame: the CPU's time tells.
func BenchmarkRefresh(b *testing.B) {
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	bytes, _ := refreshes(b, b.N, thousand)
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(bytes)/float64(b.N), "B/refresh")
	b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "cpu-ms/refresh")
}
