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

	"github.com/mpcc/mpcc/pkg/catalog"
)

const defaultSysctl = "/proc/sys/net/ipv4/tcp_congestion_control"

// DefaultRecord says what a namespace's default congestion control was before mpcc changed it.
type DefaultRecord struct {
	Inode    uint64 `json:"inode"`
	Name     string `json:"netns,omitempty"`
	Original string `json:"original"`
	Set      string `json:"set"`
}

func recordsPath() string { return filepath.Join(stateDir, "defaults.json") }

// Defaults lists the namespaces whose default is one of ours.
func Defaults() ([]DefaultRecord, error) {
	b, err := os.ReadFile(recordsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []DefaultRecord
	if err := json.Unmarshal(b, &records); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it if you have set the defaults right by hand", recordsPath(), err)
	}
	return records, nil
}

// writeRecords replaces the file in one step, so that a kill leaves the old one or the new one.
func writeRecords(records []DefaultRecord) error {
	if len(records) == 0 {
		if err := os.Remove(recordsPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	temp := recordsPath() + ".new"
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
	records, err := Defaults()
	if err != nil {
		return err
	}
	now, err := ns.readDefault()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(records, func(r DefaultRecord) bool { return r.Inode == ns.Inode })
	switch {
	case i < 0:
		records = append(records, DefaultRecord{Inode: ns.Inode, Name: ns.Name, Original: now, Set: name})
	case now != records[i].Set:
		// Somebody has set it since: that is the one to give back.
		records[i].Original = now
		fallthrough
	default:
		records[i].Set = name
	}
	if now == name && i < 0 {
		return nil
	}
	if err := writeRecords(records); err != nil {
		return err
	}
	if err := ns.writeDefault(name); err != nil {
		return fmt.Errorf("make %s the default of %s: %w", name, ns, err)
	}
	return nil
}

// giveBack restores the defaults of the records that match, where they still are what mpcc set.
func giveBack(match func(DefaultRecord) bool) (restored []string, err error) {
	records, err := Defaults()
	if err != nil {
		return nil, err
	}
	var kept []DefaultRecord
	for _, r := range records {
		if !match(r) {
			kept = append(kept, r)
			continue
		}
		ns, ok := findNetns(r.Inode)
		if !ok {
			continue
		}
		now, err := ns.readDefault()
		if err != nil {
			return restored, err
		}
		if now != r.Set {
			continue
		}
		if err := ns.writeDefault(r.Original); err != nil {
			return restored, fmt.Errorf("give %s its default %s back: %w", ns, r.Original, err)
		}
		restored = append(restored, fmt.Sprintf("%s: %s", ns, r.Original))
	}
	if len(kept) == len(records) {
		return restored, nil
	}
	return restored, writeRecords(kept)
}

func restoreDefaults(name string) ([]string, error) {
	return giveBack(func(r DefaultRecord) bool { return r.Set == name })
}

// dropStaleDefaults gives back defaults that name what is no longer loaded: its pin was removed by hand.
func dropStaleDefaults() error {
	_, err := giveBack(func(r DefaultRecord) bool {
		return !slices.ContainsFunc(Loaded(), func(e catalog.Entry) bool { return e.Name == r.Set })
	})
	return err
}
