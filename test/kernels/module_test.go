// SPDX-License-Identifier: Apache-2.0

//go:build vm

package kernels

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/internal/vm"
)

func withDKMS(k vm.Kernel) bool { return k.Label == Labels()[0] }

// testInstall installs the module as a user would, who has the kernel's headers and its compiler, with DKMS on one
// kernel and without on the other. It checks what mpcc sched says and does, and that removing leaves nothing.
func testInstall(t *testing.T, kernel vm.Kernel, files map[string]string) {
	dkms, by := "", ""
	if withDKMS(kernel) {
		dkms, by = "yes", " with DKMS"
	}
	var out strings.Builder
	result, err := vm.Run(t.Context(), vm.Spec{
		Kernel: kernel, Build: true, Files: files, Stdout: &out,
		Env: map[string]string{"DKMS": dkms},
		Cmd: []string{"sh", "-ec", installModule},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := result.Release
	compiler := regexp.MustCompile(`no (x86_64-linux-gnu-(gcc-\d+)) `).FindStringSubmatch(out.String())
	if compiler == nil {
		t.Fatalf("no word of the compiler:\n%s", out.String())
	}
	want := []string{
		"mpcc: cannot build the module for Linux " + r + ": there is no " + compiler[1] + " (this kernel's compiler)," +
			" no pahole (it makes the module's BTF); on Debian: apt install " + compiler[2] + " dwarves",
		"exit code 1",
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
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" || result.Status != 0 {
		t.Errorf("status %d, output (-want +got):\n%s", result.Status, diff)
	}
	t.Logf("took %.0f s", result.Total.Seconds())
}

// installModule prints what mpcc prints and, at its end, files of the module that should be gone.
const installModule = `
	R=$(uname -r)
	hide() { for f; do mv $f $f.hidden; done; }
	show() { for f; do mv $f.hidden $f; done; }
	tools="$(ls /usr/bin/x86_64-linux-gnu-gcc-[0-9]*) /usr/bin/pahole"
	[ "$DKMS" ] || hide /usr/sbin/dkms

	hide $tools
	mpcc sched install || echo "exit code $?"
	show $tools

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
	find /etc /lib/ /usr /var \( -name '*mpcc[-_]sched*' -o -path '*/mpcc/kmod*' \) -print`
