// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/netns"
)

const emptyResults = `{"format": "mpcc results", "version": 1, "scenario": {"name": "two", "title": "Two kinds"}}`

// Results in a folder that cannot be written to are shown, and one line says that the plots were not written.
func TestReportOfAReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "results.json"), []byte(emptyResults), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, complaint bytes.Buffer
	err := netns.OnOwnThread(func() error { // which may have mounts of its own
		err := errors.Join(
			unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(dir, dir, "", unix.MS_BIND, ""),
			unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		if err != nil {
			return err
		}
		c := newReportCommand()
		c.SetArgs([]string{dir})
		c.SetOut(&out)
		c.SetErr(&complaint)
		return c.Execute()
	})
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "two: Two kinds") {
		t.Errorf("it shows %q", out.String())
	}
	if said := complaint.String(); !strings.HasPrefix(said, "mpcc: ") || !strings.HasSuffix(said, ": read-only file system\n") ||
		strings.Count(said, "\n") != 1 {
		t.Errorf("it complains %q", said)
	}
}
