// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/mpcc/mpcc/test/verified"
)

// runOwn runs a test of test/e2e with the machine's own kernel, whose records are all of a part.
func runOwn(ctx context.Context, b *bench, part, test string, cells []verified.Cell) error {
	var names []string
	for _, c := range cells {
		names = append(names, c.Row)
	}
	// A test that fails has left its records all the same.
	found, failed := b.guestTest(ctx, verified.OwnKernel, false, []string{
		"-test.v", "-test.run=^" + test + "$", "-test.timeout=2h", "-verify-objects=" + strings.Join(names, ","),
	})
	for _, c := range cells {
		r, ok := found.Find(verified.Cell{Row: c.Row})
		if !ok {
			if failed == nil {
				failed = fmt.Errorf("it found nothing about %s", c.Row)
			}
			return failed
		}
		if err := b.keep(part, c, r); err != nil {
			return err
		}
	}
	return nil
}

// What go test -v prints of the end of a test on the machine itself, of a VM of TestE2E, and of a test in there.
var (
	nativeTest = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (Test\w+) `)
	e2eVM      = regexp.MustCompile(`(?m)^ {4}--- (PASS|FAIL|SKIP): TestE2E/([^/ ]+) `)
	e2eTest    = regexp.MustCompile(`(?m)^ {8}--- (PASS|FAIL|SKIP): TestE2E/[^/]+/(Test\w+) `)
)

// outcome makes a record of the output of go test -v and of the error of that command. Lines that match test are the tests
// counted. Output without a line that matches must, such as the line of the VM that was asked for, is recorded as a failure.
func outcome(printed string, must, test *regexp.Regexp, err error) verified.Record {
	if err == nil && !must.MatchString(printed) {
		err = errors.New("it ran no test")
	}
	r := verified.Record{State: verified.Passed, Figures: map[string]float64{}}
	var failed []string
	for _, m := range test.FindAllStringSubmatch(printed, -1) {
		r.Figures["tests"]++
		if m[1] == "PASS" {
			r.Figures["passed"]++
		} else {
			failed = append(failed, m[2])
		}
	}
	if err != nil {
		r.State, r.Said = verified.Failed, cmp.Or(strings.Join(failed, ", "), err.Error())
	}
	return r
}

// runNative runs the tests whose outcome hangs on this machine's speed.
func runNative(ctx context.Context, b *bench, cells []verified.Cell) error {
	for _, c := range cells {
		printed, err := b.makes(ctx, "native")
		if ctx.Err() != nil {
			return err
		}
		r := outcome(printed, nativeTest, nativeTest, err)
		r.Kernel = ownRelease()
		if err := b.keep(verified.Native, c, r); err != nil {
			return err
		}
	}
	return nil
}

// runEndToEnd runs all tests of test/e2e in VMs: with each kernel, two of them in their own time, and what is installed.
func runEndToEnd(ctx context.Context, b *bench, cells []verified.Cell) error {
	for _, c := range cells {
		printed, err := b.makes(ctx, "e2e", "VM="+c.Row)
		if ctx.Err() != nil {
			return err
		}
		r := outcome(printed, e2eVM, e2eTest, err)
		if m := vmKernel.FindStringSubmatch(printed); m != nil {
			r.Kernel = m[1]
		}
		if err := b.keep(verified.EndToEnd, c, r); err != nil {
			return err
		}
	}
	return nil
}

var vmKernel = regexp.MustCompile(`Linux (\S+) under `)

// makes runs make, shows what make prints, and returns that text. When ctx ends, make and all processes that make has
// started get SIGTERM.
func (b *bench) makes(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, args...)...)
	cmd.Dir = b.root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return terminate(cmd.Process.Pid) }
	var printed bytes.Buffer
	both := io.MultiWriter(os.Stderr, &printed)
	cmd.Stdout, cmd.Stderr = both, both
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx) // which says nothing of what was run
	}
	return printed.String(), err
}

// terminate sends SIGTERM to each process of a group, and waits until none is left. A signal to the whole group misses
// the child of a process that blocks signals while it forks, as a shell does. A list of the processes misses that child too,
// if the parent ends while the list is made. So the group has ended when two lists in a row name none of its processes.
func terminate(group int) error {
	asked := map[int]bool{}
	for without := 0; without < 2; time.Sleep(10 * time.Millisecond) {
		all, err := procfs.AllProcs()
		if err != nil {
			return err
		}
		without++
		for _, p := range all {
			s, err := p.Stat()
			if err != nil || s.PGRP != group || s.State == "Z" {
				continue
			}
			without = 0
			if asked[p.PID] {
				continue
			}
			asked[p.PID] = true
			if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// runSelftests runs the kernel's own selftests with congestion controls as the default, in VMs in their own time.
func runSelftests(ctx context.Context, b *bench, cells []verified.Cell) error {
	return each(ctx, cells, func(ctx context.Context, c verified.Cell) error {
		printed, err := b.makes(ctx, "selftests", "CONTROLS="+c.Row)
		if ctx.Err() != nil {
			return err
		}
		r := verified.Record{State: verified.Passed}
		head, row, results := selftestRow(printed, c.Row)
		if !results {
			return fmt.Errorf("%s: it printed no results: %v", c.Row, err)
		}
		r.Said, r.Kernel = row, head
		if err != nil {
			r.State = verified.Failed
		}
		return b.keep(verified.Selftests, c, r)
	})
}

var selftestKernel = regexp.MustCompile(`kernel (\S+);`)

// selftestRow finds what the command says of a control: passed/all of each script, and the kernel.
func selftestRow(printed, control string) (kernel, row string, found bool) {
	if m := selftestKernel.FindStringSubmatch(printed); m != nil {
		kernel = m[1]
	}
	for line := range strings.Lines(printed) {
		words := strings.Fields(line)
		if len(words) > 5 && words[0] == control && strings.Contains(words[1], "/") {
			return kernel, strings.Join(words[1:5], " "), true
		}
	}
	return kernel, "", false
}

// soakRounds is how often each test runs: two hours and more on two cores without KVM.
const soakRounds = 3

// runSoak runs what happens in the kernel again and again, on kernels that watch themselves.
func runSoak(ctx context.Context, b *bench, cells []verified.Cell) error {
	for _, c := range cells {
		printed, err := b.makes(ctx, "soak", "SOAK_KERNELS="+c.Row, "ROUNDS="+strconv.Itoa(soakRounds))
		if ctx.Err() != nil {
			return err
		}
		r := verified.Record{State: verified.Passed, Figures: map[string]float64{
			"rounds": soakRounds, "tests": float64(strings.Count("\n"+printed, "\n--- PASS: ")),
		}}
		if m := vmKernel.FindStringSubmatch(printed); m != nil {
			r.Kernel = m[1]
		}
		if err != nil || r.Figures["tests"] == 0 {
			r.State, r.Said = verified.Failed, fmt.Sprint(err)
		}
		if err := b.keep(verified.Soak, c, r); err != nil {
			return err
		}
	}
	return nil
}

// fuzzTime is for each target: forty times what make test takes, and all of them in half an hour.
const fuzzTime = "1m"

// fuzzed finds how many inputs a target was run with.
var fuzzed = regexp.MustCompile(`: (?:Done |execs: )(\d+)`)

func runFuzz(ctx context.Context, b *bench, cells []verified.Cell) error {
	return each(ctx, cells, func(ctx context.Context, c verified.Cell) error {
		printed, err := b.makes(ctx, "fuzz/"+c.Row, "FUZZTIME="+fuzzTime)
		if ctx.Err() != nil {
			return err
		}
		r := verified.Record{State: verified.Passed, Kernel: ownRelease()}
		if runs := fuzzed.FindStringSubmatch(printed); err != nil || runs == nil {
			r.State, r.Said = verified.Failed, fmt.Sprint(err)
		} else {
			n, _ := strconv.ParseFloat(runs[1], 64) // digits
			r.Figures = map[string]float64{"inputs": n}
		}
		return b.keep(verified.Fuzz, c, r)
	})
}
