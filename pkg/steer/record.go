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

// stateDir keeps, for each network namespace, what to give back there after a kill.
const stateDir = "/run/mpcc/steer"

// record is the file of a namespace, locked for as long as one steers there. A namespace that ended may
// have left its inode number to a new one; a flag is given back only where endpoint and address are the
// same and the flag is there.
type record struct{ lock *lockfile.Lock }

// held is a flag that is to be given back.
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
	ctx, cancel := context.WithTimeout(ctx, 0) // the other one may take days
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

// read gives what a former steer has left.
func (r *record) read() ([]held, error) {
	var left []held
	err := json.NewDecoder(io.NewSectionReader(r.lock.File(), 0, 1<<20)).Decode(&left)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s, the note of the backup flags to give back, is damaged (%w); remove it, and look at ip mptcp endpoint show", r.lock.File().Name(), err)
	}
	return left, nil
}

// write replaces what is to be given back. A kill leaves the old text or the new one, perhaps with the end
// of the old one behind it, which read passes by.
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

// close ends it; nothing is left to give back if done.
func (r *record) close(done bool) error {
	if done {
		return r.lock.Remove()
	}
	return r.lock.Unlock()
}
