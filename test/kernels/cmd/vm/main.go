// SPDX-License-Identifier: Apache-2.0

// Command vm boots a stock kernel in a VM, and runs a command or a shell in there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/vm"
	"github.com/mpcc/mpcc/test/kernels"
)

const usage = `usage: vm shell [flags]              a root shell in a VM
       vm run   [flags] PROGRAM ARG…  run a program in a VM; exits with its status
       vm fetch [flags]              download the newest kernel and root file system
`

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

func run(args []string) (int, error) {
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	label := flags.String("kernel", kernels.Labels()[0], "label of the kernel: "+strings.Join(kernels.Labels(), ", "))
	mpcc := flags.Bool("mpcc", true, "build mpcc and its tests, and put them into the VM")
	ownTime := flags.Bool("own-time", false, "give the VM one CPU and a clock that a busy host does not disturb")
	instruction := flags.Duration("instruction", 4, "how long an instruction takes in own time: 1ns, 2ns, 4ns or 8ns")
	results := flags.String("results", "", "existing `folder` that gets the guest's /results")
	files := map[string]string{}
	flags.Func("file", "`guest=host`: put a file or folder into the VM; may be repeated", func(s string) error {
		guest, host, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want guest=host")
		}
		files[guest] = host
		return nil
	})
	if len(args) == 0 {
		flags.Usage()
		return 2, nil
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return 2, nil // Parse has said why
	}
	kernel, err := kernels.Find(*label)
	if err != nil {
		return 2, err
	}
	if !slices.Contains([]time.Duration{1, 2, 4, 8}, *instruction) {
		return 2, fmt.Errorf("-instruction %v: use 1ns, 2ns, 4ns or 8ns", *instruction)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	spec := vm.Spec{
		Kernel: kernel, Files: files, Stdout: os.Stdout, ResultsDir: *results, OwnTime: *ownTime, Instruction: *instruction, Stage: stage,
	}
	switch verb := args[0]; {
	case verb == "fetch" && flags.NArg() == 0:
		return 0, vm.Fetch(ctx, kernel, stage)
	case verb == "shell" && flags.NArg() == 0:
		spec.Interactive = true
		spec.Cmd = shell()
	case verb == "run" && flags.NArg() > 0:
		spec.Cmd = flags.Args()
	default:
		flags.Usage()
		return 2, nil
	}
	return boot(ctx, spec, *mpcc)
}

// boot runs the VM, if wanted with mpcc and its tests in it, and returns the command's status.
func boot(ctx context.Context, spec vm.Spec, mpcc bool) (int, error) {
	if mpcc {
		built, remove, err := kernels.ProjectFiles(ctx, spec.Kernel)
		if err != nil {
			return 1, fmt.Errorf("%w\n(-mpcc=false starts the VM without it)", err)
		}
		defer remove()
		maps.Copy(spec.Files, built)
		spec.Env = kernels.ProjectEnv()
	}
	result, err := vm.Run(ctx, spec)
	if result.Release != "" {
		stage(fmt.Sprintf("Linux %s under %s", result.Release, result.Accel))
	}
	return result.Status, err
}

func stage(what string) { fmt.Fprintln(os.Stderr, "vm:", what) }

// shell returns the command of a login shell that knows type and size of the terminal: the serial line between
// them does not say.
func shell() []string {
	script := "exec bash -l"
	if size, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil {
		script = fmt.Sprintf("stty rows %d cols %d; export TERM='%s'; %s", size.Row, size.Col, os.Getenv("TERM"), script)
	}
	return []string{"sh", "-c", script}
}
