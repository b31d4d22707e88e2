// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/vm"
	"github.com/mpcc/mpcc/test/kernels"
	"github.com/mpcc/mpcc/test/verified"
)

// aBoot is how long a test may take in a VM, also emulated, with a kernel that watches itself.
const aBoot = 20 * time.Minute

// byRow puts cells of the same row together.
func byRow(cells []verified.Cell) (rows [][]verified.Cell) {
	for _, c := range cells {
		if i := slices.IndexFunc(rows, func(row []verified.Cell) bool { return row[0].Row == c.Row }); i >= 0 {
			rows[i] = append(rows[i], c)
		} else {
			rows = append(rows, []verified.Cell{c})
		}
	}
	return rows
}

// runKernels verifies and attaches objects on each kernel, in a VM or on the machine's own.
func runKernels(ctx context.Context, b *bench, cells []verified.Cell) error {
	for _, row := range byRow(cells) {
		var objects []string
		for _, c := range row {
			objects = append(objects, c.Column)
		}
		args := []string{
			"-test.run=^TestVerifyKernel$", "-test.timeout=" + aBoot.String(),
			"-verify-objects=" + strings.Join(objects, ","),
		}
		found, err := b.guestTest(ctx, row[0].Row, false, args)
		if err != nil {
			return fmt.Errorf("%s: %w", row[0].Row, err)
		}
		for _, c := range row {
			r, ok := found.Find(verified.Cell{Column: c.Column})
			if !ok {
				return fmt.Errorf("%s: it found nothing about %s", row[0].Row, c.Column)
			}
			if err := b.keep(verified.Kernels, c, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// guestTest runs a test of test/e2e on the kernel of a label, in its own time or not, or on the machine's own, and
// returns the records that it leaves, also when it has failed.
func (b *bench) guestTest(ctx context.Context, label string, ownTime bool, args []string) (verified.Table, error) {
	dir, err := os.MkdirTemp("", "mpcc-verify-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const file = "found.json"
	release := ownRelease()
	if label == verified.OwnKernel {
		err = b.ownTest(ctx, append(args, "-verify-results="+filepath.Join(dir, file)))
	} else {
		release, err = bootTest(ctx, label, ownTime, dir, append(args, "-verify-results=/results/"+file))
	}
	text, unread := os.ReadFile(filepath.Join(dir, file))
	if unread != nil {
		return nil, cmp.Or(err, unread)
	}
	var found verified.Table
	if wrong := json.Unmarshal(text, &found); wrong != nil {
		return nil, cmp.Or(err, wrong)
	}
	for i := range found {
		found[i].Kernel = release
	}
	return found, err
}

// ownTest runs tests of test/e2e with the machine's own kernel.
func (b *bench) ownTest(ctx context.Context, args []string) (err error) {
	if os.Getuid() != 0 {
		return errors.New("it takes root")
	}
	if b.files == nil {
		if b.files, b.remove, err = kernels.ProjectFiles(ctx, vm.Kernel{}); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, b.files["/usr/bin/e2e.test"], args...)
	cmd.Dir = filepath.Join(b.root, "test", "e2e")
	for name, guest := range kernels.ProjectEnv() {
		if host := b.files[guest]; host != "" {
			guest = host
		}
		cmd.Env = append(cmd.Env, name+"="+guest)
	}
	cmd.Env = append(os.Environ(), cmd.Env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// bootTest runs a test of test/e2e in a VM, and returns the kernel's release.
func bootTest(ctx context.Context, label string, ownTime bool, results string, args []string) (string, error) {
	kernel, err := kernels.Find(label)
	if err != nil {
		return "", err
	}
	files, remove, err := kernels.ProjectFiles(ctx, kernel)
	if err != nil {
		return "", err
	}
	defer remove()
	result, err := vm.Run(ctx, vm.Spec{
		Kernel: kernel, Files: files, Env: kernels.ProjectEnv(), Cmd: append([]string{"/usr/bin/e2e.test"}, args...),
		Stdout: os.Stderr, ResultsDir: results, OwnTime: ownTime, Limit: aBoot, Stage: say,
	})
	if err == nil && result.Status != 0 {
		err = fmt.Errorf("the tests ended with status %d", result.Status)
	}
	return result.Release, err
}
