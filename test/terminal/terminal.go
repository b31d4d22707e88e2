// SPDX-License-Identifier: Apache-2.0

// Package terminal runs a program on a terminal of its own, presses keys and sees what is on the screen.
package terminal

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"
)

// Terminal is a terminal with a program that runs in it.
type Terminal struct {
	t             *testing.T
	command       *exec.Cmd
	ours, theirs  *os.File
	columns, rows int
	before        unix.Termios
	screen        vt10x.Terminal
	drawn         chan struct{} // closed when all that was written is on the screen

	mu      sync.Mutex
	written bytes.Buffer
}

// Start runs the command on a terminal of this size, until the test ends.
func Start(t *testing.T, command *exec.Cmd, columns, rows int) *Terminal {
	t.Helper()
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &Terminal{
		t: t, command: command, ours: ours, theirs: theirs,
		screen: vt10x.New(), drawn: make(chan struct{}),
	}
	s.Resize(columns, rows)
	s.before = s.settings()
	command.Stdin, command.Stdout, command.Stderr = theirs, theirs, theirs
	command.Env = append(command.Environ(), "TERM=xterm-256color")
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go s.draw()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // an error unless it has been waited for
		theirs.Close()
		<-s.drawn
		ours.Close()
	})
	return s
}

// draw puts on the screen what the program writes.
func (s *Terminal) draw() {
	defer close(s.drawn)
	in := bufio.NewReader(io.TeeReader(s.ours, writer(func(b []byte) (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.written.Write(b)
	})))
	for s.screen.Parse(in) == nil {
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// Written returns all that the program has written so far.
func (s *Terminal) Written() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

// Press types these keys.
func (s *Terminal) Press(keys string) {
	s.t.Helper()
	if _, err := s.ours.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// Resize makes the terminal so large.
func (s *Terminal) Resize(columns, rows int) {
	s.t.Helper()
	s.columns, s.rows = columns, rows
	s.screen.Resize(columns, rows)
	if err := pty.Setsize(s.ours, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		s.t.Fatal(err)
	}
}

// Lines returns what is on the screen, without blanks at the ends of lines.
func (s *Terminal) Lines() []string { return Lines(s.screen) }

// Lines returns what is on a screen, without blanks at the ends of lines.
func Lines(screen vt10x.Terminal) []string {
	screen.Lock()
	defer screen.Unlock()
	columns, rows := screen.Size()
	lines := make([]string, rows)
	for y := range lines {
		var line strings.Builder
		for x := range columns {
			line.WriteRune(max(' ', screen.Cell(x, y).Char)) // a cell that was never written to has 0
		}
		lines[y] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// Coloured reports whether anything on the screen has a colour of its own.
func (s *Terminal) Coloured() bool {
	s.screen.Lock()
	defer s.screen.Unlock()
	for y := range s.rows {
		for x := range s.columns {
			cell := s.screen.Cell(x, y)
			reversed := cell.FG == vt10x.DefaultBG && cell.BG == vt10x.DefaultFG
			if !reversed && (cell.FG != vt10x.DefaultFG || cell.BG != vt10x.DefaultBG) {
				return true
			}
		}
	}
	return false
}

// Until waits until what is on the screen is as wanted, and returns it.
func (s *Terminal) Until(what string, wanted func(lines []string) bool) []string {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		lines := s.Lines()
		if wanted(lines) {
			return lines
		}
		if time.Now().After(end) {
			s.t.Fatalf("the screen does not show %s:\n%s", what, strings.Join(lines, "\n"))
		}
	}
}

// Shows waits until the text is in a line of the screen, and returns the screen.
func (s *Terminal) Shows(text string) []string {
	s.t.Helper()
	return s.Until(text, func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), text) })
}

// Signal sends a signal to the program.
func (s *Terminal) Signal(signal unix.Signal) {
	s.t.Helper()
	if err := s.command.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// Exit waits for the end of the program, which must leave the terminal as it found it, and returns its exit code.
func (s *Terminal) Exit() int {
	s.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.command.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		s.t.Fatalf("the program does not end:\n%s", strings.Join(s.Lines(), "\n"))
	}
	after := s.settings()
	s.theirs.Close()
	<-s.drawn
	if s.screen.Mode()&vt10x.ModeAltScreen != 0 || !s.screen.CursorVisible() {
		s.t.Error("the program leaves its own screen behind, or no cursor")
	}
	if after != s.before {
		s.t.Errorf("the program leaves the terminal's settings changed: %+v, were %+v", after, s.before)
	}
	return s.command.ProcessState.ExitCode()
}

// Raw reports whether the program gets each key as it is pressed.
func (s *Terminal) Raw() bool { return s.settings().Lflag&unix.ICANON == 0 }

func (s *Terminal) settings() unix.Termios {
	s.t.Helper()
	settings, err := unix.IoctlGetTermios(int(s.theirs.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *settings
}
