// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stateDir keeps, for each network namespace, what to give back there after a kill.
const stateDir = "/run/mpcc/steer"

// record is the file of a namespace, locked for as long as one steers there. A namespace that ended may
// have left its inode number to a new one; a flag is given back only where endpoint and address are the
// same and the flag is there.
type record struct{ file *os.File }

// held is a flag that is to be given back.
type held struct {
	Lever
	Interface string `json:"interface"`
}

func openRecord(netns uint64) (*record, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not permitted; it takes root")
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(stateDir, fmt.Sprintf("%d.json", netns))
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			file.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = errors.New("another mpcc steer is at work in this network namespace; end it first")
			}
			return nil, err
		}
		// The former one may have removed it since it was opened.
		mine, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(mine, there) {
			return &record{file}, nil
		}
		file.Close()
	}
}

// read gives what a former steer has left.
func (r *record) read() ([]held, error) {
	var left []held
	err := json.NewDecoder(io.NewSectionReader(r.file, 0, 1<<20)).Decode(&left)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s, the note of the backup flags to give back, is damaged (%w); remove it, and look at ip mptcp endpoint show", r.file.Name(), err)
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
	if _, err := r.file.WriteAt(append(text, '\n'), 0); err != nil {
		return err
	}
	return r.file.Truncate(int64(len(text) + 1))
}

// close ends it; nothing is left to give back if done.
func (r *record) close(done bool) error {
	if done {
		if err := os.Remove(r.file.Name()); err != nil {
			return errors.Join(err, r.file.Close())
		}
	}
	return r.file.Close()
}
