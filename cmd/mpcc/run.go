// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

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
	var list, clean bool
	c := &cobra.Command{
		Use:   "run NAME|FILE",
		Short: "Run a published experiment, or one of your own",
		Long: `run builds the network of a scenario in network namespaces, measures whether its links are
what the scenario asks for, lets its users send, and shows the results beside those of the
paper. Afterwards everything is removed but the results: a folder with a report as HTML.

NAME is one of --list. FILE has a / in its name or ends with .yaml; docs/scenarios.md says
how to write one. Most scenarios need a kernel with netem and RED: --vm runs them in a
virtual machine with a stock Debian kernel. The first time it takes some minutes longer, to
fetch the kernel and to build a root file system for it.`,
		Example: "  mpcc run scenario-c --cc lia,olia\n  mpcc run --quick --vm wlan-3g\n  mpcc run ./own.yaml --set n=5,10 --repeats 3",
		Args: func(_ *cobra.Command, names []string) error {
			if (list || clean) == (len(names) == 1) || len(names) > 1 {
				return usageError("name one scenario, or say --list or --clean")
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
	c.Flags().StringVar(&r.kernel, "vm", "", "run it in a virtual machine with a stock `KERNEL`: "+strings.Join(vm.Labels(), ", "))
	c.Flags().Lookup("vm").NoOptDefVal = vm.Labels()[0]
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
	kernel        string // label of the virtual machine's kernel; "" to run on this machine
	options       experiment.Options
}

// open reads the scenario and makes the folder for its results.
func (r *runner) open() (*scenario.File, *result.Folder, error) {
	file, err := r.scenario()
	if err != nil {
		return nil, nil, err
	}
	if r.out == "" {
		r.out = fmt.Sprintf("mpcc-%s-%s", file.Name, time.Now().Format("20060102-150405"))
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
	complete, err := experiment.All(ctx, file, folder, r.options)
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
	return nil
}

// guestCommand returns the command that runs in the virtual machine.
func (r *runner) guestCommand(file *scenario.File) []string {
	command := []string{guestProgram, "run", guestScenario, "--out", guestResults,
		"--repeats", fmt.Sprint(r.options.Repeats), "--seed", fmt.Sprint(r.options.Seed)}
	if r.options.Quick {
		command = append(command, "--quick")
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
