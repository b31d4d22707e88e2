// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Kernel is a stock Debian kernel: the newest version that a suite has.
type Kernel struct {
	Label    string // what users call it
	Suite    string // of Debian
	Flavour  string // of the packages, cloud by default
	Arch     string // the processor in Debian's words, amd64 by default; QEMU emulates others
	NoModule bool   // its VMs go without the module in bpf/kmod
	Debug    bool   // none of Debian's: built here from Debian's source, as debug.config says
}

// kernels are those that mpcc runs on.
var kernels = []Kernel{
	{Label: "6.12", Suite: "trixie"},
	{Label: "7.x", Suite: "trixie-backports"},
}

// metapackage depends on the packages of the newest version.
func (k Kernel) metapackage() string {
	return "linux-image-" + cmp.Or(k.Flavour, "cloud") + "-" + k.GOARCH()
}

// keptModules are the folders of modules that go into the VM, below kernel/.
var keptModules = []string{
	"arch", "crypto", "lib", "net", "drivers/net", "drivers/char", "drivers/virtio",
	"drivers/block", "fs/ext4", "fs/jbd2", "fs/mbcache.ko.xz", // for a disk
}

// droppedModules are exceptions to keptModules.
var droppedModules = []string{"drivers/net/ethernet", "drivers/net/wireless", "drivers/net/wwan", "drivers/net/xen-netback", "drivers/net/vmxnet3"}

// neededModules have to come with a kernel, as modules or built in.
var neededModules = []string{
	"sch_netem", "sch_tbf", "sch_htb", "sch_red", "sch_fq", "sch_codel", "sch_fq_codel", "sch_pie", "sch_ingress",
	"cls_u32", "cls_flower", "cls_bpf", "act_mirred",
	"veth", "ifb", "dummy", "tun", "virtio_console",
	"tcp_bbr", "tcp_dctcp", "inet_diag", "tcp_diag", "mptcp_diag",
}

// Labels returns the labels of the kernels that mpcc runs on, the one that most people have first.
func Labels() []string {
	var labels []string
	for _, k := range kernels {
		labels = append(labels, k.Label)
	}
	return labels
}

// Find returns the kernel of a label; the error names all labels.
func Find(label string) (Kernel, error) {
	for _, k := range kernels {
		if k.Label == label {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("no kernel called %q: choose from %s", label, strings.Join(Labels(), ", "))
}

// Fetch downloads the newest version of a kernel and rebuilds the root file
// system, whatever the cache has. stage is Spec.Stage. Run fetches by itself what
// is missing.
func Fetch(ctx context.Context, k Kernel, stage func(string)) error {
	c, unlock, err := lockCache(ctx, stage)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := c.rootfs(ctx, k, true); err != nil {
		return err
	}
	_, err = c.kernel(ctx, k, true)
	return err
}

// kernel returns the folder with vmlinuz, modules.cpio and release (as uname -r) of k.
func (c cache) kernel(ctx context.Context, k Kernel, refresh bool) (string, error) {
	if k.Debug {
		return c.debugKernel(ctx, k, refresh)
	}
	recipe := fmt.Sprintf("2 %s %s %q %q %q", k.Suite, k.metapackage(), keptModules, droppedModules, neededModules)
	return c.entry("kernel-"+k.Label, recipe, refresh, func(dir string) error {
		c.say("fetching kernel " + k.Label)
		tree := filepath.Join(dir, "tree")
		if err := fetchKernel(ctx, k, dir, tree); err != nil {
			return err
		}
		if err := packKernel(ctx, tree, dir); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
}

// fetchKernel downloads k's packages to dir, and unpacks them into the folder tree.
func fetchKernel(ctx context.Context, k Kernel, dir, tree string) error {
	a, err := newApt(ctx, k.Suite, k.GOARCH(), dir)
	if err != nil {
		return err
	}
	names, err := kernelPackages(k.metapackage(), func(names ...string) (string, error) {
		return a.run(ctx, "apt-cache", append([]string{"show"}, names...)...)
	})
	if err != nil {
		return err
	}
	debs, err := a.download(ctx, names...)
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if _, err := output(command(ctx, "dpkg-deb", "-x", deb, tree)); err != nil {
			return err
		}
		if err := os.Remove(deb); err != nil {
			return err
		}
	}
	return nil
}

// kernelPackages follows a metapackage to the packages that have the kernel: one
// with image and modules, or several. show returns what `apt-cache show` prints
// of packages.
func kernelPackages(meta string, show func(...string) (string, error)) ([]string, error) {
	found := map[string]bool{}
	for next := []string{meta}; len(next) > 0; {
		text, err := show(next...)
		if err != nil {
			return nil, err
		}
		next = nil
		for _, p := range kernelDepends(text) {
			if !found[p] {
				found[p] = true
				next = append(next, p)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s names no kernel package that it depends on", meta)
	}
	var names []string
	for p := range found {
		names = append(names, p)
	}
	slices.Sort(names)
	return names, nil
}

// kernelPackage matches a package of one version of a kernel; metapackages have no
// version in their names.
var kernelPackage = regexp.MustCompile(`^linux-(image|binary|modules|base)-[0-9]\S*$`)

// kernelDepends returns the kernel packages in the Depends fields of `apt-cache show`.
func kernelDepends(text string) []string {
	var names []string
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		list, ok := strings.CutPrefix(lines.Text(), "Depends:")
		if !ok {
			continue
		}
		for _, dep := range strings.Split(list, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(dep), " ")
			if kernelPackage.MatchString(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// packKernel makes vmlinuz, modules.cpio and release of an unpacked kernel.
func packKernel(ctx context.Context, tree, dir string) error {
	modules, err := modulesOf(tree)
	if err != nil {
		return err
	}
	release := filepath.Base(modules)
	image, err := firstOf(filepath.Join(modules, "vmlinuz"), filepath.Join(tree, "boot", "vmlinuz-"+release))
	if err != nil {
		return err
	}
	if err := os.Rename(image, filepath.Join(dir, "vmlinuz")); err != nil {
		return err
	}
	config, err := firstOf(filepath.Join(modules, "config"), filepath.Join(tree, "boot", "config-"+release))
	if err != nil {
		return err
	}

	// depmod looks in lib or in usr/lib, wherever modules are on its own system.
	base := filepath.Join(dir, "base")
	kept := filepath.Join(base, "usr", "lib", "modules", release)
	if err := errors.Join(os.MkdirAll(kept, 0o755), os.Symlink("usr/lib", filepath.Join(base, "lib"))); err != nil {
		return err
	}
	if err := keepModules(modules, kept); err != nil {
		return err
	}
	if _, err := output(command(ctx, "depmod", "-b", base, release)); err != nil {
		return err
	}

	f, err := os.Create(filepath.Join(dir, "modules.cpio"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	archive := newCpioWriter(w)
	return errors.Join(
		archive.host("usr/lib/modules/"+release, kept),
		archive.host("boot/config-"+release, config),
		archive.close(), w.Flush(), f.Close(),
		os.WriteFile(filepath.Join(dir, "release"), []byte(release), 0o644),
		os.RemoveAll(base))
}

// modulesOf returns the folder of modules of an unpacked kernel, which is named after its release.
func modulesOf(tree string) (string, error) {
	// Debian 12 still has modules in /lib.
	var found []string
	for _, pattern := range []string{"usr/lib/modules/*", "lib/modules/*"} {
		m, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return "", err
		}
		found = append(found, m...)
	}
	if len(found) != 1 {
		return "", fmt.Errorf("the packages hold %d folders of modules instead of one", len(found))
	}
	return found[0], nil
}

// keepModules moves the modules that the guest gets from one folder to another.
func keepModules(modules, kept string) error {
	for _, folder := range keptModules {
		to := filepath.Join(kept, "kernel", folder)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		err := os.Rename(filepath.Join(modules, "kernel", folder), to)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // what is in there may be built in
			return err
		}
	}
	for _, folder := range droppedModules {
		if err := os.RemoveAll(filepath.Join(kept, "kernel", folder)); err != nil {
			return err
		}
	}
	for _, list := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		if err := os.Rename(filepath.Join(modules, list), filepath.Join(kept, list)); err != nil {
			return err
		}
	}
	missing, err := missingModules(kept)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("kernel %s has no %s", filepath.Base(modules), strings.Join(missing, ", "))
	}
	return err
}

// firstOf returns the first of the files that exists.
func firstOf(files ...string) (string, error) {
	for _, f := range files {
		if _, err := os.Stat(f); err == nil {
			return f, nil
		}
	}
	return "", fmt.Errorf("none of these files is there: %s", strings.Join(files, ", "))
}

// missingModules returns the needed modules that are neither in the folder nor built in.
func missingModules(dir string) ([]string, error) {
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	note := func(file string) {
		name, _, _ := strings.Cut(filepath.Base(file), ".ko")
		have[strings.ReplaceAll(name, "-", "_")] = true
	}
	for _, file := range strings.Fields(string(builtin)) {
		note(file)
	}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".ko") {
			note(file)
		}
		return err
	})
	var missing []string
	for _, m := range neededModules {
		if !have[m] {
			missing = append(missing, m)
		}
	}
	return missing, err
}
