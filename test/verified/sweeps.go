// SPDX-License-Identifier: Apache-2.0

package verified

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

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
	// Of packet schedulers, which run under the kernel's cubic: networks in which they run under OtherControls too.
	Others []string
}

// OtherControls are congestion controls under which packet schedulers are measured, beside the kernel's cubic.
var OtherControls = []string{"bbr", "lia", "dwc"}

// Sweeps are by the name of their part.
var Sweeps = map[string]Sweep{
	Households: {"internal/experiment/own/households.yaml", "home", catalog.CC, "cubic", "tcp", nil},
	Schedulers: {"internal/experiment/own/households.yaml", "home", catalog.Sched, "default", "default", []string{"fibre-lte-wifi"}},
	SlowPath:   {"internal/experiment/own/slow-path.yaml", "kind", catalog.Sched, "default", "default", []string{"slows-down", "satellite"}},
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

// networks are the scenario's.
func (s Sweep) networks(root string) ([]string, error) {
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

const under = "+" // between a network and a congestion control in the name of a row

// Setup tells what a row's name says: the network, and under which congestion control packet schedulers run there.
func Setup(row string) (network, cc string) {
	network, cc, found := strings.Cut(row, under)
	if !found {
		cc = "cubic"
	}
	return network, cc
}

func (s Sweep) cells(root string) (cells []Cell, err error) {
	networks, err := s.networks(root)
	if err != nil {
		return nil, err
	}
	file, err := Files(root, s.File)
	if err != nil {
		return nil, err
	}
	for _, network := range networks {
		rows := []string{network}
		if slices.Contains(s.Others, network) {
			for _, cc := range OtherControls {
				rows = append(rows, network+under+cc)
			}
		}
		for _, row := range rows {
			_, cc := Setup(row)
			for _, name := range s.Columns() {
				digest := file
				for _, id := range []string{string(catalog.CC) + "/" + cc, string(s.Kind) + "/" + name} {
					if _, err := catalog.Find(id); err != nil {
						continue // the kernel's
					}
					object, err := objectDigest(id)
					if err != nil {
						return nil, err
					}
					digest += object
				}
				cells = append(cells, Cell{Row: row, Column: name, Digest: digest})
			}
		}
	}
	return cells, nil
}
