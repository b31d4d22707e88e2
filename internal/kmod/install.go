// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	module "github.com/mpcc/mpcc/bpf/kmod"
)

// install builds the module and puts it where modprobe finds it. It removes first what another version, or an
// install that was killed, has left.
func (c *change) install(ctx context.Context, h host, progress func(string)) error {
	if err := h.checkBuild(); err != nil {
		return err
	}
	if err := c.uninstall(ctx); err != nil {
		return err
	}
	if _, err := exec.LookPath("dkms"); err == nil {
		progress(fmt.Sprintf("building %s for Linux %s with DKMS", Name, h.release))
		return c.installDKMS(ctx, h.release)
	}
	progress(fmt.Sprintf("building %s for Linux %s", Name, h.release))
	return c.installDirectly(ctx, h.release)
}

func (c *change) installDKMS(ctx context.Context, release string) error {
	version := module.Version()
	if err := writeSources(sources+version, version); err != nil {
		return err
	}
	err := c.run(ctx, "dkms", "install", pkg+"/"+version, "-k", release, "--force")
	if err == nil {
		return nil
	}
	if log, readErr := os.ReadFile(path.Join(dkmsTree, version, "build/make.log")); readErr == nil {
		err = fmt.Errorf("%w\n%s", err, tail(string(log), 20))
	}
	return err
}

func (c *change) installDirectly(ctx context.Context, release string) error {
	defer os.RemoveAll(workspace)
	if err := writeSources(workspace, module.Version()); err != nil {
		return err
	}
	modules := path.Join("/lib/modules", release)
	built := path.Join(workspace, Name+".ko")
	steps := [][]string{
		{"make", "-C", path.Join(modules, "build"), "M=" + workspace, "modules"},
		{"strip", "-g", built},
		{"install", "-D", "-m", "644", built, path.Join(modules, object)},
		{"depmod", release},
	}
	for _, step := range steps {
		if err := c.run(ctx, step[0], step[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// writeSources writes the module's sources into a folder.
func writeSources(dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return fs.WalkDir(module.Source(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(module.Source(), name)
		if err != nil {
			return err
		}
		filled := strings.ReplaceAll(string(text), "#MODULE_VERSION#", version)
		return os.WriteFile(path.Join(dir, name), []byte(filled), 0o644)
	})
}

// uninstall removes every version, for every kernel, whole or not.
func (c *change) uninstall(ctx context.Context) error {
	versions, err := filepath.Glob(dkmsTree + "/*/source")
	if err != nil {
		return err
	}
	for _, v := range versions {
		if err := c.run(ctx, "dkms", "remove", pkg+"/"+path.Base(path.Dir(v)), "--all"); err != nil {
			return err
		}
	}
	direct, err := filepath.Glob("/lib/modules/*/" + object)
	if err != nil {
		return err
	}
	for _, ko := range direct {
		if err := os.Remove(ko); err != nil {
			return err
		}
		if err := c.run(ctx, "depmod", strings.Split(ko, "/")[3]); err != nil {
			return err
		}
	}
	left, err := filepath.Glob(sources + "*")
	if err != nil {
		return err
	}
	for _, dir := range append(left, dkmsTree, workspace) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}
