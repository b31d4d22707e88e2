// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/pkg/config"
)

func newConfigCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check the file that declares all settings; show what runs as such a file",
		Args:  args(cobra.NoArgs),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Tell what is wrong in the file",
		Long: `check tells all that is wrong in the file, each with its line, and changes nothing. Whether there are such
interfaces and network namespaces here, mpcc apply --dry-run tells.`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			path := fileOf(given)
			if _, err := config.Read(path); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: nothing is wrong\n", path)
			return nil
		},
	}
	show := &cobra.Command{
		Use:   "show",
		Short: "Write what runs now as such a file",
		Long: `show writes what runs now as a file for which mpcc apply has nothing to change, whoever has set it: of this
network namespace, and of those that ip netns has names for.`,
		Example: "  mpcc config show >/etc/mpcc/config.yaml",
		Args:    args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			now, err := config.Current(c.Context())
			if err != nil {
				return err
			}
			fmt.Fprint(c.OutOrStdout(), "# What mpcc config show found; mpcc apply makes it so.\n", string(now.YAML()))
			return nil
		},
	}
	c.AddCommand(check, show)
	return c
}

// fileOf is the file that is named, or the machine's.
func fileOf(given []string) string {
	if len(given) == 1 {
		return given[0]
	}
	return config.File
}

func configFlag(c *cobra.Command) {
	c.Flags().String("config", config.File, "the configuration; there need be none")
}

// declared reads the file that --config names. There need be none where it is not given.
func declared(c *cobra.Command) (*config.Config, error) {
	path, err := c.Flags().GetString("config")
	if err != nil {
		return nil, err
	}
	file, err := config.Read(path)
	if errors.Is(err, fs.ErrNotExist) && !c.Flags().Changed("config") {
		return &config.Config{}, nil
	}
	return file, err
}

func newApplyCommand() *cobra.Command {
	var dryRun, asJSON bool
	var confirm, every time.Duration
	c := &cobra.Command{
		Use:   "apply [FILE]",
		Short: "Make the machine what the file declares",
		Long: `apply makes the machine what the file declares, /etc/mpcc/config.yaml unless another is named, and writes a
line for each change. What an earlier apply has set and is not declared any more goes away, or becomes what it
was before; what somebody else has set stays as long as nothing is declared for it. A second apply changes
nothing. --dry-run shows the changes and makes none.

With --confirm 60s the changes are undone after that time unless mpcc confirm is said meanwhile, whatever
becomes of this command and of the session that it runs in; and a restart of the machine undoes them too.

With --every 30s it goes on until it is ended, and reads and applies the file again each 30 s: what changes in the
file, and what the machine has lost meanwhile, such as the routes of an interface that was down. It ends with the
first error. What is applied stays when it ends.`,
		Example: "  mpcc apply --dry-run\n  mpcc apply --confirm 60s\n  mpcc confirm",
		Args:    args(cobra.MaximumNArgs(1)),
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be changed, change nothing")
	c.Flags().DurationVar(&confirm, "confirm", 0, "undo the changes after this time unless mpcc confirm is said")
	c.Flags().DurationVar(&every, "every", 0, "go on, and apply the file again after this time")
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write the changes as JSON")
	c.RunE = func(c *cobra.Command, given []string) error {
		if c.Flags().Changed("confirm") && confirm < time.Second {
			return usageError("--confirm %v: give a second or more, such as 60s", confirm)
		}
		if c.Flags().Changed("every") && every < time.Second {
			return usageError("--every %v: give a second or more, such as 30s", every)
		}
		if dryRun && confirm > 0 {
			return usageError("--dry-run changes nothing that --confirm could undo; say one of them")
		}
		if every > 0 && (dryRun || confirm > 0) {
			return usageError("--every applies the file again and again; it does not go with --dry-run and --confirm")
		}
		apply := func(ctx context.Context, unchanged bool) error {
			file, err := config.Read(fileOf(given))
			if err != nil {
				return err
			}
			r := &changes{out: c.OutOrStdout(), silent: asJSON, DryRun: dryRun, Changes: []config.Change{}}
			if dryRun {
				var plan *config.Plan
				if plan, err = file.Plan(ctx); err == nil {
					for _, change := range plan.Changes {
						r.add(change)
					}
				}
			} else {
				_, err = file.Apply(ctx, config.Options{Done: r.add, Confirm: confirm, Guard: startGuard})
			}
			if err == nil && !r.Changed && !unchanged {
				return nil
			}
			return errors.Join(err, r.finish(err, confirm))
		}
		err := apply(c.Context(), true)
		for err == nil && every > 0 {
			select {
			case <-c.Context().Done():
				return nil
			case <-time.After(every):
				// What is begun is brought to its end.
				err = apply(context.WithoutCancel(c.Context()), false)
			}
		}
		return err
	}
	return c
}

// changes are what apply writes of its work.
type changes struct {
	out     io.Writer
	silent  bool
	Changed bool            `json:"changed"`
	DryRun  bool            `json:"dry_run"`
	Changes []config.Change `json:"changes"`
	Confirm float64         `json:"confirm_within_seconds,omitempty"`
}

func (r *changes) add(c config.Change) {
	r.Changed = true
	r.Changes = append(r.Changes, c)
	if !r.silent {
		fmt.Fprintln(r.out, c)
	}
}

func (r *changes) finish(failed error, confirm time.Duration) error {
	if r.Changed && failed == nil {
		r.Confirm = confirm.Seconds()
	}
	switch {
	case r.silent:
		return writeJSON(r.out, r)
	case failed != nil:
	case !r.Changed:
		fmt.Fprintln(r.out, "nothing to change")
	case confirm > 0:
		fmt.Fprintf(r.out, "undone in %v unless you say mpcc confirm\n", confirm)
	}
	return nil
}

func newConfirmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "confirm",
		Short: "Let the changes of mpcc apply --confirm stay",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := config.Confirm(c.Context()); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "the changes stay")
			return nil
		},
	}
}

const guardCommand = "guard"

// newGuardCommand is what apply --confirm starts: nobody types it.
func newGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    guardCommand,
		Hidden: true,
		Args:   args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return config.Guard(c.Context(), func() {
				starter := os.NewFile(3, "starter")
				_, _ = starter.WriteString("ready")
				_ = starter.Close()
			})
		},
	}
}

// startGuard starts a guard that outlives this process, its session and its terminal, and waits until it is ready.
func startGuard() error {
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer nothing.Close()
	ready, starter, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	guard, err := os.StartProcess("/proc/self/exe", []string{"mpcc", guardCommand}, &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []*os.File{nothing, nothing, nothing, starter},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err = errors.Join(err, starter.Close()); err != nil {
		return fmt.Errorf("start the process that undoes the changes: %w", err)
	}
	text, err := io.ReadAll(ready)
	if err == nil && len(text) == 0 {
		state, waitErr := guard.Wait()
		return fmt.Errorf("the process that undoes the changes has ended at once: %v: %w", state, errors.Join(waitErr, errors.New("nothing was changed")))
	}
	return errors.Join(err, guard.Release())
}

// recoverChanges undoes what was not confirmed in time, where whoever had to was killed.
func recoverChanges(c *cobra.Command) {
	if c.Name() == guardCommand || os.Geteuid() != 0 {
		return
	}
	undone, err := config.Recover(context.WithoutCancel(c.Context()))
	switch {
	case err != nil:
		fmt.Fprintln(c.ErrOrStderr(), "mpcc: changes that were not confirmed could not be undone:", err)
	case undone != "":
		fmt.Fprintf(c.ErrOrStderr(), "mpcc: the changes of %s were not confirmed, and are undone now\n", undone)
	}
}
