// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mpcc/mpcc/bpf/kmod"
)

// buildRoot returns the folder with the root.cpio in which bpf/kmod can be built for k: it has the kernel's
// headers, which bring the compiler, and DKMS; and dpkg knows what is installed.
func (c cache) buildRoot(ctx context.Context, k Kernel, kdir string) (string, error) {
	release, err := os.ReadFile(filepath.Join(kdir, "release"))
	if err != nil {
		return "", err
	}
	suites := slices.Compact([]string{rootfsSuite, k.Suite})
	packages := append(slices.Clone(guestPackages), "linux-headers-"+string(release), "make", "dwarves", "dkms")
	dir, err := c.debian(ctx, "build-"+k.Label, k, suites, packages, droppedPaths, false)
	if err != nil {
		return "", fmt.Errorf("%w\nif the headers of Linux %s are gone from Debian, remove %s and run it again: that fetches a newer kernel",
			err, release, kdir)
	}
	return dir, nil
}

// buildModule builds the module, and leaves in /results what it adds to the kernel's folder of modules. It does
// so by plain make: how a user installs the module is a test of its own.
const buildModule = `set -e
cp -r /module /tmp/module
make -C /lib/modules/$(uname -r)/build M=/tmp/module modules
strip -g /tmp/module/mpcc_sched.ko
cd /lib/modules/$(uname -r)
install -D -m 644 -t updates/dkms /tmp/module/mpcc_sched.ko
depmod
cp -r updates modules.*.bin modules.dep modules.alias modules.symbols modules.softdep /results`

// module returns the folder with module.cpio: the module of bpf/kmod for k, at the place where modprobe finds it.
// Call it with the cache locked.
func (c cache) module(ctx context.Context, k Kernel, accel string) (string, error) {
	sum, err := hash(kmod.Source())
	if err != nil {
		return "", err
	}
	kdir, err := c.kernel(ctx, k, false)
	if err != nil {
		return "", err
	}
	release, err := os.ReadFile(filepath.Join(kdir, "release"))
	if err != nil {
		return "", err
	}
	if k.Debug {
		return c.debugModule(ctx, k, kdir, string(release), sum)
	}
	return c.entry("module-"+k.Label, fmt.Sprintf("1 %s %s", release, sum), false, func(dir string) error {
		c.say("building the packet schedulers' kernel module")
		results, sources := filepath.Join(dir, "results"), filepath.Join(dir, "sources")
		if err := errors.Join(os.Mkdir(results, 0o755), os.CopyFS(sources, kmod.Source())); err != nil {
			return err
		}
		var printed bytes.Buffer
		m, remove, err := c.stage(ctx, Spec{
			Kernel: k, Build: true, Files: map[string]string{"/module": sources},
			Cmd: []string{"sh", "-c", buildModule}, Stdout: &printed, ResultsDir: results,
		})
		if err != nil {
			return err
		}
		defer remove()
		result, err := m.run(ctx, accel)
		if err != nil {
			return err
		}
		if result.Status != 0 {
			return fmt.Errorf("building bpf/kmod ended with status %d:\n%s", result.Status, printed.Bytes())
		}
		return errors.Join(packModule(dir, string(release), results), os.RemoveAll(results), os.RemoveAll(sources))
	})
}

// packModule writes module.cpio: what is in the folder added, as part of the kernel's folder of modules.
func packModule(dir, release, added string) error {
	f, err := os.Create(filepath.Join(dir, "module.cpio"))
	if err != nil {
		return err
	}
	defer f.Close()
	archive := newCpioWriter(f)
	return errors.Join(archive.host("usr/lib/modules/"+release, added), archive.close(), f.Close())
}

// hash returns a hash of the names and contents of a folder's files.
func hash(folder fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(folder, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, file)
		fmt.Fprintf(sum, "/%s %d\n%s", file, len(text), text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}
