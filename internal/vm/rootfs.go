// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const rootfsSuite = "trixie"

// guestPackages are what the guest has beside Debian's essential packages.
var guestPackages = []string{
	"iproute2", "nftables", "ethtool", "iputils-ping", "tcpdump",
	"iperf3", "curl", "nginx", "mptcpize", "kmod", "procps", "bpftool",
}

// droppedPaths are of no use in the guest; boot time grows with every megabyte.
var droppedPaths = []string{
	"dev", "boot",
	"usr/share/bash-completion", "usr/share/common-licenses", "usr/share/doc", "usr/share/info",
	"usr/share/lintian", "usr/share/locale", "usr/share/man", "usr/share/perl5", "usr/share/zoneinfo",
	"usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/perl-base",
	"usr/lib/apt", "var/cache", "var/lib/apt", "var/lib/dpkg",
}

// rootfs returns the folder with the root.cpio of every guest that builds nothing.
func (c cache) rootfs(ctx context.Context, refresh bool) (string, error) {
	return c.debian(ctx, "rootfs", []string{rootfsSuite}, guestPackages, refresh)
}

// debian returns the folder with a root.cpio: a Debian with these packages, which may come from several suites.
func (c cache) debian(ctx context.Context, name string, suites, packages []string, refresh bool) (string, error) {
	recipe := fmt.Sprintf("2 %q %q %q", suites, packages, droppedPaths)
	return c.entry(name, recipe, refresh, func(dir string) error {
		c.say("building the root file system")
		debootstrap := []string{"mmdebstrap", "--quiet", "--variant=minbase", "--architectures=amd64", "--format=tar",
			"--include=" + strings.Join(packages, ","), rootfsSuite, "-"}
		for _, suite := range suites {
			source, err := debianSource(ctx, suite)
			if err != nil {
				return err
			}
			debootstrap = append(debootstrap, source)
		}
		if os.Geteuid() == 0 {
			// As root it mounts the host's /dev, /proc and /sys in its folder. If it is
			// killed they must not stay mounted: the folder will be removed, and with it
			// what is mounted there.
			debootstrap = append([]string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}, debootstrap...)
		}
		cmd := command(ctx, debootstrap[0], debootstrap[1:]...)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		f, err := os.Create(filepath.Join(dir, "root.cpio"))
		if err != nil {
			return err
		}
		defer f.Close()
		w := bufio.NewWriterSize(f, 1<<20)
		archive := newCpioWriter(w)
		err = stream(cmd, func(r io.Reader) error { return archive.tar(r, wanted) })
		if err != nil {
			return err
		}
		return errors.Join(archive.close(), w.Flush(), f.Close())
	})
}

// wanted says whether the guest gets a file of the Debian tree.
func wanted(name string) bool {
	for _, d := range droppedPaths {
		if name == d || strings.HasPrefix(name, d+"/") {
			return false
		}
	}
	return true
}
