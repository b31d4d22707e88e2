// SPDX-License-Identifier: Apache-2.0

// Command mpcc brings Multipath TCP's congestion controls and packet schedulers to the running kernel. This
// package has the flags, the output and the exit codes; the packages loader, pkg/… and internal/… do the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"github.com/mpcc/mpcc/internal/kmod"
	"github.com/mpcc/mpcc/loader"
)

// Exit codes.
const (
	exitError       = 1
	exitUsage       = 2
	exitNotLoaded   = 3
	exitUnsupported = 4
)

type usageErr struct{ error }

func usageError(format string, args ...any) error { return usageErr{fmt.Errorf(format, args...)} }

// reported is an error that the command has printed in full: main adds nothing to it.
type reported struct{ error }

func (r reported) Unwrap() error { return r.error }

func main() {
	// The first signal asks the command to end in good order, the second one ends it.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:]); err != nil {
		os.Exit(exitCode(err))
	}
}

func run(ctx context.Context, args []string) error {
	root := newRootCommand()
	root.SetArgs(args)
	out := transform.NewWriter(os.Stdout, runes.Map(harmless))
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	out.Close()
	if err == nil {
		return nil
	}
	if !errors.As(err, new(reported)) {
		fmt.Fprintln(os.Stderr, "mpcc:", strings.Map(harmless, err.Error()))
	}
	if debug, _ := root.PersistentFlags().GetBool("debug"); debug {
		if log := loader.VerifierLog(err); log != "" {
			fmt.Fprintln(os.Stderr, log)
		}
	}
	return err
}

// harmless takes the place of control characters: a name that somebody else chose, of a cgroup or in a folder of results,
// must not give the terminal commands.
func harmless(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}

func exitCode(err error) int {
	var usage usageErr
	switch {
	case errors.As(err, &usage), errors.Is(err, loader.ErrUsage):
		return exitUsage
	case errors.Is(err, loader.ErrNotLoaded):
		return exitNotLoaded
	case errors.Is(err, loader.ErrUnsupported), errors.Is(err, kmod.ErrUnsupported):
		return exitUnsupported
	}
	return exitError
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "mpcc",
		Short: "Multipath TCP congestion controls and packet schedulers for the kernel you run",
		Long: `mpcc attaches Multipath TCP's congestion controls and packet schedulers to the running
kernel as BPF programs, shows what each subflow does, and takes them away again.

Exit codes: 0 done, 1 error, 2 usage, 3 not loaded, 4 this kernel can't.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          args(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRun: func(c *cobra.Command, _ []string) {
			recoverChanges(c)
		},
	}
	root.PersistentFlags().BoolP("debug", "d", false, "show the kernel's verifier log with an error")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageErr{err} })
	root.AddCommand(
		newListCommand(), newDoctorCommand(), newAdviseCommand(),
		newConfigCommand(), newApplyCommand(), newConfirmCommand(), newGuardCommand(),
		newLoadCommand(), newSwitchCommand(), newUnloadCommand(), newUseCommand(),
		newStatusCommand(), newWatchCommand(), newWhyCommand(), newEvalCommand(), newRunCommand(), newReportCommand(),
		newNewCommand(),
		newEnergyCommand(), newPathCommand(), newSteerCommand(), newSchedCommand(), newExporterCommand(),
		newVersionCommand(), newManCommand(),
	)
	return root
}

// args makes a wrong number of arguments a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if err := check(c, given); err != nil {
			return usageError("%w; see %s --help", err, c.CommandPath())
		}
		return nil
	}
}
