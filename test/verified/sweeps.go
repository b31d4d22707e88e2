// SPDX-License-Identifier: Apache-2.0

package verified

import (
	"fmt"
	"hash"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/result"
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
	// Of congestion controls: a packet scheduler under which all but tcp run too, beside the kernel's.
	Scheduler string
	// The mean of so many runs in the simulator is a record; 0: one run in a VM.
	Simulated int
}

// OtherControls are congestion controls under which packet schedulers are measured, beside the kernel's cubic.
var OtherControls = []string{"bbr", "lia", "dwc"}

// Sweeps are by the name of their part.
var Sweeps = map[string]Sweep{
	Households: {
		File: "internal/experiment/own/households.yaml", Rows: "home", Kind: catalog.CC,
		Apart: "cubic", Shared: "tcp",
	},
	Schedulers: {
		File: "internal/experiment/own/households.yaml", Rows: "home", Kind: catalog.Sched,
		Apart: "default", Shared: "default", Others: []string{"fibre-lte-wifi"},
	},
	SlowPath: {
		File: "internal/experiment/own/slow-path.yaml", Rows: "kind", Kind: catalog.Sched,
		Apart: "default", Shared: "default", Others: []string{"slows-down", "satellite"},
	},
	Shares: {
		File: "internal/experiment/own/shares.yaml", Rows: "line", Kind: catalog.CC,
		Shared: "tcp", Scheduler: "earliest", Simulated: 10,
	},
	Drawn: {
		File: "internal/experiment/own/drawn.yaml", Rows: "home", Kind: catalog.CC,
		Apart: "cubic", Scheduler: "earliest", Simulated: 10,
	},
}

// The figures of a record of a sweep, in Mbit/s: what the user has, and what each of the others on the user's line has.
const (
	GoodputOwn    = "own"
	GoodputOthers = "others"
)

// Columns are what the sweep compares. Of congestion controls: tcp, a single TCP connection under the kernel's CUBIC, by the
// user's first way; the kernel's own on each subflow, of which the simulator has no bbr; and mpcc's. Of packet
// schedulers: the kernel's, and mpcc's.
func (s Sweep) Columns() []string {
	names := map[catalog.Kind][]string{
		catalog.CC:    {"tcp", "cubic", "reno", "bbr"},
		catalog.Sched: {"default"},
	}[s.Kind]
	if s.Simulated > 0 {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "bbr" })
	}
	for _, e := range catalog.Entries {
		if e.Kind == s.Kind {
			names = append(names, e.Name)
		}
	}
	if s.Scheduler != "" {
		for _, name := range names[1:] {
			names = append(names, Under(name, s.Scheduler))
		}
	}
	return names
}

// Chosen tells which congestion control and packet scheduler run in a column, in a row in which packet schedulers run
// under cc. scheduler is empty for the kernel's.
func (s Sweep) Chosen(column, cc string) (control, scheduler string) {
	if s.Kind == catalog.Sched {
		return cc, column
	}
	control, scheduler, _ = strings.Cut(column, under)
	return control, scheduler
}

// networks are the scenario's.
func (s Sweep) networks(file *scenario.File) ([]string, error) {
	for _, axis := range file.Axes(false) {
		if axis.Name == s.Rows {
			return axis.Values, nil
		}
	}
	return nil, fmt.Errorf("%s sweeps over no %s", s.File, s.Rows)
}

// runs are those of which networks have digests. What differs between the columns is only whether the user's connection is
// a single TCP connection.
func (s Sweep) runs(file *scenario.File) ([]scenario.Run, error) {
	controls := []string{"cubic"}
	if s.Kind == catalog.CC {
		controls = append(controls, "tcp")
	}
	file, err := file.Set("cc", controls...)
	if err != nil {
		return nil, err
	}
	return file.Runs(false), nil
}

// network returns a digest of a network of the scenario, and of what the scenario's runs do there.
func (s Sweep) network(runs []scenario.Run, name string) (string, error) {
	return sum(func(h hash.Hash) error {
		for _, run := range runs {
			if run.Repeat > 0 || run.Point[s.Rows] != name {
				continue
			}
			text, err := yaml.Marshal(whatRuns(*run.Scenario))
			if err != nil {
				return err
			}
			h.Write(text)
		}
		return nil
	})
}

// whatRuns leaves of a scenario what its figures come from.
func whatRuns(s scenario.Scenario) scenario.Scenario {
	s.Title, s.Source, s.Notes, s.Setup = "", "", nil, result.Setup{}
	s.Sweep, s.Repeats, s.Quick = nil, 0, scenario.Quick{}
	s.Expect = result.Expect{}
	return s
}

// under stands between a network and a congestion control in the name of a row, and between a congestion control and a
// packet scheduler in the name of a column.
const under = "+"

// Under names the row of a network under a congestion control, or the column of a congestion control under a packet
// scheduler.
func Under(name, chosen string) string { return name + under + chosen }

// Setup tells what a row's name says: the network, and under which congestion control packet schedulers run there.
func Setup(row string) (network, cc string) {
	network, cc, found := strings.Cut(row, under)
	if !found {
		cc = "cubic"
	}
	return network, cc
}

func (s Sweep) cells(root string) (cells []Cell, err error) {
	file, err := scenario.Load(filepath.Join(root, s.File))
	if err != nil {
		return nil, err
	}
	networks, err := s.networks(file)
	if err != nil {
		return nil, err
	}
	simulator := ""
	if s.Simulated > 0 {
		if simulator, err = Files(root, "internal/experiment/sim/*.go"); err != nil {
			return nil, err
		}
	}
	objects := map[string]string{} // digests
	for _, e := range catalog.Entries {
		if objects[e.ID()], err = objectDigest(e.ID()); err != nil {
			return nil, err
		}
	}
	runs, err := s.runs(file)
	if err != nil {
		return nil, err
	}
	for _, network := range networks {
		place, err := s.network(runs, network)
		if err != nil {
			return nil, err
		}
		rows := []string{network}
		if slices.Contains(s.Others, network) {
			for _, cc := range OtherControls {
				rows = append(rows, Under(network, cc))
			}
		}
		for _, row := range rows {
			_, cc := Setup(row)
			for _, name := range s.Columns() {
				control, scheduler := s.Chosen(name, cc)
				digest := simulator + place + objects[string(catalog.CC)+"/"+control] + objects[string(catalog.Sched)+"/"+scheduler]
				cells = append(cells, Cell{Row: row, Column: name, Digest: digest})
			}
		}
	}
	return cells, nil
}
