// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/test/nobody"
)

// A change waits until the one before has ended with all the commands that it runs, or until its own context ends.
func TestChangesWait(t *testing.T) {
	first, err := begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// A command that goes on after the change, as if the change had been killed: until somebody opens the FIFO.
	if err := first.run(t.Context(), "sh", "-c", "{ : >"+fifo+"; } >/dev/null 2>&1 &"); err != nil {
		t.Fatal(err)
	}
	first.end()

	reason := errors.New("the user has had enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, reason)
	defer cancel()
	_, err = begin(ctx)
	var held *lockfile.HeldError
	if !errors.As(err, &held) || !errors.Is(err, reason) {
		t.Errorf("while a command runs: %v", err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0) // waits for nobody, as it is for writing too
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	second, err := begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer second.end()
	nobody.CannotLock(t, lockFile)
}
