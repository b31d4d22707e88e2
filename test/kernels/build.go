// SPDX-License-Identifier: Apache-2.0

// Package kernels runs test/e2e in VMs with stock kernels. README.md says how.
package kernels

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/mpcc/mpcc/internal/vm"
)

// Where the guest has the project's files.
const (
	guestBin      = "/usr/bin/mpcc"
	guestTests    = "/usr/bin/e2e.test"
	guestTestdata = "/testdata"
	guestDeploy   = "/deploy"
	guestPages    = "/pages"
)

// ProjectEnv returns the environment that tells a command in the guest where the project's files are.
func ProjectEnv() map[string]string {
	return map[string]string{"MPCC_BIN": guestBin, "MPCC_TESTDATA": guestTestdata, "MPCC_DEPLOY": guestDeploy, "MPCC_PAGES": guestPages}
}

// ProjectFiles builds mpcc and the end-to-end tests for a kernel's processor, and returns them, with the
// folders testdata and deploy, for Spec.Files. remove removes what was built.
func ProjectFiles(ctx context.Context, k vm.Kernel) (files map[string]string, remove func(), err error) {
	root, err := clone()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "mpcc-e2e-*")
	if err != nil {
		return nil, nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	files = map[string]string{
		guestBin:      filepath.Join(dir, "mpcc"),
		guestTests:    filepath.Join(dir, "e2e.test"),
		guestTestdata: filepath.Join(root, "testdata"),
		guestDeploy:   filepath.Join(root, "deploy"),
	}
	for _, pattern := range []string{"README.md", "docs/*.md", "deploy/README.md", "bpf/include"} {
		names, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			files[path.Join(guestPages, name)] = filepath.Join(root, name)
		}
	}
	build := func(arg ...string) error {
		cmd := exec.CommandContext(ctx, "go", arg...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+k.GOARCH())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", arg[0], err, out)
		}
		return nil
	}
	err = errors.Join(
		build("build", "-o", files[guestBin], "./cmd/mpcc"),
		build("test", "-c", "-tags", "e2e", "-o", files[guestTests], "./test/e2e"))
	if err != nil {
		remove()
		return nil, nil, err
	}
	return files, remove, nil
}

// clone returns the root of the clone of mpcc that this runs in.
func clone() (string, error) {
	root, err := vm.Clone()
	if err == nil && root == "" {
		err = errors.New("no clone of mpcc here or above: run this inside one")
	}
	return root, err
}
