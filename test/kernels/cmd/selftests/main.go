// SPDX-License-Identifier: Apache-2.0

// Command selftests runs the kernel's own MPTCP selftests in VMs, with congestion controls as the default of every
// namespace. ../../README.md says how.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/vm"
	"github.com/mpcc/mpcc/test/kernels"
)

const usage = `usage: selftests [-kernel LABEL] [CONTROL[+SCHEDULER]…]

Runs the kernel's mptcp_connect.sh once and simult_flows.sh three times with each congestion control: one of mpcc, or
one of the kernel's own. Without a name: cubic, and all of mpcc. SCHEDULER is a packet scheduler of mpcc.
`

// yardstick is the kernel's own control, whose failures are not mpcc's.
const yardstick = "cubic"

// ccName matches what the kernel takes as the name of a congestion control, below 16 characters. It also becomes that
// of a folder.
var ccName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,14}$`)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		say(err.Error())
	}
	os.Exit(status)
}

func run(args []string) (int, error) {
	flags := flag.NewFlagSet("selftests", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	label := flags.String("kernel", vm.Labels()[0], "label of the kernel: "+strings.Join(vm.Labels(), ", "))
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return 2, nil // Parse has said why
	}
	kernel, err := vm.Find(*label)
	if err != nil {
		return 2, err
	}
	names := flags.Args()
	if len(names) == 0 {
		names = append([]string{yardstick}, slices.Sorted(maps.Keys(ours()))...)
	}
	var chosen []row
	for _, name := range names {
		r, err := rowOf(name)
		if err != nil {
			return 2, err
		}
		chosen = append(chosen, r)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bench, remove, err := prepare(ctx, kernel)
	defer remove()
	if err != nil {
		return 1, err
	}
	var rows []row
	for _, row := range chosen {
		bench.run(ctx, &row)
		if ctx.Err() != nil {
			return 1, context.Cause(ctx)
		}
		say(row.String())
		rows = append(rows, row)
	}
	if err := bench.print(os.Stdout, rows); err != nil {
		return 1, err
	}
	if slices.ContainsFunc(rows, func(r row) bool { return len(r.faults()) > 0 }) {
		return 1, nil
	}
	return 0, nil
}

// rowOf returns the row of CONTROL or CONTROL+SCHEDULER.
func rowOf(name string) (row, error) {
	cc, scheduler, with := strings.Cut(name, "+")
	if !ccName.MatchString(cc) {
		return row{}, fmt.Errorf("%q is no name of a congestion control: want one such as %s or lia", cc, yardstick)
	}
	if !with {
		scheduler = kernelsScheduler
	} else if _, err := catalog.Find(string(catalog.Sched) + "/" + scheduler); err != nil {
		return row{}, fmt.Errorf("%q: %w", name, err)
	}
	return row{name: name, cc: cc, scheduler: scheduler, mpcc: ours()[cc] != ""}, nil
}

// ours returns mpcc's congestion controls by their names in the kernel, with those by which mpcc knows them.
func ours() map[string]string {
	ids := map[string]string{}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			ids[e.Name] = e.ID()
		}
	}
	return ids
}

// bench is what all controls are run with.
type bench struct {
	kernel  vm.Kernel
	source  string            // version of the package that the selftests are from
	files   map[string]string // vm.Spec.Files
	results string            // folder with one for each control
}

// selftests is the folder of the kernel's selftests in its source.
const selftests = "tools/testing/selftests"

//go:embed guest.sh
var guestScript string

// prepare builds mpcc and the kernel's test programs. remove removes what was built, also after an error.
func prepare(ctx context.Context, kernel vm.Kernel) (b bench, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mpcc-selftests-*")
	if err != nil {
		return b, func() {}, err
	}
	remove = func() { os.RemoveAll(dir) }
	root, err := vm.Clone()
	if err != nil {
		return b, remove, err
	}
	files, removeFiles, err := kernels.ProjectFiles(ctx, kernel)
	if err != nil {
		return b, remove, err
	}
	remove = func() {
		removeFiles()
		os.RemoveAll(dir)
	}
	net := selftests + "/net"
	source, version, err := vm.Source(ctx, kernel, say, net+"/mptcp", net+"/lib.sh", net+"/net_helper.sh")
	if err != nil {
		return b, remove, err
	}
	files["/selftests"] = filepath.Join(source, selftests)
	for _, program := range []string{"mptcp_connect", "pm_nl_ctl"} {
		built := filepath.Join(dir, program)
		cmd := exec.CommandContext(ctx, "gcc", "-O2", "-static", "-isystem", filepath.Join(source, "usr", "include"),
			"-o", built, filepath.Join(source, net, "mptcp", program+".c"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return b, remove, fmt.Errorf("%s: %w\n%s", program, err, out)
		}
		files["/selftests/net/mptcp/"+program] = built
	}
	return bench{kernel, version, files, filepath.Join(root, ".cache", "selftests")}, remove, nil
}

// run runs the scripts with what a row names, in a VM of its own, and completes the row.
func (b bench) run(ctx context.Context, r *row) {
	dir := filepath.Join(b.results, r.name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		r.fault = err
		return
	}
	result, err := vm.Run(ctx, vm.Spec{
		Kernel: b.kernel, Files: b.files, Env: kernels.ProjectEnv(), Stage: say, Stdout: os.Stderr, ResultsDir: dir,
		OwnTime: true, Cmd: []string{"bash", "-c", guestScript, "selftests", r.name, r.cc, r.scheduler, ours()[r.cc]},
	})
	r.took, r.release = result.Total, result.Release
	switch {
	case err != nil:
		r.fault = err
	case result.Status != 0:
		r.fault = fmt.Errorf("setting it up in the VM ended with status %d", result.Status)
	default:
		r.fault = r.read(dir)
	}
}

// print prints a table, and below it what went wrong.
func (b bench) print(w io.Writer, rows []row) error {
	release := "unknown, as no VM ran"
	for _, r := range rows {
		if r.release != "" {
			release = r.release
		}
	}
	fmt.Fprintf(w, "selftests of linux-source %s, in a VM's own time; kernel %s; tests passed/all\n\n", b.source, release)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CONTROL\tMPTCP_CONNECT\tSIMULT_FLOWS\t2ND\t3RD\tRAN ON\tTOOK")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.name, strings.Join(r.cells(), "\t"), r.ranOn(), r.took.Round(time.Second))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		for _, f := range r.faults() {
			fmt.Fprintf(w, "\n%s: %s", r.name, f)
		}
	}
	fmt.Fprintf(w, "\nwhat the scripts printed is in %s\n", b.results)
	return nil
}

func say(what string) { fmt.Fprintln(os.Stderr, "selftests:", what) }
