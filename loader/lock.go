// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is long enough for several commands that each have the kernel verify programs, on a slow machine.
const lockWait = time.Minute

// lock keeps two commands from changing things at once. The kernel drops it with the process.
func lock() (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(stateDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(50 * time.Millisecond) {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK || time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("another mpcc command has been at work for %v; try again when it has ended", lockWait)
		}
	}
}
