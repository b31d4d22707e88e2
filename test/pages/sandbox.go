// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/cgroups"
	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// The test program is also what runs in the sandbox, by these names.
var commands = map[string]func(args []string) error{"sandbox": sandbox, "serve": serve, "traffic": traffic}

func init() {
	command, ok := commands[filepath.Base(os.Args[0])]
	if !ok {
		return
	}
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The cgroup that is the sandbox's root of cgroups.
const cgroup = "mpcc-pages"

// The process that makes the sandbox has namespaces of its own already. sandbox PREFIX DIR NETWORK gives it folders,
// pins, cgroups and a network of its own, and becomes the shell of the sessions. All of it ends with that shell; what
// stays is the congestion controls that running sockets have, for as long as they have them, and an empty cgroup.
func sandbox(args []string) error {
	prefix, dir := args[0], args[1]
	network, err := parseNetwork(args[2])
	if err != nil {
		return err
	}
	// This thread becomes the shell: the network namespace is the thread's.
	runtime.LockOSThread()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	root, err := cgroups.Find("/")
	if err != nil {
		return err
	}
	own := filepath.Join(root.Dir, cgroup)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	settings := filepath.Join(dir, "etc")
	if out, err := exec.Command("cp", "-a", "/etc", settings).CombinedOutput(); err != nil {
		return fmt.Errorf("copy /etc: %s", out)
	}
	mount := func(source, target, kind string, flags uintptr) {
		if err == nil {
			if err = unix.Mount(source, target, kind, flags, ""); err != nil {
				err = fmt.Errorf("mount %s on %s: %w", source, target, err)
			}
		}
	}
	mount(settings, "/etc", "", unix.MS_BIND)
	mount("proc", "/proc", "proc", 0)
	for _, folder := range []string{"/run", "/var/lib"} {
		mount("tmpfs", folder, "tmpfs", 0)
	}
	if err != nil {
		return err
	}
	phone, server, err := network.make()
	if err != nil {
		return err
	}
	if err := rename(server); err != nil {
		return err
	}
	if network.Beside {
		err = rename(phone)
	} else {
		err = enter(phone)
	}
	if err != nil {
		return err
	}
	// sysfs shows the interfaces of the namespace that it is mounted in. The old one goes with all that is mounted below.
	err = unix.Unmount("/sys", unix.MNT_DETACH)
	mount("sysfs", "/sys", "sysfs", 0)
	mount("bpf", "/sys/fs/bpf", "bpf", 0)
	mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0)
	home := filepath.Join(dir, "root")
	err = errors.Join(err, os.Mkdir(home, 0o700))
	mount(home, "/root", "", unix.MS_BIND)
	if err != nil {
		return err
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	return unix.Exec("/bin/bash", []string{"bash", "--noprofile", "--norc"}, []string{
		"HOME=/root", "USER=root", "MPCC_INCLUDE=" + prefix + "/include", "LC_ALL=C.UTF-8", "TERM=dumb",
		"PATH=" + prefix + "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	})
}

// namespace is the file of a lab's host.
func namespace(name string) string { return filepath.Join("/run/netns", name) }

// rename gives the namespace of a host the name that pages call it by.
func rename(h *lab.Host) error {
	old, name := namespace(h.Namespace()), namespace(h.Name())
	if err := os.WriteFile(name, nil, 0); err != nil {
		return err
	}
	if err := unix.Mount(old, name, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return forget(h)
}

// enter makes the namespace of a host that of this thread.
func enter(h *lab.Host) error {
	f, err := os.Open(namespace(h.Namespace()))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return forget(h)
}

// forget takes away a name of a lab, which another lab might take for left behind.
func forget(h *lab.Host) error {
	path := namespace(h.Namespace())
	return errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path))
}

// removeCgroups removes the sandbox's cgroup with those that sessions have made in it.
func removeCgroups() error {
	root, err := cgroups.Find("/")
	if err != nil {
		return err
	}
	all, err := cgroups.All()
	if err != nil {
		return err
	}
	var failed error
	for n := 8; n >= 0; n-- { // the inner ones first
		for _, g := range all {
			if below := strings.TrimPrefix(g.Dir, root.Dir+"/"+cgroup); below != g.Dir && strings.Count(below, "/") == n {
				failed = errors.Join(failed, os.Remove(g.Dir))
			}
		}
	}
	return failed
}
