// SPDX-License-Identifier: Apache-2.0

// Command demo shows mpcc's main job on a network of its own: two namespaces, two paths of unequal rate
// and delay, one MPTCP transfer under DTS, watched while it runs. It uses this machine's kernel where
// that can carry the algorithm, else a VM with a stock Debian kernel.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mpcc/mpcc/internal/vm"
)

func main() {
	inVM := flag.Bool("vm", false, "use the VM even if this machine's kernel can run the algorithm")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *inVM); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, inVM bool) error {
	mpcc, err := findMpcc()
	if err != nil {
		return err
	}
	why := "as asked"
	if !inVM {
		var out []byte
		if out, err = exec.Command(mpcc, "doctor", algorithm).CombinedOutput(); err == nil {
			return show(ctx, mpcc)
		}
		// Exit code 4: this kernel can't. For other errors a VM is no remedy.
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 4 {
			return fmt.Errorf("mpcc doctor: %s", strings.TrimSpace(string(out)))
		}
		why = lastLine(out, "no: ")
	}
	kernel, err := vm.Find(vm.Labels()[0])
	if err != nil {
		return err
	}
	fmt.Printf("In a VM with Debian's %s kernel: %s\n", kernel.Label, why)
	return runInVM(ctx, kernel, mpcc)
}

// findMpcc returns the mpcc in the same folder as this program.
func findMpcc() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	mpcc := filepath.Join(filepath.Dir(self), "mpcc")
	if _, err := os.Stat(mpcc); err != nil {
		return "", fmt.Errorf("%w; make demo builds both", err)
	}
	return mpcc, nil
}

func lastLine(text []byte, mark string) string {
	found := "this machine's kernel cannot run it"
	for line := range strings.Lines(string(text)) {
		if _, reason, ok := strings.Cut(line, mark); ok {
			found = strings.TrimSpace(reason)
		}
	}
	return found
}

func runInVM(ctx context.Context, kernel vm.Kernel, mpcc string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	result, err := vm.Run(ctx, vm.Spec{
		Kernel: kernel,
		Cmd:    []string{"/usr/local/bin/demo"},
		Files:  map[string]string{"/usr/local/bin/demo": self, "/usr/local/bin/mpcc": mpcc},
		Stdout: os.Stdout,
		Stage:  func(what string) { fmt.Println(what) },
	})
	if err != nil {
		return err
	}
	if result.Status != 0 {
		return fmt.Errorf("the demo in the VM ended with status %d", result.Status)
	}
	return nil
}
