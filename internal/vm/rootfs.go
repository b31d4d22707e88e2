// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"usr/lib/TRIPLET/gconv", "usr/lib/TRIPLET/perl-base",
	"usr/lib/apt", "var/cache", "var/lib/apt",
}

// rootfs returns the folder with the root.cpio of every guest that builds nothing and has k's processor.
func (c cache) rootfs(ctx context.Context, k Kernel, refresh bool) (string, error) {
	name := "rootfs"
	if k.GOARCH() != hostArch {
		name += "-" + k.GOARCH()
	}
	return c.debian(ctx, name, k, []string{rootfsSuite}, guestPackages, append(slices.Clone(droppedPaths), "var/lib/dpkg"), refresh)
}

// debian returns the folder with a root.cpio: a Debian for k's processor with these packages, which may come from
// several suites, without the paths dropped.
func (c cache) debian(ctx context.Context, name string, k Kernel, suites, packages, dropped []string, refresh bool) (string, error) {
	dropped = slices.Clone(dropped)
	for i := range dropped {
		dropped[i] = strings.Replace(dropped[i], "TRIPLET", k.processor().triplet, 1)
	}
	recipe := fmt.Sprintf("2 %q %q %q", suites, packages, dropped)
	return c.entry(name, recipe, refresh, func(dir string) error {
		return c.download(ctx, "building the root file system", func() error {
			return writeDebian(ctx, dir, k.GOARCH(), suites, packages, dropped)
		})
	})
}

// download says what is being built, and builds it; up to three times, since a mirror may fail for a moment.
func (c cache) download(ctx context.Context, what string, build func() error) error {
	for try := 1; ; try++ {
		c.say(what)
		err := build()
		if err == nil || ctx.Err() != nil || try == 3 {
			return err
		}
		c.say(fmt.Sprintf("%s has failed: %v", what, err))
	}
}

// writeDebian writes root.cpio.
func writeDebian(ctx context.Context, dir, arch string, suites, packages, dropped []string) error {
	cmd, err := debootstrap(ctx, dir, arch, "tar", "-", suites, packages)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "root.cpio"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	archive := newCpioWriter(w)
	err = stream(cmd, func(r io.Reader) error {
		return archive.tar(r, func(name string) bool { return !within(name, dropped) })
	})
	if err != nil {
		return err
	}
	return errors.Join(archive.close(), w.Flush(), f.Close())
}

// debootstrap is the command that writes a Debian of the first suite, with packages that may come from all, to a target
// in a format of mmdebstrap's. For another processor than the host's they are unpacked only, as their scripts cannot run.
func debootstrap(ctx context.Context, dir, arch, format, target string, suites, packages []string) (*exec.Cmd, error) {
	variant := []string{"--variant=minbase"}
	if arch != hostArch {
		variant = []string{"--variant=extract", "--include=?essential", "--include=?priority(required)",
			`--extract-hook=ln -s mawk "$1/usr/bin/awk"`} // by a script elsewhere
	}
	args := slices.Concat([]string{"mmdebstrap", "--quiet"}, variant, []string{"--architectures=" + arch, "--format=" + format,
		"--include=" + strings.Join(packages, ","), suites[0], target})
	for _, suite := range suites {
		source, err := debianSource(ctx, suite)
		if err != nil {
			return nil, err
		}
		args = append(args, source)
	}
	if os.Geteuid() == 0 {
		// As root it mounts the host's /dev, /proc and /sys in its folder. If it is
		// killed they must not stay mounted: the folder will be removed, and with it
		// what is mounted there.
		args = append([]string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}, args...)
	}
	cmd := command(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	// mmdebstrap sends SIGHUP to its process group when writing the archive fails. In the process group of the tests SIGHUP
	// would end the tests, and the go, make and shell processes that have started the tests.
	cmd.SysProcAttr.Setpgid = true
	return cmd, nil
}

// within says whether a file is one of some folders, or in one.
func within(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return name == folder || strings.HasPrefix(name, folder+"/")
	})
}
