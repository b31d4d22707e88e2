// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
	root, err := RepoRoot()
	if err != nil {
		return nil, nil, err
	}
	c, err := openCache()
	if err != nil {
		return nil, nil, err
	}
	unlock, err := c.lock()
	if err != nil {
		return nil, nil, err
	}
	dir, remove, err := c.scratch()
	unlock()
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
		cmd := command(ctx, "go", arg...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		_, err := output(cmd)
		return err
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
