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

// Another change waits until the one before has ended with all the commands that it runs, or its user has had enough.
func TestChangesWait(t *testing.T) {
	first, err := begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const running = time.Second
	ended := make(chan error, 1)
	started := time.Now()
	go func() { ended <- first.run(t.Context(), "sleep", "1") }()
	time.Sleep(running / 2)
	first.end() // as if it were killed

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
	if err := <-ended; err != nil {
		t.Error(err)
	}
	nobody.CannotLock(t, lockFile)
}
