// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
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

// kernel is a stock Debian kernel, named by a label and found through its
// metapackage, so that the version follows the distribution.
type kernel struct {
	label string
	suite string
	meta  string
	old   bool // too old for mpcc: what it says then is tested
}

var kernels = []kernel{
	{"6.12", "trixie", "linux-image-cloud-amd64", false},
	{"7.x", "trixie-backports", "linux-image-cloud-amd64", false},
	{"6.1", "bookworm", "linux-image-cloud-amd64", true},
}

// keptModules are the folders of modules that go into the VM, below kernel/.
var keptModules = []string{"arch", "crypto", "lib", "net", "drivers/net", "drivers/char", "drivers/virtio"}

// droppedModules are exceptions to keptModules.
var droppedModules = []string{"drivers/net/ethernet", "drivers/net/wwan", "drivers/net/xen-netback", "drivers/net/vmxnet3"}

// neededModules must come with a kernel, as a module or built in.
var neededModules = []string{
	"sch_netem", "sch_tbf", "sch_htb", "sch_red", "sch_fq", "sch_fq_codel", "sch_ingress",
	"cls_u32", "cls_flower", "cls_bpf", "act_mirred",
	"veth", "ifb", "dummy", "tun", "virtio_console",
	"tcp_bbr", "tcp_dctcp", "inet_diag", "tcp_diag", "mptcp_diag",
}

// Labels names the kernels that a Spec can ask for.
func Labels() []string {
	var labels []string
	for _, k := range kernels {
		labels = append(labels, k.label)
	}
	return labels
}

// TooOld tells the kernels that mpcc does not run on from the others.
func TooOld(label string) bool {
	k, err := findKernel(label)
	return err == nil && k.old
}

func findKernel(label string) (kernel, error) {
	for _, k := range kernels {
		if k.label == label {
			return k, nil
		}
	}
	return kernel{}, fmt.Errorf("no kernel called %q: choose from %s", label, strings.Join(Labels(), ", "))
}

// Fetch downloads the newest kernel of a label and rebuilds the root file
// system, whatever the cache holds. Run fetches what is missing by itself.
func Fetch(ctx context.Context, label string) error {
	k, err := findKernel(label)
	if err != nil {
		return err
	}
	c, err := openCache()
	if err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := c.rootfs(ctx, true); err != nil {
		return err
	}
	_, err = c.kernel(ctx, k, true)
	return err
}

// kernel returns the folder with vmlinuz, modules.cpio and release (as uname -r) of k.
func (c cache) kernel(ctx context.Context, k kernel, refresh bool) (string, error) {
	recipe := fmt.Sprintf("2 %s %s %q %q %q", k.suite, k.meta, keptModules, droppedModules, neededModules)
	return c.entry("kernel-"+k.label, recipe, refresh, func(dir string) error {
		debs, err := c.download(ctx, k.suite, dir, func(show func(...string) (string, error)) ([]string, error) {
			return kernelPackages(k.meta, show)
		})
		if err != nil {
			return err
		}
		tree := filepath.Join(dir, "tree")
		if err := unpackDebs(ctx, debs, tree); err != nil {
			return err
		}
		if err := packKernel(ctx, tree, dir); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
}

// kernelPackages follows a metapackage to the packages that hold the kernel:
// one with an image and modules, or one each. show returns what
// `apt-cache show` prints for the named packages.
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

// kernelPackage matches a package that carries one version of a kernel; the
// metapackages have no version in their names.
var kernelPackage = regexp.MustCompile(`^linux-(image|binary|modules|base)-[0-9]\S*$`)

// kernelDepends lists the kernel packages in the Depends fields of `apt-cache show`.
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

// packKernel takes vmlinuz and the kept modules out of an unpacked kernel.
func packKernel(ctx context.Context, tree, dir string) error {
	// Bookworm still has modules in /lib.
	var found []string
	for _, pattern := range []string{"usr/lib/modules/*", "lib/modules/*"} {
		m, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return err
		}
		found = append(found, m...)
	}
	if len(found) != 1 {
		return fmt.Errorf("the packages hold %d folders of modules instead of one", len(found))
	}
	modules := found[0]
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

	// depmod looks in lib or in usr/lib, as its own system has it.
	base := filepath.Join(dir, "base")
	kept := filepath.Join(base, "usr", "lib", "modules", release)
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	if err := os.Symlink("usr/lib", filepath.Join(base, "lib")); err != nil {
		return err
	}
	for _, folder := range keptModules {
		to := filepath.Join(kept, "kernel", folder)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		err := os.Rename(filepath.Join(modules, "kernel", folder), to)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // all of it may be built in
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
	if missing, err := missingModules(kept); err != nil {
		return err
	} else if len(missing) > 0 {
		return fmt.Errorf("kernel %s has no %s", release, strings.Join(missing, ", "))
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
	if err := errors.Join(
		archive.host("usr/lib/modules/"+release, kept),
		archive.host("boot/config-"+release, config),
		archive.close(), w.Flush(), f.Close()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "release"), []byte(release), 0o644); err != nil {
		return err
	}
	return os.RemoveAll(base)
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

// missingModules lists the needed modules that are neither in the folder nor built in.
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

// download fetches packages of a Debian suite into dir, with an apt
// configuration of its own so that the machine's stays as it is. choose names
// the packages; it is given `apt-cache show`.
func (c cache) download(ctx context.Context, suite, dir string, choose func(show func(...string) (string, error)) ([]string, error)) ([]string, error) {
	source, err := debianSource(ctx, suite)
	if err != nil {
		return nil, err
	}
	apt := filepath.Join(dir, "apt")
	defer os.RemoveAll(apt)
	if err := os.MkdirAll(filepath.Join(apt, "lists", "partial"), 0o755); err != nil {
		return nil, err
	}
	for file, text := range map[string]string{"sources.list": source + "\n", "status": ""} {
		if err := os.WriteFile(filepath.Join(apt, file), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	run := func(program string, arg ...string) (string, error) {
		cmd := command(ctx, program, append([]string{
			"-q",
			"-o", "Dir::Etc::SourceList=" + filepath.Join(apt, "sources.list"),
			"-o", "Dir::Etc::SourceParts=/dev/null",
			"-o", "Dir::State::Lists=" + filepath.Join(apt, "lists"),
			"-o", "Dir::State::Status=" + filepath.Join(apt, "status"),
			"-o", "Dir::Cache=" + apt,
			"-o", "APT::Architecture=amd64",
			"-o", "APT::Sandbox::User=", // the folder may be closed to the _apt user
			"-o", "APT::Update::Error-Mode=any", // no silent fallback on a failed download
		}, arg...)...)
		cmd.Dir = dir
		return output(cmd)
	}
	if _, err := run("apt-get", "update"); err != nil {
		return nil, err
	}
	names, err := choose(func(names ...string) (string, error) {
		return run("apt-cache", append([]string{"show"}, names...)...)
	})
	if err != nil {
		return nil, err
	}
	if _, err := run("apt-get", append([]string{"download"}, names...)...); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, "*.deb"))
}

// unpackDebs unpacks packages into a folder, and removes them.
func unpackDebs(ctx context.Context, debs []string, tree string) error {
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

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// debianSource is the line of sources.list for a suite, from the mirror that
// this machine uses.
func debianSource(ctx context.Context, suite string) (string, error) {
	if _, err := os.Stat(keyring); err != nil {
		return "", fmt.Errorf("%w, on Debian: apt install %s", err, packages())
	}
	mirror := os.Getenv("MPCC_DEBIAN_MIRROR")
	if mirror == "" {
		sites, err := output(command(ctx, "apt-get", "indextargets",
			"--format", "$(SITE)", "Created-By: Packages", "Label: Debian"))
		if err != nil {
			return "", err
		}
		mirror, _, _ = strings.Cut(sites, "\n")
	}
	if mirror == "" {
		return "", errors.New("apt knows no Debian mirror here: set MPCC_DEBIAN_MIRROR to the URL of one")
	}
	return fmt.Sprintf("deb [signed-by=%s] %s %s main", keyring, mirror, suite), nil
}
