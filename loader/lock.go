// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/mpcc/mpcc/internal/lockfile"
)

// lockWait is long enough for several commands that each have the kernel verify programs, on a slow machine.
const lockWait = time.Minute

// lock keeps two processes from changing things at once. The kernel drops it with the process.
func lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, errors.New("try again when it has ended"))
	defer cancel()
	l, err := lockfile.Take(ctx, filepath.Join(stateDir, "lock"))
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Unlock() }, nil
}
