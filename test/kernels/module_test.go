// SPDX-License-Identifier: Apache-2.0

//go:build vm

package kernels

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/internal/vm"
)

func withDKMS(k vm.Kernel) bool { return k.Label == Labels()[0] }

// testInstall installs the module as a user would, who has the kernel's headers and its compiler, with DKMS on one
// kernel and without on the other. It checks what mpcc sched says and does, and that removing leaves nothing.
func testInstall(t *testing.T, kernel vm.Kernel, files map[string]string, built packages) {
	dkms, by, script := "", "", missingTools+installModule
	files = maps.Clone(files)
	files["/module"] = "../../bpf/kmod/src"
	if withDKMS(kernel) {
		dkms, by, script = "yes", " with DKMS", installModule+installDKMSPackage
		files["/mpcc-dkms.deb"] = built.file(t, "mpcc-dkms_1.0.0-1_all.deb")
	}
	var out strings.Builder
	result, err := vm.Run(t.Context(), vm.Spec{
		Kernel: kernel, Build: true, Files: files, Stdout: &out,
		Env: map[string]string{"DKMS": dkms},
		Cmd: []string{"sh", "-ec", functions + script + leftModule},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := result.Release
	want := []string{
		"built without a warning",
		"building mpcc_sched for Linux " + r + by, // and is killed
		"building mpcc_sched for Linux " + r + by,
		"mpcc_sched: installed and loaded",
		"Linux " + r + ": mpcc_sched is loaded, users: 0",
		"mpcc_sched: already installed and loaded",
		"mpcc_sched: removed",
		"Linux " + r + ": mpcc_sched is not installed: mpcc sched install",
		"mpcc: mpcc_sched: not loaded",
		"exit code 3",
	}
	if dkms != "" {
		want = append(want, "the package's module runs minrtt")
	} else {
		compiler := regexp.MustCompile(`no (x86_64-linux-gnu-(gcc-\d+)) `).FindStringSubmatch(out.String())
		if compiler == nil {
			t.Fatalf("no word of the compiler:\n%s", out.String())
		}
		want = append([]string{
			"mpcc: cannot build the module for Linux " + r + ": there is no " + compiler[1] + " (this kernel's compiler)," +
				" no pahole (it makes the module's BTF); on Debian: apt install " + compiler[2] + " dwarves",
			"exit code 1",
			"mpcc_sched: there is no vmlinux",
			"mpcc_sched: there is no pahole",
		}, want...)
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" || result.Status != 0 {
		t.Errorf("status %d, output (-want +got):\n%s", result.Status, diff)
	}
	t.Logf("took %.0f s", result.Total.Seconds())
}

// functions are what the scripts below are made of.
const functions = `
	R=$(uname -r)
	hide() { for f; do mv $f $f.hidden; done; }
	show() { for f; do mv $f.hidden $f; done; }
	plain() { rm -rf /tmp/module; cp -r /module /tmp/module; make -C /lib/modules/$R/build M=/tmp/module "$@" 2>&1; }
	[ "$DKMS" ] || hide /usr/sbin/dkms
`

// missingTools prints what mpcc and make print where something is missing that the build takes.
const missingTools = `
	tools="$(ls /usr/bin/x86_64-linux-gnu-gcc-[0-9]*) /usr/bin/pahole"
	hide $tools
	mpcc sched install || echo "exit code $?"
	show $tools

	vmlinux=$(readlink -f /lib/modules/$R/build/vmlinux)
	hide $vmlinux; plain modules | grep -o 'mpcc_sched: there is no vmlinux'; show $vmlinux
	hide /usr/bin/pahole; plain modules | grep -o 'mpcc_sched: there is no pahole'; show /usr/bin/pahole
`

// installModule prints what mpcc prints. What the compiler says of the source it says before the rest of a build.
const installModule = `
	plain W=1 mpcc_sched.o >/tmp/log || cat /tmp/log
	grep -i 'mpcc_sched.*\(warning\|error\)' /tmp/log || echo "built without a warning"

	mpcc sched install &
	while kill -0 $! && [ ! -e /var/cache/mpcc/kmod ] && [ ! -e /var/lib/dkms/mpcc-sched ]; do sleep 0.1; done
	sleep 2
	kill -9 $!
	wait $! 2>/dev/null || true # dash would say that it was killed

	mpcc sched install
	if [ "$DKMS" ]; then
		dkms status | grep -q "mpcc-sched.* $R, x86_64: installed"
	else
		test -f /lib/modules/$R/updates/mpcc_sched.ko
	fi
	grep -q '^mpcc_sched$' /etc/modules-load.d/mpcc-sched.conf
	mpcc sched status
	mpcc sched install
	mpcc sched remove
	mpcc sched status || echo "exit code $?"
`

// installDKMSPackage installs mpcc-dkms, runs a scheduler, and purges the package while the module is loaded.
const installDKMSPackage = `
	dpkg -i /mpcc-dkms.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
	dkms status | grep -q "^mpcc-sched/1.0.0, $R, x86_64: installed" || { cat /tmp/log; dkms status; exit 1; }
	modprobe mpcc_sched
	mpcc load sched/minrtt >/dev/null
	grep -qw minrtt /proc/sys/net/mptcp/available_schedulers && echo "the package's module runs minrtt"
	mpcc unload sched/minrtt >/dev/null
	dpkg --purge mpcc-dkms >/tmp/log 2>&1 || cat /tmp/log
	dkms status
	lsmod | grep mpcc_sched || true
`

// leftModule prints what should be gone.
const leftModule = `
	find /etc /lib/ /usr /var \( -name '*mpcc[-_]sched*' -o -name 'mpcc-dkms*' -o -path '*/mpcc/kmod*' \) -print`
