// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/test/nobody"
)

// A change waits until the one before has ended with all the commands that it runs, or until its own context ends.
func TestChangesWait(t *testing.T) {
	first, err := begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const running = time.Second
	started := time.Now()
	// A command that goes on after the change, as if the change had been killed.
	if err := first.run(t.Context(), "sh", "-c", "sleep 1 >/dev/null 2>&1 &"); err != nil {
		t.Fatal(err)
	}
	first.end()

	reason := errors.New("the user has had enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), running/10, reason)
	defer cancel()
	_, err = begin(ctx)
	var held *lockfile.HeldError
	if !errors.As(err, &held) || !errors.Is(err, reason) {
		t.Errorf("while a command runs: %v", err)
	}
	second, err := begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer second.end()
	if waited := time.Since(started); waited < running {
		t.Errorf("it waited %v for a command of %v", waited, running)
	}
	nobody.CannotLock(t, lockFile)
}
