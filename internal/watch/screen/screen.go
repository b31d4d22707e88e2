// SPDX-License-Identifier: Apache-2.0

// Package screen is mpcc watch on a terminal.
package screen

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/mpcc/mpcc/internal/watch"
)

// framesPerSecond is how often the terminal is written to at most, however fast keys are pressed.
const framesPerSecond = 20

// Run shows what the source has, until the user ends it or ctx ends. It is an error if the first reading is one;
// those of later readings are shown, and it goes on.
func Run(ctx context.Context, w *watch.Watch, source watch.Source, interval time.Duration) error {
	first, err := source(ctx)
	if err != nil {
		return err
	}
	w.Refresh(first)
	m := &model{Watch: w, ctx: ctx, source: source, interval: interval, filter: newFilter()}
	p := tea.NewProgram(m, tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond))
	// Not WithContext: it ends the program without waiting for the goroutine that reads keys.
	stop := context.AfterFunc(ctx, p.Quit)
	defer stop()
	_, err = p.Run()
	return err
}

type model struct {
	*watch.Watch
	ctx      context.Context
	source   watch.Source
	interval time.Duration
	round    int // of reading and waiting: a pause ends it

	width, height int
	filter        textinput.Model
	paused, help  bool
	err           error // of the last reading
}

// due and read end the two halves of a round; panicked is a fault of mpcc in the second one.
type (
	due      struct{ round int }
	panicked struct{ text string }
	read     struct {
		round int
		watch.Reading
		err error
	}
)

func newFilter() textinput.Model {
	filter := textinput.New()
	filter.Prompt = "/"
	filter.KeyMap.Paste.SetEnabled(false) // it would run a program for the clipboard; the terminal pastes
	styles := filter.Styles()
	styles.Cursor.Blink = false
	filter.SetStyles(styles)
	return filter
}

func (m *model) Init() tea.Cmd { return m.wait() }

func (m *model) wait() tea.Cmd {
	round := m.round
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return due{round} })
}

func (m *model) read() tea.Cmd {
	round := m.round
	return func() (msg tea.Msg) {
		// Bubble Tea ends the program beside a goroutine that still prints its panic; it waits for that of Update.
		defer func() {
			if fault := recover(); fault != nil {
				msg = panicked{fmt.Sprintf("%v\n%s", fault, debug.Stack())}
			}
		}()
		r, err := m.source(m.ctx)
		return read{round, r, err}
	}
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.filter.SetWidth(max(1, msg.Width-2)) // beside the prompt and the cursor
	case due:
		if msg.round == m.round {
			return m, m.read()
		}
	case read:
		if msg.round != m.round {
			break
		}
		if m.err = msg.err; m.err == nil {
			m.Refresh(msg.Reading)
		}
		return m, m.wait()
	case panicked:
		panic(msg.text)
	case tea.KeyPressMsg:
		return m, m.press(msg)
	case tea.PasteMsg:
		return m, m.edit(msg)
	}
	return m, nil
}

func (m *model) press(k tea.KeyPressMsg) tea.Cmd {
	switch {
	case key.Matches(k, keys.interrupt):
		return tea.Quit
	case m.filter.Focused():
		return m.edit(k)
	case m.help:
		m.help = false
	case key.Matches(k, keys.quit):
		return tea.Quit
	case key.Matches(k, keys.suspend):
		return tea.Suspend
	case key.Matches(k, keys.up):
		m.Move(-1)
	case key.Matches(k, keys.down):
		m.Move(1)
	case key.Matches(k, keys.pageUp):
		m.Move(-m.tableHeight())
	case key.Matches(k, keys.pageDown):
		m.Move(m.tableHeight())
	case key.Matches(k, keys.top):
		m.Top()
	case key.Matches(k, keys.bottom):
		m.Bottom()
	case key.Matches(k, keys.expand):
		m.Toggle()
	case key.Matches(k, keys.expandAll):
		m.ToggleAll()
	case key.Matches(k, keys.sort):
		m.NextOrder()
	case key.Matches(k, keys.reverse):
		m.Reverse()
	case key.Matches(k, keys.filter):
		return m.filter.Focus()
	case key.Matches(k, keys.clear):
		m.filter.SetValue("")
		m.Filter(nil)
	case key.Matches(k, keys.help):
		m.help = true
	case key.Matches(k, keys.pause):
		m.paused = !m.paused
		m.round++
		if !m.paused {
			return m.read()
		}
	}
	return nil
}

// edit changes the filter, which shows at once.
func (m *model) edit(msg tea.Msg) tea.Cmd {
	if !m.filter.Focused() {
		return nil
	}
	if k, ok := msg.(tea.KeyPressMsg); ok {
		switch {
		case key.Matches(k, keys.clear):
			m.filter.SetValue("")
			m.filter.Blur()
		case key.Matches(k, keys.accept):
			m.filter.Blur()
		}
	}
	var cmd tea.Cmd
	m.filter, cmd = m.filter.Update(msg)
	m.Filter(strings.Fields(strings.ToLower(m.filter.Value())))
	return cmd
}
