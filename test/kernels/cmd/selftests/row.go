// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scriptNames are the runs in a VM, as guest.sh names their files.
var scriptNames = []string{"mptcp_connect", "simult_flows-1", "simult_flows-2", "simult_flows-3"}

// kernelsScheduler is the name of the kernel's own.
const kernelsScheduler = "default"

// row is what came of one congestion control, under one packet scheduler.
type row struct {
	name          string
	cc, scheduler string
	mpcc          bool // the control is one of mpcc
	release       string
	scripts       []script
	took          time.Duration
	fault         error // of the VM; there are no scripts then
}

// script is one run of a script.
type script struct {
	name   string
	status int // 124 after its time limit, 4 if it could not run at all
	results
	fault error // the results cannot be believed
	counts
}

// counts are what was counted in the VM.
type counts struct {
	sockets uint64 // that got any congestion control
	counted uint64 // those of them that mpcc counted for the row's control; 0 for one of the kernel's own
	choices uint64 // of the kernel's own packet scheduler
}

// read reads what guest.sh left in a folder.
func (r *row) read(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "defaults"))
	if err != nil {
		return err
	}
	if got, want := strings.Fields(string(text)), []string{r.cc, r.scheduler}; !slices.Equal(got, want) {
		return fmt.Errorf("a new namespace had %s as its defaults", strings.Join(got, " and "))
	}
	before, err := r.readCounts(dir, "start")
	if err != nil {
		return err
	}
	for _, name := range scriptNames {
		s := script{name: name}
		log, err := os.ReadFile(filepath.Join(dir, name+".log"))
		if err != nil {
			return err
		}
		status, err := readNumber(filepath.Join(dir, name+".status"))
		if err != nil {
			return err
		}
		s.status = int(status)
		s.results, s.fault = readTAP(string(log))
		after, err := r.readCounts(dir, name)
		if err != nil {
			return err
		}
		s.counts = counts{after.sockets - before.sockets, after.counted - before.counted, after.choices - before.choices}
		before = after
		r.scripts = append(r.scripts, s)
	}
	return nil
}

// readCounts returns what was counted by the end of a script.
func (r *row) readCounts(dir, name string) (c counts, err error) {
	for ending, to := range map[string]*uint64{".sockets": &c.sockets, ".choices": &c.choices} {
		if *to, err = readNumber(filepath.Join(dir, name+ending)); err != nil {
			return c, err
		}
	}
	if !r.mpcc {
		return c, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return c, err
	}
	var status struct {
		Totals []struct {
			CC     string `json:"cc"`
			Opened uint64 `json:"subflows_opened"`
		} `json:"totals"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return c, fmt.Errorf("mpcc status --json: %w", err)
	}
	for _, t := range status.Totals {
		if t.CC == r.cc {
			c.counted += t.Opened
		}
	}
	return c, nil
}

func readNumber(file string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// cells returns what the table shows of each script.
func (r row) cells() []string {
	cells := make([]string, len(scriptNames))
	for i := range cells {
		cells[i] = "-"
		if i < len(r.scripts) {
			cells[i] = r.scripts[i].cell()
		}
	}
	return cells
}

func (s script) cell() string {
	text := fmt.Sprintf("%d/%d", s.passed, s.total())
	if n := len(s.skipped); n > 0 {
		text += fmt.Sprintf(", %d skipped", n)
	}
	if s.status == skippedStatus {
		text = "skipped"
	}
	return text
}

// skippedStatus is that of a script that did not run, as something was missing.
const skippedStatus = 4

// ranOn returns on how many of the scripts' sockets mpcc saw the control run. Of the kernel's own there is no count.
func (r row) ranOn() string {
	if !r.mpcc || len(r.scripts) == 0 {
		return "-"
	}
	var sockets, counted uint64
	for _, s := range r.scripts {
		sockets, counted = sockets+s.sockets, counted+s.counted
	}
	return fmt.Sprintf("%d of %d", counted, sockets)
}

// String returns the row as a line of progress.
func (r row) String() string {
	if r.fault != nil {
		return fmt.Sprintf("%s: %v", r.name, r.fault)
	}
	return fmt.Sprintf("%s: %s (%s)", r.name, strings.Join(r.cells(), ", "), r.took.Round(time.Second))
}

// faults returns what went wrong, a line or more each.
func (r row) faults() []string {
	if r.fault != nil {
		return []string{r.fault.Error()}
	}
	var faults []string
	for _, s := range r.scripts {
		for _, f := range r.faultsOf(s) {
			faults = append(faults, s.name+": "+f)
		}
	}
	return faults
}

func (r row) faultsOf(s script) []string {
	var faults []string
	for _, test := range s.failed {
		faults = append(faults, "failed: "+test)
	}
	for _, test := range s.skipped {
		faults = append(faults, "skipped: "+test)
	}
	if s.fault != nil {
		faults = append(faults, s.fault.Error())
	}
	if s.status != 0 {
		faults = append(faults, fmt.Sprintf("ended with status %d", s.status))
	}
	// All sockets of simult_flows are subflows of MPTCP; mptcp_connect also has plain TCP, which a control may leave
	// to the kernel.
	switch {
	case s.sockets == 0:
		faults = append(faults, "no socket was opened")
	case r.mpcc && s.counted == 0:
		faults = append(faults, "mpcc saw no subflow")
	case r.mpcc && s.counted != s.sockets && s.name != "mptcp_connect":
		faults = append(faults, fmt.Sprintf("the control ran on %d sockets of %d", s.counted, s.sockets))
	}
	if own := r.scheduler == kernelsScheduler; own != (s.choices > 0) {
		faults = append(faults, fmt.Sprintf("the kernel's own packet scheduler chose %d times", s.choices))
	}
	return faults
}
