// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"

	"charm.land/bubbles/v2/help"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/mpcc/mpcc/internal/watch"
)

// around is how many lines are not the table's rows: the summary, the titles and the keys.
const around = 3

var (
	titleStyle  = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Cyan)
	pausedStyle = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Yellow)
	errorStyle  = lipgloss.NewStyle().Foreground(lipgloss.Red)
	cursorStyle = lipgloss.NewStyle().Reverse(true)
)

func (m *model) tableHeight() int { return max(1, m.height-around) }

// View renders what is on the screen, and no other row.
func (m *model) View() tea.View {
	lines := []string{m.head()}
	if m.help {
		lines = append(lines, helpText...)
	} else {
		lines = append(lines, m.table()...)
	}
	lines = append(lines, make([]string, max(0, m.height-1-len(lines)))...)
	lines = append(lines[:max(0, m.height-1)], m.foot())
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}

func (m *model) head() string {
	if m.err != nil {
		return errorStyle.Render("mpcc watch: " + m.err.Error())
	}
	state := ""
	if m.paused {
		state = pausedStyle.Render("PAUSED") + "  "
	}
	return fmt.Sprintf("%s%s  by %s", state, m.Summary(), m.Order())
}

func (m *model) table() []string {
	if note := m.Note(); note != "" {
		return []string{note}
	}
	columns := watch.Columns(m.width)
	titles := line(columns, func(c *watch.Column) string { return c.Title })
	lines := []string{titleStyle.Render(titles)}
	rows, cursor := m.Window(m.tableHeight())
	for i, r := range rows {
		text := line(columns, func(c *watch.Column) string { return c.Cell(r) })
		if i == cursor {
			text = cursorStyle.Render(text)
		}
		lines = append(lines, text)
	}
	return lines
}

func line(columns []watch.Column, cell func(*watch.Column) string) string {
	var cells []string
	for i := range columns {
		c := &columns[i]
		text := ansi.Truncate(cell(c), c.Width, "…")
		gap := strings.Repeat(" ", c.Width-ansi.StringWidth(text))
		if c.Left {
			text += gap
		} else {
			text = gap + text
		}
		cells = append(cells, text)
	}
	return strings.Join(cells, " ")
}

// foot is the filter while it is written, and else the keys.
func (m *model) foot() string {
	if m.filter.Focused() {
		return m.filter.View()
	}
	h := help.New()
	h.Styles = help.Styles{}
	h.ShortSeparator = "  "
	h.SetWidth(m.width)
	text := h.ShortHelpView(hints)
	if words := m.filter.Value(); words != "" {
		text = "filter " + words + " (esc: none)  " + text
	}
	return text
}
