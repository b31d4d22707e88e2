// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/internal/vm"
)

// prometheusPrograms are Debian packages, each with the program of its name.
var prometheusPrograms = []string{"prometheus", "promtool"}

// prometheus returns Debian's prometheus and promtool, for Spec.Files. They are not in the root file system of
// every VM because they have 180 MB.
func prometheus(ctx context.Context) (map[string]string, error) {
	root, err := clone()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, ".cache", "vm", "prometheus")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	lock, err := lockfile.Take(ctx, dir+".lock")
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Unlock() }()
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := fetchPrometheus(ctx, dir); err != nil {
			return nil, err
		}
	}
	files := map[string]string{}
	for _, program := range prometheusPrograms {
		files["/usr/bin/"+program] = filepath.Join(dir, program)
	}
	return files, nil
}

// fetchPrometheus makes the folder with the programs. It is whole, or not there.
func fetchPrometheus(ctx context.Context, dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "prometheus-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	debs, err := vm.Download(ctx, "trixie", tmp, prometheusPrograms...)
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, filepath.Join(tmp, "tree")).CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg-deb: %w: %s", err, out)
		}
	}
	return os.Rename(filepath.Join(tmp, "tree", "usr", "bin"), dir)
}
