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

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// Default is a network namespace whose default of a kind is one of mpcc's, set by mpcc or not.
type Default struct {
	Netns
	Kind     catalog.Kind `json:"kind"`
	Set      string       `json:"set"`
	Original string       `json:"original,omitempty"` // before mpcc changed it; "" where it did not
}

// Defaults lists the namespaces whose default is one of mpcc's.
func Defaults() ([]Default, error) {
	records, err := readRecords()
	if err != nil {
		return nil, err
	}
	found := []Default{}
	err = eachNetns(func(ns Netns) error {
		for _, p := range plugs {
			now, err := p.readDefault(ns)
			if err != nil {
				return ignoreForbidden(err)
			}
			if p.isOurs(now) {
				found = append(found, Default{ns, p.kind, now, p.originalIn(records, ns)})
			}
		}
		return nil
	})
	return found, err
}

// record is kept for a namespace whose default mpcc changed. It tells only what to give back: whether
// the default still is one of mpcc's, the namespace knows. One that ended may have left its inode number
// to a new one, which then gets back a default that is not its own but as good as any.
type record struct {
	Kind     catalog.Kind `json:"kind"`
	Inode    uint64       `json:"inode"`
	Original string       `json:"original"`
}

func (r record) isOf(p *plug, ns Netns) bool { return r.Kind == p.kind && r.Inode == ns.Inode }

func (p *plug) originalIn(records []record, ns Netns) string {
	if i := slices.IndexFunc(records, func(r record) bool { return r.isOf(p, ns) }); i >= 0 {
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

// setDefault notes the original default first: a kill in between leaves a note of nothing changed.
func (p *plug) setDefault(ns Netns, name string) error {
	now, err := p.readDefault(ns)
	if err != nil {
		return err
	}
	records, err := readRecords()
	if err != nil {
		return err
	}
	// One of mpcc's that mpcc set goes back to what was there before it, not to itself.
	if now != name && (!p.isOurs(now) || p.originalIn(records, ns) == "") {
		records = slices.DeleteFunc(records, func(r record) bool { return r.isOf(p, ns) })
		if err := writeRecords(append(records, record{p.kind, ns.Inode, now})); err != nil {
			return err
		}
	}
	if err := p.writeDefault(ns, name); err != nil {
		return fmt.Errorf("make %s the default of %s: %w", catalog.Short(p.kind, name), ns, err)
	}
	return nil
}

// renewDefaults has the namespaces whose default is the algorithm look its programs up again: they hold
// on to those that it had when it became the default.
func (p *plug) renewDefaults(name string) error {
	return eachNetns(func(ns Netns) error {
		now, err := p.readDefault(ns)
		if err != nil {
			return ignoreForbidden(err)
		}
		if now != name {
			return nil
		}
		return p.writeDefault(ns, name)
	})
}

// giveBack replaces every default that has to go by what was there before mpcc changed it or, where mpcc
// did not (the user did, or a new namespace took over the machine's), by the machine's or the kernel's.
// Records that are of no more use go: their namespace has ended, its default is not mpcc's any more, or
// is what it was.
func giveBack(hasToGo func(p *plug, name string) bool) (restored []Default, err error) {
	records, err := readRecords()
	if err != nil {
		return nil, err
	}
	var kept []record
	machine := map[*plug]string{} // what the first namespace has, and new ones start with
	err = eachNetns(func(ns Netns) error {
		for _, p := range plugs {
			original := p.originalIn(records, ns)
			now, err := p.readDefault(ns)
			if err != nil {
				if original == "" {
					err = ignoreForbidden(err)
				}
				return err
			}
			if hasToGo(p, now) {
				d := Default{Netns: ns, Kind: p.kind, Set: now}
				heirs := append([]string{original, machine[p]}, p.own...)
				if d.Original, err = p.restore(ns, heirs, hasToGo); err != nil {
					return fmt.Errorf("give %s its default back: %w", ns, err)
				}
				restored = append(restored, d)
				now = d.Original
			} else if original != "" && original != now && p.isOurs(now) {
				kept = append(kept, record{p.kind, ns.Inode, original})
			}
			if p.inherited && machine[p] == "" {
				machine[p] = now
			}
		}
		return nil
	})
	if err != nil || (len(kept) == len(records) && len(kept) > 0) {
		return restored, err
	}
	return restored, writeRecords(kept)
}

// restore sets the first default that can be had: what was there before may be gone too.
func (p *plug) restore(ns Netns, heirs []string, hasToGo func(p *plug, name string) bool) (set string, err error) {
	for _, name := range heirs {
		if name == "" || hasToGo(p, name) {
			continue
		}
		if err = p.writeDefault(ns, name); err == nil {
			return name, nil
		}
	}
	return "", err
}

// ignoreForbidden passes by the namespaces that a process with less than root's rights cannot enter:
// mpcc has changed nothing there.
func ignoreForbidden(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}
