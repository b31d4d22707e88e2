// SPDX-License-Identifier: Apache-2.0

package pieces

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A note that became shorter, with the end of the longer one behind it as a kill would leave it.
func TestNote(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "note"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := func(before string, users ...string) {
		t.Helper()
		gotBefore, gotUsers, err := parse(f)
		if err != nil || gotBefore != before || !slices.Equal(gotUsers, users) {
			t.Errorf("%q %q, %v, want %q %q", gotBefore, gotUsers, err, before, users)
		}
	}
	want("")
	for _, users := range [][]string{{"load"}, {"load", "run"}, {"run"}, {}} {
		if err := note(f, "0", users); err != nil {
			t.Fatal(err)
		}
		want("0", users...)
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("load run\n"); err != nil {
		t.Fatal(err)
	}
	want("0")
}
