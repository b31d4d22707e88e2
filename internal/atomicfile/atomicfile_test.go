// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/mpcc/mpcc/test/fulldisk"
)

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first, and longer than the second", "second"} {
		if err := Write(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != text {
			t.Errorf("content %q, want %q", got, text)
		}
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v (%v), want 0640", st.Mode(), err)
	}
	onlyFile(t, dir)
}

// What fails half-way leaves the old text, and nothing beside it.
func TestAFailureLeavesTheOldText(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	fault := errors.New("no more")
	err := Stream(path, 0o600, func(w io.Writer) error {
		if _, err := w.Write([]byte("new, but not all of it")); err != nil {
			return err
		}
		return fault
	})
	if !errors.Is(err, fault) {
		t.Errorf("error %v, want %v", err, fault)
	}
	if got := content(t, path); got != "old" {
		t.Errorf("content %q, want the old one", got)
	}
	onlyFile(t, dir)
}

// A link is replaced, not followed: whoever made it must not decide which file is written.
func TestALinkIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.WriteFile(other, []byte("other"), 0o600), os.Symlink(other, path)); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if content(t, other) != "other" || content(t, path) != "mine" {
		t.Errorf("the link was followed")
	}
}

// Whatever lies in the folder, nothing beside it is written.
func TestNothingLeadsOutOfAFolder(t *testing.T) {
	parent := t.TempDir()
	dir, outside := filepath.Join(parent, "dir"), filepath.Join(parent, "outside")
	if err := errors.Join(
		os.Mkdir(dir, 0o755), os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "file"), []byte("other"), 0o600),
		os.Symlink("../outside", filepath.Join(dir, "folder")), os.Symlink("../outside/file", filepath.Join(dir, "file")),
	); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"../outside/file", "folder/file", filepath.Join(outside, "file")} {
		if err := WriteIn(root, name, []byte("mine"), 0o600); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if err := WriteIn(root, "file", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if content(t, filepath.Join(outside, "file")) != "other" || content(t, filepath.Join(dir, "file")) != "mine" {
		t.Error("the link was followed")
	}
	onlyFile(t, outside)
}

// A full disk is told in a line that names the file, and leaves the old text.
func TestFullDisk(t *testing.T) {
	dir := fulldisk.Mount(t, 2)
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Write(path, make([]byte, 3<<12), 0o600)
	if want := "write " + path + ": no space left on device"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if got := content(t, path); got != "old" {
		t.Errorf("content %q, want the old one", got)
	}
	onlyFile(t, dir)
}

func onlyFile(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v (%v), want the file alone", entries, err)
	}
}
