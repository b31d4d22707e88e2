// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/mpcc/mpcc/bpf/kmod"
)

//go:embed debug.config
var debugConfig string

// debugSource is the Debian package with the source of debug kernels.
const debugSource = "linux-source-6.12"

// Folders of a debug kernel in the cache, beside those of other kernels.
const (
	debugTree    = "build"   // the kernel's source, as its build has left it: modules are built against it
	debugModules = "modules" // what the kernel's own folder of modules has: the lists of what is built in
)

// debugKernel is kernel for one that Debian does not have. It takes a quarter of an hour and 5 GB for once.
func (c cache) debugKernel(ctx context.Context, k Kernel, refresh bool) (string, error) {
	recipe := fmt.Sprintf("1 %s %s\n%s", k.Suite, debugSource, debugConfig)
	return c.entry("kernel-"+k.Label, recipe, refresh, func(dir string) error {
		c.say("fetching the source of a debug kernel")
		source := filepath.Join(dir, debugTree)
		if err := fetchTree(ctx, k, dir, source); err != nil {
			return err
		}
		c.say("building a debug kernel")
		config := filepath.Join(source, "mpcc.config")
		if err := os.WriteFile(config, []byte(debugConfig), 0o644); err != nil {
			return err
		}
		if err := makeIn(ctx, source, "KCONFIG_ALLCONFIG="+config, "allnoconfig"); err != nil {
			return err
		}
		if err := checkConfig(filepath.Join(source, ".config")); err != nil {
			return err
		}
		tree := filepath.Join(dir, "tree")
		if err := makeIn(ctx, source, "bzImage", "modules"); err != nil {
			return err
		}
		if err := makeIn(ctx, source, "INSTALL_MOD_PATH="+tree, "modules_install"); err != nil {
			return err
		}
		modules, err := modulesOf(tree)
		if err != nil {
			return err
		}
		boot := filepath.Join(tree, "boot")
		release := filepath.Base(modules)
		if err := errors.Join(
			os.Remove(filepath.Join(modules, "build")), // a link to the source
			os.MkdirAll(boot, 0o755),
			os.CopyFS(filepath.Join(dir, debugModules), os.DirFS(modules)),
			os.Rename(filepath.Join(source, "arch", "x86", "boot", "bzImage"), filepath.Join(boot, "vmlinuz-"+release)),
			os.Link(filepath.Join(source, ".config"), filepath.Join(boot, "config-"+release))); err != nil {
			return err
		}
		return errors.Join(packKernel(ctx, tree, dir), os.RemoveAll(tree))
	})
}

// fetchTree unpacks the kernel's whole source.
func fetchTree(ctx context.Context, k Kernel, dir, source string) error {
	debs, err := Download(ctx, k.Suite, dir, debugSource)
	if err != nil {
		return err
	}
	packed := filepath.Join(dir, "packed")
	if _, err := output(command(ctx, "dpkg-deb", "-x", debs[0], packed)); err != nil {
		return err
	}
	if err := os.Mkdir(source, 0o755); err != nil {
		return err
	}
	archive := filepath.Join(packed, "usr", "src", debugSource+".tar.xz")
	if _, err := output(command(ctx, "tar", "-C", source, "--strip-components=1", "-xJf", archive)); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(packed), os.Remove(debs[0]))
}

// makeIn runs make in a folder on all CPUs. What it says is in the error.
func makeIn(ctx context.Context, dir string, arg ...string) error {
	if _, err := exec.LookPath("make"); err != nil {
		return errors.New("make is not installed: install the packages of internal/vm/debug-packages.txt, which building a kernel takes")
	}
	_, err := output(command(ctx, "make", append([]string{"-s", "-C", dir, "-j" + strconv.Itoa(runtime.NumCPU())}, arg...)...))
	return err
}

// checkConfig returns an error that names what debug.config asks for and the kernel's source does not have so.
func checkConfig(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, line := range strings.Split(string(text), "\n") {
		has[line] = true
	}
	var missing []string
	for _, line := range strings.Split(debugConfig, "\n") {
		if strings.HasPrefix(line, "CONFIG_") && !has[line] {
			missing = append(missing, line)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kernel's configuration lacks %s: an option whose tool is not installed is left out; "+
			"install the packages of internal/vm/debug-packages.txt", strings.Join(missing, ", "))
	}
	return nil
}

// debugModule is module for a debug kernel, whose tree is on the host.
func (c cache) debugModule(ctx context.Context, k Kernel, kdir, release, sum string) (string, error) {
	return c.entry("module-"+k.Label, fmt.Sprintf("2 %s %s", release, sum), false, func(dir string) error {
		c.say("building the packet schedulers' kernel module")
		sources, base := filepath.Join(dir, "sources"), filepath.Join(dir, "base")
		modules := filepath.Join(base, "usr", "lib", "modules", release)
		updates := filepath.Join(modules, "updates", "dkms")
		if err := errors.Join(
			os.CopyFS(sources, kmod.Source()),
			os.CopyFS(modules, os.DirFS(filepath.Join(kdir, debugModules))),
			os.MkdirAll(updates, 0o755),
			os.Symlink("usr/lib", filepath.Join(base, "lib"))); err != nil {
			return err
		}
		if err := makeIn(ctx, filepath.Join(kdir, debugTree), "M="+sources, "modules"); err != nil {
			return err
		}
		const file = "mpcc_sched.ko"
		if err := os.Rename(filepath.Join(sources, file), filepath.Join(updates, file)); err != nil {
			return err
		}
		if _, err := output(command(ctx, "strip", "-g", filepath.Join(updates, file))); err != nil {
			return err
		}
		if _, err := output(command(ctx, "depmod", "-b", base, release)); err != nil {
			return err
		}
		return errors.Join(packModule(dir, release, modules), os.RemoveAll(base), os.RemoveAll(sources))
	})
}
