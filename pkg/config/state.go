// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/lockfile"
)

// What is applied is in the kernel and goes with it, and so does the note of it.
const (
	runDir    = "/run/mpcc"
	stateFile = runDir + "/applied.json"
	lockPath  = runDir + "/apply.lock"
)

// lockWait is long enough for an apply that has many programs verified, on a slow machine.
const lockWait = 2 * time.Minute

// list is a list of things that can be kept in a file.
type list []thing

// saved is a thing in a file.
type saved struct {
	Kind  string `json:"kind"`
	Value string `json:"value"` // YAML
}

func (l list) MarshalJSON() ([]byte, error) {
	all := make([]saved, len(l))
	for i, t := range l {
		text, err := yaml.Marshal(t)
		if err != nil {
			return nil, err
		}
		all[i] = saved{t.id().kind, string(text)}
	}
	return json.Marshal(all)
}

func (l *list) UnmarshalJSON(text []byte) error {
	var all []saved
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*l = nil
	for _, s := range all {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(s.Value), &n); err != nil {
			return err
		}
		i := rank(s.Kind)
		if i < 0 || len(n.Content) == 0 {
			return fmt.Errorf("a %q is nothing that this mpcc knows", s.Kind)
		}
		t, err := kinds[i].decode(n.Content[0])
		if err != nil {
			return err
		}
		*l = append(*l, t)
	}
	return nil
}

func (l list) find(of thing) thing {
	i := slices.IndexFunc(l, func(t thing) bool { return t.id() == of.id() })
	if i < 0 {
		return nil
	}
	return l[i]
}

// state is what Apply has set since the machine started.
type state struct {
	Owned  list   `json:"owned"`  // what it has set
	Before list   `json:"before"` // what some of it was before, by somebody else
	Text   string `json:"text"`   // the configuration that it set last
}

func readState() (s state, err error) {
	text, err := os.ReadFile(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s, the note of what mpcc apply has set, cannot be read (%w); remove it: what is set then stays until somebody removes it", stateFile, err)
	}
	return s, nil
}

// write keeps the state; nothing is left of one that says nothing.
func (s state) write() error {
	if len(s.Owned) == 0 && s.Text == "" {
		return remove(stateFile)
	}
	return writeJSON(stateFile, s)
}

// writeJSON writes a file, unless it says the same already.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if there, err := os.ReadFile(path); err == nil && string(there) == string(text)+"\n" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600)
}

// remove removes a file that may be there, and the temporary ones of writes that were killed.
func remove(path string) error {
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*"))
	if err != nil {
		return err
	}
	for _, path := range append(left, path) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// lock keeps two processes from applying at once.
func lock(ctx context.Context) (unlock func(), err error) {
	if err := checkRights(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, errors.New("try again when it has ended"))
	defer cancel()
	l, err := lockfile.Take(ctx, lockPath)
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Unlock() }, nil
}

// checkRights returns an error if this process may not do what it takes, in one clear line.
func checkRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, need := range []uint{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN} {
		if data[0].Effective&(1<<need) == 0 {
			return errors.New("no privileges: it takes root, or the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN")
		}
	}
	return nil
}
