// SPDX-License-Identifier: Apache-2.0

// Package loaded has a congestion control loaded while a test runs.
package loaded

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/loader"
)

// Turn waits until no other test loads anything, and unloads everything when the test ends. Tests that load take turns,
// also those of other packages: the names and the pins are the machine's.
func Turn(t testing.TB) {
	t.Helper()
	if err := os.MkdirAll("/run/mpcc", 0o755); err != nil {
		t.Fatal(err)
	}
	turn, err := lockfile.Take(t.Context(), "/run/mpcc/test.lock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = turn.Unlock() })
	mountBPF(t)
	t.Cleanup(func() {
		if _, _, err := loader.UnloadAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// DTS loads dts, with the tunables in set, until the test ends.
func DTS(t testing.TB, set map[string]string) catalog.Entry {
	t.Helper()
	Turn(t)
	dts, err := catalog.Find("dts")
	if err != nil {
		t.Fatal(err)
	}
	done, err := loader.Load(t.Context(), dts, loader.Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	if !done.New {
		t.Fatal("dts is loaded already: unload it first")
	}
	return dts
}

// mountBPF mounts the BPF file system until the test ends, where there is none. The loader mounts it only where
// the mount outlives the process; here it need not.
func mountBPF(t testing.TB) {
	t.Helper()
	const bpffs = "/sys/fs/bpf"
	var st unix.Statfs_t
	if err := unix.Statfs(bpffs, &st); err != nil {
		t.Fatal(err)
	}
	if st.Type == unix.BPF_FS_MAGIC {
		return
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(bpffs, 0) })
}
