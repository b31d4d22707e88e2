// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/netns"
)

// Default is a network namespace whose default of a kind is one of mpcc's, set by mpcc or not.
type Default struct {
	Inode    uint64       `json:"inode"`           // of the namespace
	Netns    string       `json:"netns,omitempty"` // its name, by ip netns; "" for one without
	Kind     catalog.Kind `json:"kind"`
	Set      string       `json:"set"`                // the algorithm
	Original string       `json:"original,omitempty"` // before mpcc changed it; "" where it did not
}

// Defaults returns the namespaces whose default is one of mpcc's, the machine's own first. Those that this
// process may not look into are not among them.
func Defaults(ctx context.Context) ([]Default, error) {
	records, err := readRecords()
	if err != nil {
		return nil, err
	}
	found := []Default{}
	err = eachNetns(ctx, func(ns netns.NS) error {
		for _, p := range plugs {
			now, err := p.readDefault(ns)
			if err != nil {
				return ignoreForbidden(err)
			}
			if p.isOurs(now) {
				found = append(found, Default{ns.Inode, ns.Name, p.kind, now, p.originalIn(records, ns)})
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

func (r record) isOf(p *plug, ns netns.NS) bool { return r.Kind == p.kind && r.Inode == ns.Inode }

func (p *plug) originalIn(records []record, ns netns.NS) string {
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

func writeRecords(records []record) error {
	if len(records) > 0 {
		text, err := json.MarshalIndent(records, "", "  ")
		if err != nil {
			return err
		}
		return atomicfile.Write(recordsPath(), text, 0o600)
	}
	// With it goes what a kill in the middle of a write has left.
	left, err := filepath.Glob(filepath.Join(stateDir, ".defaults.json.*"))
	if err != nil {
		return err
	}
	for _, path := range append(left, recordsPath()) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func resolveAll(o Options) ([]netns.NS, error) {
	if !o.Default {
		return nil, nil
	}
	if len(o.Netns) == 0 {
		ns, err := netns.Current()
		return []netns.NS{ns}, err
	}
	var all []netns.NS
	for _, name := range o.Netns {
		ns, err := netns.Named(name)
		if err != nil {
			return nil, err
		}
		all = append(all, ns)
	}
	return all, nil
}

// setDefault notes the original default first: a kill in between leaves a note of nothing changed.
func (p *plug) setDefault(ns netns.NS, name string) error {
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
func (p *plug) renewDefaults(ctx context.Context, name string) error {
	return eachNetns(ctx, func(ns netns.NS) error {
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
func giveBack(ctx context.Context, hasToGo func(p *plug, name string) bool) (restored []Default, err error) {
	records, err := readRecords()
	if err != nil {
		return nil, err
	}
	var kept []record
	machine := map[*plug]string{} // what the first namespace has, and new ones start with
	err = eachNetns(ctx, func(ns netns.NS) error {
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
				d := Default{Inode: ns.Inode, Netns: ns.Name, Kind: p.kind, Set: now}
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
func (p *plug) restore(ns netns.NS, heirs []string, hasToGo func(p *plug, name string) bool) (set string, err error) {
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

// eachNetns is netns.Each, and ends with ctx.
func eachNetns(ctx context.Context, visit func(netns.NS) error) error {
	return netns.Each(func(ns netns.NS) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return visit(ns)
	})
}

// ignoreForbidden passes by the namespaces that a process with less than root's rights cannot enter:
// mpcc has changed nothing there.
func ignoreForbidden(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}
