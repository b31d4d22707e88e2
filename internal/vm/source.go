// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// sourceVersion is the file of Source's folder with the version of the Debian package.
const sourceVersion = "version"

// Source returns a folder with parts of a kernel's source, at their paths in its tree, and with its headers for user
// space in usr/include; and the version of the Debian package that they are from. stage is Spec.Stage.
func Source(ctx context.Context, k Kernel, stage func(string), parts ...string) (dir, version string, err error) {
	c, unlock, err := lockCache(ctx, stage)
	if err != nil {
		return "", "", err
	}
	defer unlock()
	kdir, err := c.kernel(ctx, k, false)
	if err != nil {
		return "", "", err
	}
	release, err := os.ReadFile(filepath.Join(kdir, "release"))
	if err != nil {
		return "", "", err
	}
	name, err := sourcePackage(string(release))
	if err != nil {
		return "", "", err
	}
	dir, err = c.entry("source-"+k.Label, fmt.Sprintf("1 %s %q", release, parts), false, func(dir string) error {
		c.say("fetching the source of kernel " + k.Label)
		return fetchSource(ctx, k, name, dir, parts)
	})
	if err != nil {
		return "", "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, sourceVersion))
	return dir, string(text), err
}

// sourcePackage returns the Debian package with the source of a kernel release: linux-source-6.12 for
// 6.12.9+deb13-cloud-amd64.
func sourcePackage(release string) (string, error) {
	var major, minor uint
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("kernel release %q does not begin with two numbers", release)
	}
	return fmt.Sprintf("linux-source-%d.%d", major, minor), nil
}

// fetchSource unpacks parts of the source in the package called name, and the headers for user space, into dir.
func fetchSource(ctx context.Context, k Kernel, name, dir string, parts []string) error {
	const headers = "linux-libc-dev"
	a, err := newApt(ctx, k.Suite, k.GOARCH(), dir)
	if err != nil {
		return err
	}
	debs, err := a.download(ctx, name, headers)
	if err != nil {
		return err
	}
	packed := filepath.Join(dir, "packed")
	for _, deb := range debs {
		to := packed
		if strings.HasPrefix(filepath.Base(deb), headers+"_") {
			to = dir
		} else if _, version, _ := strings.Cut(filepath.Base(deb), "_"); version != "" {
			version, _, _ = strings.Cut(version, "_")
			if err := os.WriteFile(filepath.Join(dir, sourceVersion), []byte(version), 0o644); err != nil {
				return err
			}
		}
		if _, err := output(command(ctx, "dpkg-deb", "-x", deb, to)); err != nil {
			return err
		}
		if err := os.Remove(deb); err != nil {
			return err
		}
	}
	args := []string{"-C", dir, "--strip-components=1", "-xJf", filepath.Join(packed, "usr", "src", name+".tar.xz")}
	for _, part := range parts {
		args = append(args, path.Join(name, part))
	}
	_, err = output(command(ctx, "tar", args...))
	return errors.Join(err, os.RemoveAll(packed))
}
