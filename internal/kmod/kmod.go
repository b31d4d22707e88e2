// SPDX-License-Identifier: Apache-2.0

// Package kmod builds, installs, loads and removes the kernel module mpcc_sched (bpf/kmod), with which an
// unmodified kernel can run MPTCP packet schedulers in BPF. Where DKMS is installed it builds by that, so that
// kernels to come get the module too, otherwise for the running kernel only.
package kmod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	module "github.com/mpcc/mpcc/bpf/kmod"
	"github.com/mpcc/mpcc/internal/lockfile"
)

// Name is the name of the module.
const Name = "mpcc_sched"

// What an installation consists of. Remove removes all of it.
const (
	pkg       = "mpcc-sched"              // DKMS's name for it
	dkmsTree  = "/var/lib/dkms/" + pkg    // DKMS's own state
	sources   = "/usr/src/" + pkg + "-"   // and a version: the sources for DKMS
	workspace = "/var/cache/mpcc/kmod"    // for a build without DKMS
	object    = "updates/" + Name + ".ko" // what that installs, below /lib/modules/RELEASE
	atBoot    = "/etc/modules-load.d/" + pkg + ".conf"
	lockFile  = "/run/mpcc-kmod.lock"
)

// State says what there is of the module on this machine.
type State struct {
	Kernel    string `json:"kernel"`              // the running kernel
	Native    bool   `json:"native"`              // it takes BPF packet schedulers by itself
	Version   string `json:"version"`             // of the sources in this mpcc
	Installed string `json:"installed,omitempty"` // version installed for the running kernel
	Loaded    string `json:"loaded,omitempty"`    // version loaded
	Users     int    `json:"users"`               // how many schedulers and programs use the loaded one
}

// Current says whether the loaded module is of the same version as this mpcc's.
func (s State) Current() bool { return s.Loaded == s.Version }

func thisHost() host {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		panic(err) // cannot fail with a valid address
	}
	return host{release: unix.ByteSliceToString(u.Release[:])}
}

// Status returns what there is of the module.
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
	// It fails if the module is not installed.
	if out, err := command(ctx, "modinfo", "-F", "version", Name).Output(); err == nil {
		s.Installed = strings.TrimSpace(string(out))
	}
	return s, nil
}

// Install builds, installs and loads the module, now and at every boot. What is there already it leaves. It calls
// progress with what takes long before that begins, and returns whether anything was missing.
func Install(ctx context.Context, progress func(string)) (changed bool, err error) {
	c, err := begin(ctx)
	if err != nil {
		return false, err
	}
	defer c.end()
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
		changed = true
		if err := c.install(ctx, h, progress); err != nil {
			return changed, err
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
		if err := unload(ctx); err != nil {
			return changed, fmt.Errorf("the module is installed, but another version of it is loaded: %w", err)
		}
	}
	return true, c.load(ctx)
}

// Remove unloads the module and removes all that Install has put on the machine. It returns whether there was
// anything.
func Remove(ctx context.Context) (changed bool, err error) {
	c, err := begin(ctx)
	if err != nil {
		return false, err
	}
	defer c.end()
	s, err := Status(ctx)
	if err != nil {
		return false, err
	}
	if s.Loaded != "" {
		if err := unload(ctx); err != nil {
			return false, err
		}
	}
	if err := c.uninstall(ctx); err != nil {
		return true, err
	}
	err = os.Remove(atBoot)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s.Loaded != "" || s.Installed != "", err
}

// change is a change of the installation. It holds the lock that keeps out others. The commands that it runs hold
// the lock too: if it is killed, the next change waits until they have ended.
type change struct{ lock *lockfile.Lock }

// lockWait is long enough for a build on a slow machine.
const lockWait = 2 * time.Minute

func begin(ctx context.Context) (*change, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("kernel modules are root's: run this as root")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, errors.New("try again when that has ended"))
	defer cancel()
	l, err := lockfile.Take(ctx, lockFile)
	if err != nil {
		return nil, err
	}
	return &change{l}, nil
}

func (c *change) end() { _ = c.lock.Unlock() }

// run runs a command. The end of what it prints is in the error.
func (c *change) run(ctx context.Context, name string, arg ...string) error {
	cmd := command(ctx, name, arg...)
	cmd.ExtraFiles = []*os.File{c.lock.File()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, tail(string(out), 20))
	}
	return nil
}

func command(ctx context.Context, name string, arg ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, arg...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // errors are recognized by their words
	return cmd
}

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// load loads the installed module. What the module says in the kernel's log is in the error.
func (c *change) load(ctx context.Context) error {
	log, err := openKernelLog()
	if err != nil {
		return err
	}
	defer log.close()
	err = c.run(ctx, "modprobe", Name)
	if err == nil {
		return nil
	}
	if said := log.lines(Name + ": "); said != nil {
		return unsupported{fmt.Errorf("the kernel did not take the module: %s", strings.Join(said, "; "))}
	}
	if thisHost().wantsSignature(err) {
		return fmt.Errorf("this kernel loads signed modules only, and the module is not signed, or with a key that it does not know: install it with DKMS, which signs it, then mokutil --import /var/lib/dkms/mok.pub, reboot and enrol the key (%w)", err)
	}
	return err
}

// unload unloads the module. It waits for that a little: the kernel lets go of schedulers some time after they
// were detached.
func unload(ctx context.Context) error {
	end := time.After(5 * time.Second)
	for {
		err := unix.DeleteModule(Name, unix.O_NONBLOCK)
		switch {
		case err == nil:
			return nil
		case err != unix.EWOULDBLOCK:
			return fmt.Errorf("unload %s: %w", Name, err)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("unload %s, which is in use: %w", Name, context.Cause(ctx))
		case <-end:
			return fmt.Errorf("%s is in use: unload its schedulers (mpcc unload) and end the connections that run them (mpcc status)", Name)
		}
	}
}
