// SPDX-License-Identifier: Apache-2.0

// Package fulldisk is a file system with hardly any room.
package fulldisk

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount returns a folder that takes so many pages of 4 KB, folders and links not counted, until the test ends.
func Mount(t testing.TB, pages int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", 4*pages)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}
