// SPDX-License-Identifier: Apache-2.0

// Package kernels runs test/e2e in VMs with stock kernels. README.md tells how.
package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/mpcc/mpcc/internal/vm"
)

// Where the guest has the project's files.
const (
	GuestBin      = "/usr/bin/mpcc"
	GuestTests    = "/usr/bin/e2e.test"
	GuestTestdata = "/testdata"
	GuestDeploy   = "/deploy"
)

// ProjectEnv tells the command where the project's files are.
func ProjectEnv() map[string]string {
	return map[string]string{"MPCC_BIN": GuestBin, "MPCC_TESTDATA": GuestTestdata, "MPCC_DEPLOY": GuestDeploy}
}

// ProjectFiles builds mpcc and the end-to-end tests, and returns them and the
// folders testdata and deploy for Spec.Files. Call remove when they are no longer needed.
func ProjectFiles(ctx context.Context) (files map[string]string, remove func(), err error) {
	root, err := vm.Clone()
	if err != nil {
		return nil, nil, err
	}
	if root == "" {
		return nil, nil, errors.New("no clone of mpcc here or above: run this inside one")
	}
	dir, remove, err := vm.Scratch()
	if err != nil {
		return nil, nil, err
	}
	files = map[string]string{
		GuestBin:      filepath.Join(dir, "mpcc"),
		GuestTests:    filepath.Join(dir, "e2e.test"),
		GuestTestdata: filepath.Join(root, "testdata"),
		GuestDeploy:   filepath.Join(root, "deploy"),
	}
	build := func(arg ...string) error {
		cmd := exec.CommandContext(ctx, "go", arg...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", arg[0], err, out)
		}
		return nil
	}
	err = errors.Join(
		build("build", "-o", files[GuestBin], "./cmd/mpcc"),
		build("test", "-c", "-tags", "e2e", "-o", files[GuestTests], "./test/e2e"))
	if err != nil {
		remove()
		return nil, nil, err
	}
	return files, remove, nil
}
