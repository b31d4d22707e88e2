// SPDX-License-Identifier: Apache-2.0

// Package kmod builds, installs, loads and removes the kernel module mpcc_sched (bpf/kmod), by which an
// unmodified kernel takes MPTCP packet schedulers in BPF. It goes through DKMS where that is installed, so
// that new kernels get the module too, and otherwise builds it for the running kernel.
package kmod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	module "github.com/mpcc/mpcc/bpf/kmod"
)

// Name is the module's.
const Name = "mpcc_sched"

// What an installation consists of; all of it is gone after Remove.
const (
	pkg       = "mpcc-sched"              // DKMS's name for it
	dkmsTree  = "/var/lib/dkms/" + pkg    // DKMS's own state
	sources   = "/usr/src/" + pkg + "-"   // and a version: what DKMS builds
	workspace = "/var/cache/mpcc/kmod"    // a build without DKMS
	object    = "updates/" + Name + ".ko" // and its result, below /lib/modules/RELEASE
	atBoot    = "/etc/modules-load.d/" + pkg + ".conf"
	lockFile  = "/run/mpcc-kmod.lock"
)

// State is what there is of the module.
type State struct {
	Kernel    string `json:"kernel"`              // the running kernel
	Native    bool   `json:"native"`              // it has BPF packet schedulers itself
	Version   string `json:"version"`             // of the sources in this mpcc
	Installed string `json:"installed,omitempty"` // version installed for the running kernel
	Loaded    string `json:"loaded,omitempty"`    // version loaded
	Users     int    `json:"users"`               // programs and tables that hold the loaded one
}

// Current tells whether the loaded module is that of this mpcc.
func (s State) Current() bool { return s.Loaded == s.Version }

func thisHost() host {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		panic(err) // cannot fail with a valid address
	}
	return host{release: unix.ByteSliceToString(u.Release[:])}
}

// Status looks up what there is of the module.
func Status(ctx context.Context) (State, error) {
	h := thisHost()
	s := State{Kernel: h.release, Version: module.Version(), Loaded: h.read("/sys/module/" + Name + "/version")}
	if t, err := h.types(); err == nil {
		s.Native = t.native()
	}
	if users := h.read("/sys/module/" + Name + "/refcnt"); users != "" {
		var err error
		if s.Users, err = strconv.Atoi(users); err != nil {
			return s, err
		}
	}
	// It fails where there is none.
	if out, err := command(ctx, "modinfo", "-F", "version", Name).Output(); err == nil {
		s.Installed = strings.TrimSpace(string(out))
	}
	return s, nil
}

// Install builds and installs the module where it is not, loads it, and has it loaded at boot. It tells
// progress what it is about to do, and reports whether anything was missing.
func Install(ctx context.Context, progress func(string)) (changed bool, err error) {
	unlock, err := lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	h := thisHost()
	t, err := h.types()
	if err != nil {
		return false, err
	}
	if t.native() {
		return false, nil
	}
	if err := h.checkKernel(t); err != nil {
		return false, err
	}
	s, err := Status(ctx)
	if err != nil {
		return false, err
	}
	if s.Installed != s.Version {
		if err := h.checkBuild(); err != nil {
			return false, err
		}
		if err := uninstall(ctx); err != nil { // what another version or a killed install left
			return false, err
		}
		changed = true
		if _, err := exec.LookPath("dkms"); err == nil {
			progress(fmt.Sprintf("building %s for Linux %s with DKMS", Name, h.release))
			err = installDKMS(ctx, h.release)
			if err != nil {
				return changed, err
			}
		} else {
			progress(fmt.Sprintf("building %s for Linux %s", Name, h.release))
			if err := installDirectly(ctx, h.release); err != nil {
				return changed, err
			}
		}
	}
	if h.read(atBoot) != Name {
		changed = true
		if err := os.MkdirAll(path.Dir(atBoot), 0o755); err != nil {
			return changed, err
		}
		if err := os.WriteFile(atBoot, []byte(Name+"\n"), 0o644); err != nil {
			return changed, err
		}
	}
	if s.Current() {
		return changed, nil
	}
	if s.Loaded != "" {
		if err := unload(); err != nil {
			return changed, fmt.Errorf("the module is installed, but another version of it is loaded: %w", err)
		}
	}
	return true, load(ctx)
}

// Remove unloads the module and takes away all that Install put on the machine. It reports whether there was anything.
func Remove(ctx context.Context) (changed bool, err error) {
	unlock, err := lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	s, err := Status(ctx)
	if err != nil {
		return false, err
	}
	if s.Loaded != "" {
		if err := unload(); err != nil {
			return false, err
		}
	}
	if err := uninstall(ctx); err != nil {
		return true, err
	}
	err = os.Remove(atBoot)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s.Loaded != "" || s.Installed != "", err
}

// lockWait is long enough for a build on a slow machine.
const lockWait = 2 * time.Minute

// lock keeps out other installs. The commands that this one runs hold it too, so that what a killed one
// started comes to its end before another begins.
func lock() (unlock func(), err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("kernel modules are root's: run this as root")
	}
	fd, err := unix.Open(lockFile, unix.O_CREAT|unix.O_RDWR, 0o600) // not closed on exec
	if err != nil {
		return nil, fmt.Errorf("%s: %w", lockFile, err)
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(100 * time.Millisecond) {
		if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if err != unix.EWOULDBLOCK || time.Now().After(end) {
			unix.Close(fd)
			return nil, fmt.Errorf("another mpcc has been installing or removing the module for %v: try again when it has ended", lockWait)
		}
	}
}

func installDKMS(ctx context.Context, release string) error {
	version := module.Version()
	if err := writeSources(sources+version, version); err != nil {
		return err
	}
	err := run(command(ctx, "dkms", "install", pkg+"/"+version, "-k", release, "--force"))
	if err == nil {
		return nil
	}
	if log, readErr := os.ReadFile(path.Join(dkmsTree, version, "build/make.log")); readErr == nil {
		err = fmt.Errorf("%w\n%s", err, tail(string(log), 20))
	}
	return err
}

func installDirectly(ctx context.Context, release string) error {
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
		if err := run(command(ctx, step[0], step[1:]...)); err != nil {
			return err
		}
	}
	return nil
}

// writeSources fills a folder with the module's sources.
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

// uninstall takes away every version for every kernel, whole or not.
func uninstall(ctx context.Context) error {
	versions, err := filepath.Glob(dkmsTree + "/*/source")
	if err != nil {
		return err
	}
	for _, v := range versions {
		if err := run(command(ctx, "dkms", "remove", pkg+"/"+path.Base(path.Dir(v)), "--all")); err != nil {
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
		if err := run(command(ctx, "depmod", strings.Split(ko, "/")[3])); err != nil {
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

// load loads the installed module; what it says in the kernel log is in the error.
func load(ctx context.Context) error {
	log, err := openKernelLog()
	if err != nil {
		return err
	}
	defer log.close()
	err = run(command(ctx, "modprobe", Name))
	if err == nil {
		return nil
	}
	if said := log.lines(Name + ": "); said != nil {
		return unsupported{fmt.Errorf("the kernel did not take the module: %s", strings.Join(said, "; "))}
	}
	if strings.Contains(err.Error(), "Key was rejected") || strings.Contains(err.Error(), "Required key") {
		return fmt.Errorf("this kernel loads signed modules only and does not know DKMS's key: mokutil --import /var/lib/dkms/mok.pub, reboot and enrol it (%w)", err)
	}
	return err
}

// unload waits a little: the kernel lets a detached table go some time later.
func unload() error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		err := unix.DeleteModule(Name, unix.O_NONBLOCK)
		switch {
		case err == nil:
			return nil
		case err != unix.EWOULDBLOCK:
			return fmt.Errorf("unload %s: %w", Name, err)
		case time.Now().After(end):
			return fmt.Errorf("%s is in use: unload its schedulers (mpcc unload) and end the connections that run them (mpcc status)", Name)
		}
	}
}

func command(ctx context.Context, name string, arg ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, arg...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // errors are recognized by their words
	return cmd
}

// run runs a command; the end of what it printed is in the error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, tail(string(out), 20))
	}
	return nil
}

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// kernelLog reads what the kernel says from now on.
type kernelLog struct{ fd int }

func openKernelLog() (kernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return kernelLog{}, fmt.Errorf("/dev/kmsg: %w", err)
	}
	_, err = unix.Seek(fd, 0, unix.SEEK_END)
	return kernelLog{fd}, err
}

// lines returns the messages that begin with prefix, without it.
func (l kernelLog) lines(prefix string) []string {
	var lines []string
	record := make([]byte, 8192) // the kernel gives one a read
	for {
		n, err := unix.Read(l.fd, record)
		if err != nil {
			return lines
		}
		_, text, _ := strings.Cut(string(record[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		if said, ok := strings.CutPrefix(text, prefix); ok {
			lines = append(lines, said)
		}
	}
}

func (l kernelLog) close() { unix.Close(l.fd) }
