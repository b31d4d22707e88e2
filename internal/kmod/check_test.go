// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const release = "6.12.1-test"

// fake makes a machine of files, by their paths, and of programs.
func fake(t *testing.T, files map[string]string, programs ...string) host {
	t.Helper()
	h := host{root: t.TempDir(), release: release}
	write := func(name, text string, mode os.FileMode) {
		file := h.path(name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text, 0o644)
	}
	for _, name := range programs {
		write("/bin/"+name, "", 0o755)
	}
	t.Setenv("PATH", h.path("/bin"))
	return h
}

// names are strings of a BTF, as the kernel has them in memory.
func names(list ...string) string { return "\x00" + strings.Join(list, "\x00") + "\x00" }

func TestCheckKernel(t *testing.T) {
	whole := []string{"mptcp_sock", "mptcp_sched_ops", "__register_bpf_struct_ops", "gen_epilogue"}
	for name, test := range map[string]struct {
		files map[string]string
		want  string // in the error; "" for none
	}{
		"fit":            {map[string]string{"/sys/kernel/btf/vmlinux": names(whole...)}, ""},
		"no BTF":         {nil, "has no BTF"},
		"no MPTCP":       {map[string]string{"/sys/kernel/btf/vmlinux": names(whole[1:]...)}, "has no Multipath TCP"},
		"no schedulers":  {map[string]string{"/sys/kernel/btf/vmlinux": names(whole[0], whole[2])}, "Linux 6.6"},
		"another's name": {map[string]string{"/sys/kernel/btf/vmlinux": names(whole[0], "bpf_mptcp_sched_ops", whole[2])}, "Linux 6.6"},
		"no types":       {map[string]string{"/sys/kernel/btf/vmlinux": names(whole[:2]...)}, "Linux 6.9"},
		"no iterators":   {map[string]string{"/sys/kernel/btf/vmlinux": names(whole[:3]...)}, "Linux 6.12"},
		"signed only": {map[string]string{"/sys/kernel/btf/vmlinux": names(whole...),
			"/sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}, ""},
		"locked down": {map[string]string{"/sys/kernel/btf/vmlinux": names(whole...),
			"/sys/kernel/security/lockdown": "none integrity [confidentiality]\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := fake(t, test.files)
			types, err := h.types()
			if err == nil {
				err = h.checkKernel(types)
			}
			wantError(t, err, test.want)
			if err != nil && !errors.Is(err, ErrUnsupported) {
				t.Errorf("%v is not ErrUnsupported", err)
			}
		})
	}
}

func TestNative(t *testing.T) {
	// Every kernel with schedulers names the former; only the latter makes them BPF's.
	if kernelTypes(names("mptcp_sched_ops", "get_retrans")).native() {
		t.Error("a kernel with schedulers passes for one with BPF schedulers")
	}
	if kernelTypes(names("mptcp_sched_ops", "get_subflow", "bpf_struct_ops_mptcp_sched_ops")).native() {
		t.Error("a kernel whose BPF schedulers have other callbacks passes for one that takes mpcc's")
	}
	if !kernelTypes(names("mptcp_sched_ops", "get_retrans", "bpf_struct_ops_mptcp_sched_ops")).native() {
		t.Error("a kernel with BPF schedulers is not recognized")
	}
}

func TestCheckBuild(t *testing.T) {
	build := "/lib/modules/" + release + "/build/"
	const options = "CONFIG_DEBUG_INFO_BTF_MODULES=y\nCONFIG_KPROBES=y\nCONFIG_CC_VERSION_TEXT=x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0\n"
	whole := map[string]string{
		build + "include/config/auto.conf":                options,
		build + "vmlinux":                                 "",
		build + "tools/bpf/resolve_btfids/resolve_btfids": "",
		"/sys/module/module/parameters/sig_enforce":       "N\n",
		"/sys/kernel/security/lockdown":                   "[none] integrity confidentiality\n",
	}
	all := []string{"x86_64-linux-gnu-gcc-14", "make", "strip", "pahole", "modprobe", "depmod"}
	for name, test := range map[string]struct {
		change  map[string]string
		without string // file or program
		want    string
	}{
		"whole":       {nil, "", ""},
		"no headers":  {nil, build + "include/config/auto.conf", "no /lib/modules/" + release + "/build (the headers of this kernel); on Debian: apt install linux-headers-" + release},
		"no vmlinux":  {nil, build + "vmlinux", "apt install linux-headers-" + release},
		"no compiler": {nil, "x86_64-linux-gnu-gcc-14", "no x86_64-linux-gnu-gcc-14 (this kernel's compiler); on Debian: apt install gcc-14"},
		"no pahole":   {nil, "pahole", "apt install dwarves"},
		"no strip":    {nil, "strip", "apt install binutils"},
		"no kmod":     {nil, "depmod", "apt install kmod"},
		"no BTF of modules": {map[string]string{build + "include/config/auto.conf": "CONFIG_KPROBES=y\n"}, "",
			"built without CONFIG_DEBUG_INFO_BTF_MODULES"},
		"signed only": {map[string]string{"/sys/module/module/parameters/sig_enforce": "Y\n"}, "",
			"no dkms (it signs the module, and this kernel loads no other); on Debian: apt install dkms"},
		"Secure Boot": {map[string]string{"/sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}, "", "apt install dkms"},
		"locked down": {map[string]string{"/sys/kernel/security/lockdown": "none integrity [confidentiality]\n"}, "", "apt install dkms"},
		"no lockdown": {nil, "/sys/kernel/security/lockdown", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for _, from := range []map[string]string{whole, test.change} {
				for file, text := range from {
					files[file] = text
				}
			}
			delete(files, test.without)
			var programs []string
			for _, p := range all {
				if p != test.without {
					programs = append(programs, p)
				}
			}
			wantError(t, fake(t, files, programs...).checkBuild(), test.want)
		})
	}
	t.Run("everything", func(t *testing.T) {
		err := fake(t, nil).checkBuild()
		wantError(t, err, "; on Debian: apt install linux-headers-"+release+" make binutils dwarves kmod")
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %v", err)
		}
	})
}

func TestWantsSignature(t *testing.T) {
	const refused = "modprobe: ERROR: could not insert 'mpcc_sched': "
	for said, want := range map[string][2]bool{ // on a kernel that takes any module, and on one that is locked down
		"Key was rejected by service": {true, true},
		"Required key not available":  {true, true},
		"Operation not permitted":     {false, true},
		"Exec format error":           {false, false},
	} {
		for i, lockdown := range []string{"[none] integrity confidentiality\n", "none integrity [confidentiality]\n"} {
			h := fake(t, map[string]string{"/sys/kernel/security/lockdown": lockdown})
			if got := h.wantsSignature(errors.New(refused + said)); got != want[i] {
				t.Errorf("%s with lockdown %s: %v", said, lockdown, got)
			}
		}
	}
}

func TestCompilerOf(t *testing.T) {
	for config, want := range map[string][2]string{
		"CONFIG_CC_VERSION_TEXT=\"gcc (GCC) 15.1.1\"\n":                         {"gcc", "gcc"},
		"CONFIG_A=y\nCONFIG_CC_VERSION_TEXT=x86_64-linux-gnu-gcc-14 (Debian)\n": {"x86_64-linux-gnu-gcc-14", "gcc-14"},
		"CONFIG_CC_VERSION_TEXT=\"clang version 19.1.0\"\n":                     {"clang", "clang"},
		"CONFIG_A=y\n": {"gcc", "gcc"},
	} {
		if command, pkg := compilerOf(config); [2]string{command, pkg} != want {
			t.Errorf("compiler of %q: %q of %q, want %q", config, command, pkg, want)
		}
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Error(err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one with %q", err, want)
	}
}
