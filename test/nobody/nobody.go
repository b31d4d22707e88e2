// SPDX-License-Identifier: Apache-2.0

// Package nobody tries, for tests that run as root, what a user without any rights could do.
package nobody

import (
	"os/exec"
	"syscall"
	"testing"
)

// id is the user and the group nobody.
const id = 65534

// CannotLock fails the test if user nobody can open the file: whoever can open it can lock it, and keep everybody
// waiting who needs the lock.
func CannotLock(t *testing.T, path string) {
	t.Helper()
	open := func(as *syscall.Credential) error {
		cmd := exec.Command("head", "-c", "0", path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		return cmd.Run()
	}
	if err := open(&syscall.Credential{}); err != nil {
		t.Fatalf("not even root can open %s: %v", path, err)
	}
	if err := open(&syscall.Credential{Uid: id, Gid: id}); err == nil {
		t.Errorf("user nobody can open %s, and so lock it", path)
	}
}
