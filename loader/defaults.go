// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/pkg/catalog"
)

const defaultSysctl = "/proc/sys/net/ipv4/tcp_congestion_control"

// Default is a network namespace whose default congestion control is one of mpcc's, set by mpcc or not.
type Default struct {
	Netns
	Set      string `json:"set"`
	Original string `json:"original,omitempty"` // before mpcc changed it; "" where it did not
}

// Defaults lists the namespaces whose default is one of mpcc's.
func Defaults() ([]Default, error) {
	records, err := readRecords()
	if err != nil {
		return nil, err
	}
	found := []Default{}
	err = eachNetns(func(ns Netns) error {
		now, err := ns.readDefault()
		if err != nil {
			return ignoreForbidden(err)
		}
		if isOurs(now) {
			found = append(found, Default{Netns: ns, Set: now, Original: originalIn(records, ns)})
		}
		return nil
	})
	return found, err
}

// record is kept for a namespace whose default mpcc changed. It tells only what to give back: whether
// the default still is one of mpcc's, the namespace knows. One that ended may have left its inode number
// to a new one, which then gets back a default that is not its own but as good as any.
type record struct {
	Inode    uint64 `json:"inode"`
	Original string `json:"original"`
}

func originalIn(records []record, ns Netns) string {
	if i := slices.IndexFunc(records, func(r record) bool { return r.Inode == ns.Inode }); i >= 0 {
		return records[i].Original
	}
	return ""
}

func recordsPath() string { return filepath.Join(stateDir, "defaults.json") }

func readRecords() ([]record, error) {
	b, err := os.ReadFile(recordsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []record
	if err := json.Unmarshal(b, &records); err != nil {
		return nil, fmt.Errorf("%s, the note of the defaults to give back, is damaged (%w); remove it, and unload gives back the kernel's own", recordsPath(), err)
	}
	return records, nil
}

// writeRecords replaces the file in one step, so that a kill leaves the old one or the new one.
func writeRecords(records []record) error {
	temp := recordsPath() + ".new"
	if len(records) == 0 {
		for _, path := range []string{recordsPath(), temp} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	b, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, recordsPath())
}

func resolveAll(o Options) ([]Netns, error) {
	if !o.Default {
		return nil, nil
	}
	if len(o.Netns) == 0 {
		ns, err := CurrentNetns()
		return []Netns{ns}, err
	}
	var all []Netns
	for _, name := range o.Netns {
		ns, err := NamedNetns(name)
		if err != nil {
			return nil, err
		}
		all = append(all, ns)
	}
	return all, nil
}

func (n Netns) readDefault() (value string, err error) {
	err = n.Do(func() error {
		b, err := os.ReadFile(defaultSysctl)
		value = strings.TrimSpace(string(b))
		return err
	})
	return value, err
}

func (n Netns) writeDefault(value string) error {
	return n.Do(func() error { return os.WriteFile(defaultSysctl, []byte(value), 0o644) })
}

// setDefault notes the original default first: a kill in between leaves a note of nothing changed.
func setDefault(ns Netns, name string) error {
	now, err := ns.readDefault()
	if err != nil {
		return err
	}
	records, err := readRecords()
	if err != nil {
		return err
	}
	// One of mpcc's that mpcc set goes back to what was there before it, not to itself.
	if now != name && (!isOurs(now) || originalIn(records, ns) == "") {
		records = slices.DeleteFunc(records, func(r record) bool { return r.Inode == ns.Inode })
		if err := writeRecords(append(records, record{Inode: ns.Inode, Original: now})); err != nil {
			return err
		}
	}
	if err := ns.writeDefault(name); err != nil {
		return fmt.Errorf("make %s the default of %s: %w", name, ns, err)
	}
	return nil
}

// renewDefaults has the namespaces whose default is the algorithm look its programs up again: they hold
// on to those that it had when it became the default.
func renewDefaults(name string) error {
	return eachNetns(func(ns Netns) error {
		now, err := ns.readDefault()
		if err != nil {
			return ignoreForbidden(err)
		}
		if now != name {
			return nil
		}
		return ns.writeDefault(name)
	})
}

// giveBack replaces every default that has to go by what was there before mpcc changed it or, where mpcc
// did not (the user did, or a new namespace took over the machine's), by the machine's or the kernel's.
// Records that are of no more use go: their namespace has ended, or its default is not mpcc's any more.
func giveBack(hasToGo func(cc string) bool) (restored []Default, err error) {
	records, err := readRecords()
	if err != nil {
		return nil, err
	}
	var kept []record
	machine := "" // what the first namespace has, and new ones start with
	err = eachNetns(func(ns Netns) error {
		original := originalIn(records, ns)
		now, err := ns.readDefault()
		if err != nil {
			if original == "" {
				err = ignoreForbidden(err)
			}
			return err
		}
		if hasToGo(now) {
			d := Default{Netns: ns, Set: now}
			if d.Original, err = ns.restore(original, machine, hasToGo); err != nil {
				return fmt.Errorf("give %s its default back: %w", ns, err)
			}
			restored = append(restored, d)
			now = d.Original
		} else if original != "" && isOurs(now) {
			kept = append(kept, record{Inode: ns.Inode, Original: original})
		}
		if machine == "" {
			machine = now
		}
		return nil
	})
	if err != nil || (len(kept) == len(records) && len(kept) > 0) {
		return restored, err
	}
	return restored, writeRecords(kept)
}

// restore sets the first default that can be had: what was there before may be gone too.
func (n Netns) restore(original, machine string, hasToGo func(cc string) bool) (set string, err error) {
	for _, cc := range []string{original, machine, "cubic", "reno"} {
		if cc == "" || hasToGo(cc) {
			continue
		}
		if err = n.writeDefault(cc); err == nil {
			return cc, nil
		}
	}
	return "", err
}

func isOurs(cc string) bool {
	return slices.ContainsFunc(catalog.Entries, func(e catalog.Entry) bool { return e.Kind == catalog.CC && e.Name == cc })
}

// ignoreForbidden passes by the namespaces that a process with less than root's rights cannot enter:
// mpcc has changed nothing there.
func ignoreForbidden(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}
