// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/test/loaded"
)

// The kernel denies a command of bpf(2), as it does where a cgroup or the machine has no memory left, or where a security
// module forbids it. It is told in a line, and nothing is left.
func TestHostDeniedBPF(t *testing.T) {
	loaded.Turn(t)
	for _, c := range []struct {
		command int
		errno   syscall.Errno
		want    string
	}{
		{unix.BPF_PROG_LOAD, unix.ENOMEM, "mpcc: load dts: the kernel is out of memory for BPF"},
		{unix.BPF_LINK_CREATE, unix.ENOMEM, "mpcc: attach dts: the kernel is out of memory for BPF"},
		{unix.BPF_OBJ_PIN, unix.ENOSPC, "no space left on device"},
		{unix.BPF_PROG_LOAD, unix.EPERM, "mpcc: load dts: not permitted; it takes root"},
		{unix.BPF_MAP_CREATE, unix.EPERM, "mpcc: create the maps: not permitted; it takes root"},
	} {
		t.Run(fmt.Sprintf("%d-%s", c.command, unix.ErrnoName(c.errno)), func(t *testing.T) {
			untouched(t)
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{denied, fmt.Sprint(c.command), fmt.Sprint(int(c.errno)), os.Getenv("MPCC_BIN"), "load", "dts", "--default"}
			var complaint strings.Builder
			cmd.Stderr = &complaint
			err := cmd.Run()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("%v, want exit code 1", err)
			}
			line := strings.TrimSuffix(complaint.String(), "\n")
			if strings.Contains(line, "\n") || !strings.Contains(line, c.want) {
				t.Errorf("it says %q, want %q in a line", line, c.want)
			}
		})
	}
}

// denied is the name under which the test binary has the kernel deny a command of bpf(2), and becomes mpcc:
// denied COMMAND ERRNO MPCC ARGUMENT…
const denied = "denied"

func init() {
	if os.Args[0] != denied {
		return
	}
	var command, errno uint32
	if _, err := fmt.Sscan(os.Args[1]+" "+os.Args[2], &command, &errno); err != nil {
		panic(err)
	}
	const number, firstArgument = 0, 16 // in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_BPF, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: firstArgument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: command, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errno},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	become(filter, os.Args[3], os.Args[4:])
}

// become has the kernel filter the system calls of mpcc, which takes this process's place.
func become(filter []unix.SockFilter, mpcc string, args []string) {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	if err == nil {
		err = syscall.Exec(mpcc, append([]string{"mpcc"}, args...), os.Environ())
	}
	panic(err)
}
