// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Kbuild hashes the same files as Version, and all C files of the module; the DKMS package holds all of them.
func TestVersion(t *testing.T) {
	kbuild, err := fs.ReadFile(Source(), "Kbuild")
	if err != nil {
		t.Fatal(err)
	}
	shell := regexp.MustCompile(`\$\(shell cat (.*) \| sha256sum \| cut -c 1-12\)`).FindSubmatch(kbuild)
	if shell == nil {
		t.Fatal("Kbuild hashes no files")
	}
	hashed := strings.Fields(strings.ReplaceAll(string(shell[1]), "$(src)/", ""))
	sum := sha256.New()
	for _, name := range hashed {
		text, err := fs.ReadFile(Source(), name)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	if got, want := Version(), hex.EncodeToString(sum.Sum(nil))[:12]; got != want {
		t.Errorf("Version is %s, and %s by Kbuild", got, want)
	}
	files, err := fs.Glob(Source(), "*.[ch]")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(hashed)
	if !slices.Equal(files, hashed) {
		t.Errorf("Kbuild hashes %q of %q", hashed, files)
	}
	build, err := os.ReadFile("../../deploy/packages/build")
	if err != nil {
		t.Fatal(err)
	}
	packed := regexp.MustCompile(`cp bpf/kmod/src/\{(.*)\}`).FindSubmatch(build)
	if packed == nil {
		t.Fatal("deploy/packages/build packs no sources of the module")
	}
	for _, name := range files {
		if !slices.Contains(strings.Split(string(packed[1]), ","), name) {
			t.Errorf("deploy/packages/build leaves out %s", name)
		}
	}
}
