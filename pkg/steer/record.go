// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mpcc/mpcc/internal/lockfile"
)

// stateDir has a file for each network namespace: the backup flags to clear there, also after a kill.
const stateDir = "/run/mpcc/steer"

// record is the file of a namespace, locked while a steer runs there. A namespace that has ended may have left
// its inode number to a new one: a flag is cleared only if it is set on an endpoint with the same id and address.
type record struct{ lock *lockfile.Lock }

// held is a backup flag that steer has set and has to clear.
type held struct {
	lever
	Interface string `json:"interface"`
}

func openRecord(ctx context.Context, netns uint64) (*record, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not permitted; it takes root")
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 0) // do not wait: the other one may run for days
	defer cancel()
	l, err := lockfile.Take(ctx, filepath.Join(stateDir, fmt.Sprintf("%d.json", netns)))
	if held := (*lockfile.HeldError)(nil); errors.As(err, &held) {
		return nil, fmt.Errorf("another mpcc steer is at work in this network namespace, %s; end it first", held.Holder)
	}
	if err != nil {
		return nil, err
	}
	return &record{l}, nil
}

// read returns the flags that a killed steer has left.
func (r *record) read() ([]held, error) {
	var left []held
	err := json.NewDecoder(io.NewSectionReader(r.lock.File(), 0, 1<<20)).Decode(&left)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s, the note of the backup flags to clear, is damaged (%w); remove it, and clear the flags by hand: ip mptcp endpoint show lists them", r.lock.File().Name(), err)
	}
	return left, nil
}

// write replaces the flags that are to be cleared. After a kill the file has the old text or the new one,
// perhaps followed by the end of the old one, which read ignores.
func (r *record) write(all []held) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if _, err := r.lock.File().WriteAt(append(text, '\n'), 0); err != nil {
		return err
	}
	return r.lock.File().Truncate(int64(len(text) + 1))
}

// close unlocks the record, and removes its file if done: if no flag is left to clear.
func (r *record) close(done bool) error {
	if done {
		return r.lock.Remove()
	}
	return r.lock.Unlock()
}
