// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// diskInit is PID 1 of a VM with a disk, until systemd takes its place.
//
//go:embed disk-init.sh
var diskInit string

// diskPackages are what a disk has beside Debian's essential packages.
var diskPackages = []string{"systemd-sysv", "iproute2", "kmod", "procps", "rpm"}

// diskRoom is what is free on a disk.
const diskRoom = "600M"

// NewDisk writes to a file the disk of a Debian with systemd, on which nothing has run yet, for Spec.Disk. stage is
// Spec.Stage.
func NewDisk(ctx context.Context, file string, stage func(string)) error {
	c, unlock, err := lockCache(ctx, stage)
	if err != nil {
		return err
	}
	defer unlock()
	dir, err := c.entry("disk", fmt.Sprintf("1 %q %s", diskPackages, diskRoom), false, func(dir string) error {
		image := filepath.Join(dir, "disk")
		err := c.download(ctx, "building a disk", func() error {
			cmd, err := debootstrap(ctx, dir, hostArch, "ext2", image, []string{rootfsSuite}, diskPackages)
			if err != nil {
				return err
			}
			_, err = output(cmd)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := output(command(ctx, "truncate", "--size=+"+diskRoom, image)); err != nil {
			return err
		}
		_, err = output(command(ctx, "resize2fs", image))
		return err
	})
	if err != nil {
		return err
	}
	_, err = output(command(ctx, "cp", "--sparse=always", filepath.Join(dir, "disk"), file))
	return errors.Join(err, os.Chmod(file, 0o600))
}
