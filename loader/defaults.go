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
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/netns"
)

// Default is an algorithm of mpcc that is a network namespace's default, made so by mpcc or by somebody else.
type Default struct {
	Inode    uint64       `json:"inode"`           // of the namespace
	Netns    string       `json:"netns,omitempty"` // its name, by ip netns; "" for one without
	Kind     catalog.Kind `json:"kind"`
	Set      string       `json:"set"`                // the algorithm
	Original string       `json:"original,omitempty"` // before mpcc changed it; "" where it did not
}

// Defaults returns the defaults of all namespaces that are algorithms of mpcc, those of the machine's own
// namespace first. Namespaces that this process may not enter are left out.
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

// record notes which default a namespace had before mpcc changed it. It does not say whether the default still
// is one of mpcc's: that is read from the namespace. A namespace that has ended may have left its inode number
// to a new one; if that has one of mpcc's as its default, it gets the other's original, which is as good as any.
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
		return nil, fmt.Errorf("%s, the note of the defaults to give back, is damaged (%w); remove it: mpcc unload then sets the kernel's own defaults", recordsPath(), err)
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
	// Also remove the temporary file of a write that was killed.
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

// setDefault makes the algorithm the namespace's default. It records the original default first: a kill in
// between leaves a record that is not needed, but no changed default without a record.
func (p *plug) setDefault(ns netns.NS, name string) error {
	if err := p.checkAllowed(ns, name); err != nil {
		return err
	}
	now, err := p.readDefault(ns)
	if err != nil {
		return err
	}
	records, err := readRecords()
	if err != nil {
		return err
	}
	// Where mpcc has already set another of its own, the record of what was there before stays.
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

// checkAllowed returns an error if the kernel takes a congestion control only as the default of the machine's own
// namespace. It is not tried: a kernel that refuses goes on counting it as used, and never frees its programs.
func (p *plug) checkAllowed(ns netns.NS, name string) error {
	if p.kind != catalog.CC || isInCatalog(p.kind, name) {
		return nil
	}
	return ns.Do(func() error {
		if _, err := os.Stat("/proc/sys/net/core/bpf_jit_enable"); err == nil {
			return nil // only the machine's own shows that
		}
		allowed, err := readSetting("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
		if err == nil && !slices.Contains(strings.Fields(allowed), name) {
			err = fmt.Errorf("make %s the default of %s: the kernel takes it only as the default of the machine's own namespace, as its flags lack TCP_CONG_NON_RESTRICTED", name, ns)
		}
		return err
	})
}

// renewDefaults sets the default again in all namespaces whose default is the algorithm. They keep the programs
// that the algorithm had when it was made their default, and only this gives them the new ones.
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

// giveBack replaces every default that hasToGo selects, and returns these: by the recorded original or, where
// there is none (the user made it the default, or a new namespace took over the machine's), by the machine's
// default or the kernel's own. It removes records that are not needed any more: of namespaces that have ended,
// and of those whose default is not mpcc's, or is the original again.
func giveBack(ctx context.Context, hasToGo func(ns netns.NS, p *plug, name string) bool) (restored []Default, err error) {
	records, err := readRecords()
	if err != nil {
		return nil, err
	}
	var kept []record
	machine := map[*plug]string{} // the default of the first namespace, with which new ones start
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
			if hasToGo(ns, p, now) {
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

// restore sets the first of the heirs that the kernel takes as default, and returns it. The former default, the
// first heir, may not be loaded any more.
func (p *plug) restore(ns netns.NS, heirs []string, hasToGo func(ns netns.NS, p *plug, name string) bool) (set string, err error) {
	for _, name := range heirs {
		if name == "" || hasToGo(ns, p, name) {
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

// ignoreForbidden returns nil in place of the error of a namespace that this process lacks the rights to enter.
func ignoreForbidden(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}
