// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/experiment/report"
	"github.com/mpcc/mpcc/internal/experiment/result"
	experiment "github.com/mpcc/mpcc/internal/experiment/run"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/kmod"
	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/internal/vm"
	"github.com/mpcc/mpcc/loader"
)

func newRunCommand() *cobra.Command {
	var r runner
	var list, clean, plan bool
	var shard string
	c := &cobra.Command{
		Use:   "run NAME|FILE|FILE.bundle",
		Short: "Run a published experiment, or one of your own",
		Long: `run builds the network of a scenario in network namespaces, measures whether its links are
what the scenario asks for, lets its users send, and shows the results beside those of the
paper. Afterwards everything is removed but the results: a folder with a report as HTML.

NAME is one of --list. FILE has a / in its name or ends with .yaml; docs/scenarios.md says
how to write one. Most scenarios need a kernel with netem and RED: --vm runs them in a
virtual machine with a stock Debian kernel. The first time it takes some minutes longer, to
fetch the kernel and to build a root file system for it. --sim simulates them, packet by
packet, with the same programs as congestion controls and packet schedulers.

Where claims plan how many repeats they need, as many are run; --repeats runs fewer or more,
and --plan shows what would be run.
--bundle writes all that repeats the run: the scenario as it was run, repeats, seed and
versions. mpcc run FILE.bundle repeats it.
--shard 0/8 runs the first of eight parts of all that, on one machine of several; mpcc report
--join makes one of their folders.`,
		Example: "  mpcc run scenario-c --cc lia,olia\n  mpcc run --quick --vm wlan-3g\n  mpcc run ./own.yaml --set n=5,10 --repeats 3",
		Args: func(_ *cobra.Command, names []string) error {
			for _, name := range names {
				if r.kernel != "" && slices.Contains(vm.Labels(), name) {
					return usageError("--vm takes its kernel after an equals sign: --vm=%s", name)
				}
			}
			if (list || clean) == (len(names) == 1) || len(names) > 1 {
				return usageError("name one scenario, or say --list or --clean")
			}
			if r.bundle != "" && !scenario.IsBundle(r.bundle) {
				return usageError("--bundle %s: its name has to end with %s", r.bundle, scenario.BundleSuffix)
			}
			return nil
		},
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, names []string) error {
			ctx := c.Context()
			switch {
			case list:
				return listScenarios(c.OutOrStdout())
			case clean:
				return cleanRuns(ctx, c.OutOrStdout())
			}
			r.name = names[0]
			if r.kernel != "" && r.simulated {
				return usageError("--sim and --vm exclude each other")
			}
			if err := r.setShard(shard); err != nil {
				return err
			}
			if scenario.IsBundle(r.name) {
				if err := r.unpack(c); err != nil {
					return err
				}
			}
			if plan {
				return r.plan(c.OutOrStdout())
			}
			if r.kernel != "" {
				return r.runInVM(ctx, c)
			}
			return r.run(ctx, c)
		},
	}
	c.Flags().StringSliceVar(&r.cc, "cc", nil, "congestion controls, in place of the scenario's")
	c.Flags().StringSliceVar(&r.scheduler, "sched", nil, "packet schedulers, in place of the scenario's")
	c.Flags().StringArrayVar(&r.set, "set", nil, "other values for a variable of the sweep, name=value,value")
	c.Flags().IntVar(&r.options.Repeats, "repeats", 0, "how often each point of the sweep is run, in place of the scenario's")
	c.Flags().Uint64Var(&r.options.Seed, "seed", 0, "seed of the random numbers, in place of the scenario's")
	c.Flags().BoolVar(&r.options.Quick, "quick", false, "run the short form: a first look, whose numbers are not to be relied on")
	c.Flags().StringVarP(&r.out, "out", "o", "", "`folder` for the results; it must not hold results yet")
	c.Flags().StringVar(&r.bundle, "bundle", "", "write all that repeats the run to `FILE`, whose name ends with "+scenario.BundleSuffix)
	c.Flags().StringVar(&r.kernel, "vm", "", "run it in a virtual machine with a stock `KERNEL`: "+strings.Join(vm.Labels(), ", "))
	c.Flags().Lookup("vm").NoOptDefVal = vm.Labels()[0]
	c.Flags().BoolVar(&r.simulated, "sim", false, "simulate it: no network is built, no kernel asked, and no root needed")
	c.Flags().StringVar(&shard, "shard", "", "run the `I/N`-th part of the sweep only, 0/N to N-1/N; mpcc report --join joins them")
	c.Flags().BoolVar(&plan, "plan", false, "show how many repeats the claims need, and how long that takes; run nothing")
	c.Flags().BoolVar(&list, "list", false, "list the scenarios that mpcc brings")
	c.Flags().BoolVar(&clean, "clean", false, "remove what killed runs have left behind")
	return c
}

// runner is one call of mpcc run.
type runner struct {
	name          string
	cc, scheduler []string
	set           []string
	out           string
	simulated     bool
	kernel        string // label of the virtual machine's kernel; "" to run on this machine
	options       experiment.Options
	bundle        string         // file to write
	unpacked      *scenario.File // of the bundle that is to be repeated
}

// setShard takes what --shard says.
func (r *runner) setShard(text string) error {
	if text == "" {
		return nil
	}
	var s result.Shard
	var err [2]error
	number, of, _ := strings.Cut(text, "/")
	s.Number, err[0] = strconv.Atoi(number)
	s.Of, err[1] = strconv.Atoi(of)
	if err[0] != nil || err[1] != nil || s.Of < 1 || s.Number < 0 || s.Number >= s.Of {
		return usageError("--shard %s: say which part of how many, from 0: of 8 they are 0/8 to 7/8", text)
	}
	if r.bundle != "" {
		return usageError("--bundle is for a whole sweep: leave out --shard")
	}
	r.options.Shard = &s
	return nil
}

// open reads the scenario and makes the folder for its results.
func (r *runner) open() (*scenario.File, *result.Folder, error) {
	file, err := r.scenario()
	if err != nil {
		return nil, nil, err
	}
	if s := r.options.Shard; s != nil && len(r.options.Runs(file)) == 0 {
		return nil, nil, usageError("--shard %d/%d: there are %d runs only", s.Number, s.Of, s.Number)
	}
	if r.out == "" {
		r.out = fmt.Sprintf("mpcc-%s-%s", file.Name, time.Now().Format("20060102-150405"))
		if s := r.options.Shard; s != nil { // parts may begin in the same second
			r.out += fmt.Sprintf("-%d-of-%d", s.Number, s.Of)
		}
	}
	folder, err := result.Create(r.out)
	return file, folder, err
}

func (r *runner) run(ctx context.Context, c *cobra.Command) error {
	file, folder, err := r.open()
	if err != nil {
		return err
	}
	defer folder.Close()
	r.options.Tool, r.options.Machine = version, os.Getenv(vm.MachineVariable)
	p := showProgress(string(file.Name), os.Stderr, false)
	r.options.Progress = p.tell
	carry := experiment.All
	if r.simulated {
		carry = experiment.Simulate
	}
	complete, err := carry(ctx, file, folder, r.options)
	p.done()
	if errors.Is(err, context.Canceled) {
		err = interrupted(err, "what the run had made is removed")
	}
	if err != nil && complete != nil {
		return fmt.Errorf("%w; mpcc report %s shows the %d runs that were complete", err, r.out, len(complete.Runs))
	}
	if err != nil {
		return err
	}
	if err := r.writeBundle(); err != nil {
		return err
	}
	shown, err := report.Load(r.out)
	if err != nil {
		return err
	}
	if err := shown.Text(c.OutOrStdout()); err != nil {
		return err
	}
	if err := shown.Save(r.out); err != nil {
		return err
	}
	if !inGuest() { // outside the virtual machine the results are in another folder, which runInVM names
		fmt.Fprintf(c.OutOrStdout(), "\nresults in %s\n", r.out)
	}
	return nil
}

// interrupted returns the error of a command that a signal ended: it names the process that the command was
// waiting for or, if there was none, says end.
func interrupted(err error, end string) error {
	var held *lockfile.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("interrupted: %w", held)
	}
	return errors.New("interrupted: " + end)
}

// Paths in the virtual machine.
const (
	guestProgram  = "/usr/bin/mpcc"
	guestScenario = "/root/scenario.yaml"
	guestResults  = "/results"
)

// runInVM runs the same command in a virtual machine, and puts its results into the folder.
func (r *runner) runInVM(ctx context.Context, c *cobra.Command) error {
	kernel, err := vm.Find(r.kernel)
	if err != nil {
		return err
	}
	file, folder, err := r.open()
	if err != nil {
		return err
	}
	defer folder.Close()
	text, err := os.CreateTemp("", "mpcc-*.yaml")
	if err != nil {
		return err
	}
	defer os.Remove(text.Name())
	_, err = text.WriteString(file.YAML())
	if err := errors.Join(err, text.Close()); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p := showProgress(string(file.Name), os.Stderr, true)
	ended, err := vm.Run(ctx, vm.Spec{
		Kernel: kernel, Cmd: r.guestCommand(file), ResultsDir: folder.Path, OwnTime: true, Stage: p.stage,
		Stdout: &progressReader{out: c.OutOrStdout(), progress: p},
		Env:    map[string]string{tellProgress: "1"},
		Files:  map[string]string{guestProgram: program, guestScenario: text.Name()},
	})
	p.done()
	switch {
	case ctx.Err() != nil:
		return interrupted(err, "the virtual machine is stopped")
	case err != nil:
		return err
	case ended.Status == exitUnsupported:
		return fmt.Errorf("kernel %s: %w", ended.Release, loader.ErrUnsupported)
	case ended.Status != 0:
		return fmt.Errorf("in the virtual machine mpcc run ended with exit code %d", ended.Status)
	}
	fmt.Fprintf(c.OutOrStdout(), "\nresults in %s\n", folder.Path)
	return r.writeBundle()
}

// writeBundle writes the bundle of the run, if one is wanted, from its results.
func (r *runner) writeBundle() error {
	if r.bundle == "" {
		return nil
	}
	made, err := result.Read(r.out)
	if err != nil {
		return err
	}
	text, err := scenario.NewBundle(made, r.kernel, r.options.Repeats).Text()
	if err != nil {
		return err
	}
	return atomicfile.Write(r.bundle, text, 0o644)
}

// unpack takes from a bundle what its run was run with. What may differ is said.
func (r *runner) unpack(c *cobra.Command) error {
	for _, name := range []string{"cc", "sched", "set", "repeats", "seed", "quick", "vm", "sim"} {
		if c.Flags().Changed(name) {
			return usageError("--%s: a bundle has all that its run was run with; take the scenario out of it to change something", name)
		}
	}
	b, file, err := scenario.ReadBundle(r.name)
	if err != nil {
		return usageErr{err}
	}
	r.kernel, r.simulated, r.unpacked = b.VM, b.Kernel == result.Simulated, file
	r.options.Quick, r.options.Repeats, r.options.Seed = b.Quick, b.Repeats, b.Seed
	if b.Mpcc != version {
		fmt.Fprintf(c.ErrOrStderr(), "mpcc: the bundle was made with mpcc %s, this is %s\n", b.Mpcc, version)
	}
	if b.VM == "" && !r.simulated && b.Kernel != loader.Release() {
		fmt.Fprintf(c.ErrOrStderr(), "mpcc: the bundle was made on kernel %s, this is %s\n", b.Kernel, loader.Release())
	}
	return nil
}

// guestCommand returns the command that runs in the virtual machine.
func (r *runner) guestCommand(file *scenario.File) []string {
	command := []string{guestProgram, "run", guestScenario, "--out", guestResults,
		"--repeats", fmt.Sprint(r.options.Repeats), "--seed", fmt.Sprint(r.options.Seed)}
	if r.options.Quick {
		command = append(command, "--quick")
	}
	if s := r.options.Shard; s != nil {
		command = append(command, "--shard", fmt.Sprintf("%d/%d", s.Number, s.Of))
	}
	if slices.ContainsFunc(file.Runs(r.options.Quick), schedules) {
		// Stock kernels take BPF packet schedulers only with the module.
		command = append([]string{"sh", "-c", `modprobe ` + kmod.Name + ` && exec "$@"`, "sh"}, command...)
	}
	return command
}

// schedules says whether any user of a run has a packet scheduler.
func schedules(one scenario.Run) bool {
	return slices.ContainsFunc(one.Scenario.Users, func(u scenario.User) bool { return u.Scheduler != "default" })
}

// scenario returns the scenario file, with what the command line changes.
func (r *runner) scenario() (*scenario.File, error) {
	if r.unpacked != nil {
		return r.unpacked, nil
	}
	file, err := scenario.Load(r.name)
	if err != nil {
		return nil, usageErr{err}
	}
	changes := r.set
	for name, values := range map[string][]string{"cc": r.cc, "scheduler": r.scheduler} {
		if len(values) > 0 {
			changes = append(changes, name+"="+strings.Join(values, ","))
		}
	}
	for _, change := range changes {
		name, values, ok := strings.Cut(change, "=")
		if !ok || values == "" {
			return nil, usageError("--set %s: say name=value,value", change)
		}
		if file, err = file.Set(name, strings.Split(values, ",")...); err != nil {
			return nil, usageErr{err}
		}
	}
	return file, nil
}

func completeScenarios(_ *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := slices.DeleteFunc(scenario.Names(), func(n string) bool { return !strings.HasPrefix(n, prefix) })
	return names, cobra.ShellCompDirectiveDefault // or a file
}

// plan shows what the claims' plans come to, and how many runs there are.
func (r *runner) plan(w io.Writer) error {
	file, err := r.scenario()
	if err != nil {
		return err
	}
	plans, tests := file.Plans()
	if len(plans) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "CLAIM\tEFFECT\tSPREAD\tREPEATS\tPOWER")
		for _, p := range plans {
			effect := p.Plan.Effect
			if p.Relation == result.Within {
				effect = p.Margin
			}
			fmt.Fprintf(t, "%s\t%g\t%g\t%d\t%.2f\n", p.Text, effect, p.Plan.Spread, p.Repeats, p.Power)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(w, "corrected for %d tests\n\n", tests)
	}
	runs := r.options.Runs(file)
	length, exact, note := experiment.Length, time.Minute, ""
	if r.simulated {
		length, exact, note = experiment.Phases, time.Second, " of simulated time"
	}
	var all time.Duration
	for _, one := range runs {
		all += length(one)
	}
	_, err = fmt.Fprintf(w, "%d runs, at most about %v%s\n", len(runs), all.Round(exact), note)
	return err
}

func listScenarios(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range scenario.Names() {
		file, err := scenario.Load(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", name, file.Title, file.Source)
	}
	return t.Flush()
}

func cleanRuns(ctx context.Context, w io.Writer) error {
	removed, err := experiment.Clean(ctx)
	for _, name := range removed {
		fmt.Fprintf(w, "removed namespace %s\n", name)
	}
	if errors.Is(err, context.Canceled) {
		return interrupted(err, "some of it may be left")
	}
	return err
}
