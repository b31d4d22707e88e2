// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// ErrUnsupported is wrapped where the kernel itself is in the way: installing something would not help.
var ErrUnsupported = errors.New("this kernel cannot take the module")

// unsupported is an error in the user's words for which errors.Is(err, ErrUnsupported) holds.
type unsupported struct{ error }

func (unsupported) Is(target error) bool { return target == ErrUnsupported }

// host is this machine or, in a test, a folder that looks like one.
type host struct {
	root    string // "" but in tests
	release string // of the running kernel
}

func (h host) path(name string) string { return h.root + name }

func (h host) exists(name string) bool {
	_, err := os.Stat(h.path(name))
	return err == nil
}

// read returns the text of a file; "" if there is none.
func (h host) read(name string) string {
	text, err := os.ReadFile(h.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// modules returns the path of a file in the running kernel's folder of modules.
func (h host) modules(name string) string { return path.Join("/lib/modules", h.release, name) }

// kernelTypes is the kernel's BTF, of which only the names are looked at.
type kernelTypes []byte

func (h host) types() (kernelTypes, error) {
	text, err := os.ReadFile(h.path("/sys/kernel/btf/vmlinux"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unsupported{fmt.Errorf("this kernel (%s) has no BTF: it is built without CONFIG_DEBUG_INFO_BTF", h.release)}
	}
	return text, err
}

func (t kernelTypes) has(name string) bool { return bytes.Contains(t, []byte("\x00"+name+"\x00")) }

// native says whether the kernel has by itself what the module would give it: a type of packet schedulers with the callbacks
// that mpcc's programs are for. Until 2025 MPTCP's development tree had get_subflow in place of get_send and get_retrans.
func (t kernelTypes) native() bool {
	return t.has("bpf_struct_ops_mptcp_sched_ops") && t.has("get_retrans")
}

// checkKernel returns an error if this kernel cannot take the module.
func (h host) checkKernel(t kernelTypes) error {
	not := func(format string, args ...any) error {
		return unsupported{fmt.Errorf("this kernel (%s) "+format, append([]any{h.release}, args...)...)}
	}
	switch {
	case !t.has("mptcp_sock"):
		return not("has no Multipath TCP: it is built without CONFIG_MPTCP")
	case !t.has("mptcp_sched_ops"):
		return not("has no choice of packet schedulers: that came with Linux 6.6")
	case !t.has("__register_bpf_struct_ops"):
		return not("takes no BPF types from modules: that came with Linux 6.9, and what the module needs beyond it with 6.12")
	case !t.has("gen_epilogue"): // it has no name of its own, and came in the same weeks
		return not("lets BPF programs pass on no subflow that a module's iterator gives them: that came with Linux 6.12")
	}
	return nil
}

// lack is something missing for the build.
type lack struct {
	what string // what is missing, and what for
	pkg  string // the Debian package that has it
}

// signedOnly says whether the kernel loads signed modules only: it was told so, or it is locked down, in whichever mode.
func (h host) signedOnly() bool {
	lockdown := h.read("/sys/kernel/security/lockdown")
	return h.read("/sys/module/module/parameters/sig_enforce") == "Y" ||
		lockdown != "" && !strings.Contains(lockdown, "[none]")
}

// wantsSignature says whether modprobe's error means that the kernel did not accept the module's signature. Of one that
// has none a kernel that is locked down says only that the operation is not permitted.
func (h host) wantsSignature(err error) bool {
	said := err.Error()
	return strings.Contains(said, "Key was rejected") || strings.Contains(said, "Required key") ||
		strings.Contains(said, "Operation not permitted") && h.signedOnly()
}

// checkBuild returns an error that lists, in one line, all that the build lacks, and the packages that have it.
func (h host) checkBuild() error {
	var lacks []lack
	need := func(there bool, what, pkg string) {
		if !there {
			lacks = append(lacks, lack{what, pkg})
		}
	}
	tool := func(name string) bool {
		_, err := exec.LookPath(name)
		return err == nil
	}

	build := h.modules("build")
	headers := "linux-headers-" + h.release
	config := h.read(path.Join(build, "include/config/auto.conf"))
	if config == "" {
		need(false, "no "+build+" (the headers of this kernel)", headers)
	} else {
		for option, why := range map[string]string{
			"CONFIG_DEBUG_INFO_BTF_MODULES": "modules have no BTF",
			"CONFIG_KPROBES":                "there are no kprobes, by which the module finds what the kernel does not export",
		} {
			if !strings.Contains(config, option+"=y") {
				return unsupported{fmt.Errorf("this kernel (%s) is built without %s: %s", h.release, option, why)}
			}
		}
		need(h.exists(path.Join(build, "vmlinux")), "no vmlinux in "+build+" (the module's BTF is made from it)", headers)
		need(h.exists(path.Join(build, "tools/bpf/resolve_btfids/resolve_btfids")), "no resolve_btfids in "+build, headers)
		compiler, pkg := compilerOf(config)
		need(tool(compiler), "no "+compiler+" (this kernel's compiler)", pkg)
	}
	need(tool("make"), "no make", "make")
	need(tool("strip"), "no strip", "binutils")
	need(tool("pahole"), "no pahole (it makes the module's BTF)", "dwarves")
	need(tool("modprobe") && tool("depmod"), "no modprobe and depmod", "kmod")
	need(!h.signedOnly() || tool("dkms"), "no dkms (it signs the module, and this kernel loads no other)", "dkms")
	if lacks == nil {
		return nil
	}
	var whats, pkgs []string
	for _, l := range lacks {
		whats = append(whats, l.what)
		if !slices.Contains(pkgs, l.pkg) {
			pkgs = append(pkgs, l.pkg)
		}
	}
	return fmt.Errorf("cannot build the module for Linux %s: there is %s; on Debian: apt install %s",
		h.release, strings.Join(whats, ", "), strings.Join(pkgs, " "))
}

// compilerOf returns the compiler that a kernel was built with, by its configuration, and its Debian package.
func compilerOf(config string) (command, pkg string) {
	for line := range strings.Lines(config) {
		if text, ok := strings.CutPrefix(line, "CONFIG_CC_VERSION_TEXT="); ok {
			command, _, _ = strings.Cut(strings.Trim(text, `"`), " ")
			if _, name, ok := strings.Cut(command, "-gnu-"); ok { // x86_64-linux-gnu-gcc-14
				return command, name
			}
			return command, command
		}
	}
	return "gcc", "gcc"
}
