// SPDX-License-Identifier: Apache-2.0

package verified

import (
	"fmt"
	"path/filepath"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// Sweep is a part whose records are goodputs: in each row a network of a scenario, in each column what runs there.
type Sweep struct {
	File string       // the scenario, in a clone
	Rows string       // the variable of the scenario whose values are the rows
	Kind catalog.Kind // of what the columns are
	// The columns that all others are compared with: in networks whose paths share nothing, and where others use a line too.
	Apart, Shared string
}

// Sweeps are by the name of their part.
var Sweeps = map[string]Sweep{
	Households: {"internal/experiment/own/households.yaml", "home", catalog.CC, "cubic", "tcp"},
	Schedulers: {"internal/experiment/own/households.yaml", "home", catalog.Sched, "default", "default"},
	SlowPath:   {"internal/experiment/own/slow-path.yaml", "kind", catalog.Sched, "default", "default"},
}

// The figures of a record of a sweep, in Mbit/s: what the user has, and what each of the others on the user's line has.
const (
	GoodputOwn    = "own"
	GoodputOthers = "others"
)

// Columns are what the sweep compares. Of congestion controls: tcp, a single TCP connection under the kernel's CUBIC, by the
// user's first way; the kernel's own on each subflow; and mpcc's. Of packet schedulers: the kernel's, and mpcc's.
func (s Sweep) Columns() []string {
	names := map[catalog.Kind][]string{
		catalog.CC:    {"tcp", "cubic", "reno", "bbr"},
		catalog.Sched: {"default"},
	}[s.Kind]
	for _, e := range catalog.Entries {
		if e.Kind == s.Kind {
			names = append(names, e.Name)
		}
	}
	return names
}

// rows are the networks.
func (s Sweep) rows(root string) ([]string, error) {
	file, err := scenario.Load(filepath.Join(root, s.File))
	if err != nil {
		return nil, err
	}
	for _, axis := range file.Axes(false) {
		if axis.Name == s.Rows {
			return axis.Values, nil
		}
	}
	return nil, fmt.Errorf("%s sweeps over no %s", s.File, s.Rows)
}

func (s Sweep) cells(root string) (cells []Cell, err error) {
	rows, err := s.rows(root)
	if err != nil {
		return nil, err
	}
	file, err := Files(root, s.File)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		for _, name := range s.Columns() {
			digest, id := file, string(s.Kind)+"/"+name
			if _, err := catalog.Find(id); err == nil {
				object, err := objectDigest(id)
				if err != nil {
					return nil, err
				}
				digest += object
			}
			cells = append(cells, Cell{Row: row, Column: name, Digest: digest})
		}
	}
	return cells, nil
}
