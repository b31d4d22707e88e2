// SPDX-License-Identifier: Apache-2.0

package watch

import "slices"

// Row is a connection, or one of its subflows below it.
type Row struct {
	*Connection
	Subflow  *Subflow // nil in the connection's own row
	Expanded bool     // its subflows follow
}

// list is the rows that can be looked at, the window that is, and the row that the user is at.
type list struct {
	rows        []Row
	expandAll   bool
	exceptions  map[key]bool // connections that are not as expandAll says
	cursor, top int
	chosen      *identity
}

// identity finds a row again after it has moved.
type identity struct {
	key
	subflow uint64 // 0 for the connection's own row
}

func (r Row) identity() identity {
	if r.Subflow == nil {
		return identity{r.key, 0}
	}
	return identity{r.key, r.Subflow.ID}
}

// fill lists these connections. The cursor stays with the row that was chosen, or where it was if that row is gone;
// before any was chosen, it stays at the top.
func (l *list) fill(connections []*Connection) {
	l.rows = l.rows[:0]
	for _, c := range connections {
		expanded := l.expandAll != l.exceptions[c.key]
		l.rows = append(l.rows, Row{c, nil, expanded})
		if expanded {
			for _, f := range c.Subflows {
				l.rows = append(l.rows, Row{c, f, false})
			}
		}
	}
	if l.chosen == nil {
		return
	}
	found := slices.IndexFunc(l.rows, func(r Row) bool { return r.identity() == *l.chosen })
	if found >= 0 {
		l.cursor = found
		return
	}
	l.Move(0)
}

// Move moves the cursor so many rows down, and chooses the row.
func (l *list) Move(rows int) {
	l.cursor = max(0, min(l.cursor+rows, len(l.rows)-1))
	if len(l.rows) > 0 {
		l.chosen = new(l.rows[l.cursor].identity())
	}
}

// Top moves the cursor to the top, whatever is there.
func (l *list) Top() { l.cursor, l.chosen = 0, nil }

// Bottom moves the cursor to the last row.
func (l *list) Bottom() { l.Move(len(l.rows)) }

// Toggle expands the connection at the cursor, or hides its subflows again.
func (w *Watch) Toggle() {
	if len(w.rows) == 0 {
		return
	}
	k := w.rows[w.cursor].key
	if w.exceptions == nil {
		w.exceptions = map[key]bool{}
	}
	if w.exceptions[k] {
		delete(w.exceptions, k)
	} else {
		w.exceptions[k] = true
	}
	w.chosen = &identity{key: k}
	w.fill(w.connections)
}

// ToggleAll expands all connections, those to come too, or hides their subflows again.
func (w *Watch) ToggleAll() {
	w.expandAll, w.exceptions = !w.expandAll, nil
	if w.chosen != nil {
		w.chosen.subflow = 0
	}
	w.fill(w.connections)
}

// Window returns the rows that a window of so many shows, and which of them the cursor is at.
func (l *list) Window(height int) (rows []Row, cursor int) {
	l.top = max(0, min(l.top, l.cursor, len(l.rows)-height))
	l.top = max(l.top, l.cursor-height+1)
	return l.rows[l.top:min(l.top+height, len(l.rows))], l.cursor - l.top
}
