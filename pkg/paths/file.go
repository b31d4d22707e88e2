// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/loader"
)

// Where Save and Keep keep rules and counts, unless they are told another place.
const (
	ConfigFile = "/etc/mpcc/paths.yaml"
	CountsFile = "/var/lib/mpcc/paths.json"
)

// countEvery is how often Keep writes the counts: a power cut loses no more.
const countEvery = time.Minute

// ReadFile returns the rules of a file, as Parse reads them.
func ReadFile(path string) ([]Rule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rules, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rules, nil
}

// Parse returns the rules of a YAML text, a list under "paths:". It is an error if two are for the same subflows, if
// something is out of range, or if there is a key that Rule does not have.
func Parse(text []byte) ([]Rule, error) {
	var file struct {
		Paths []yaml.Node `yaml:"paths"`
	}
	if err := decode(text, &file); err != nil {
		return nil, err
	}
	rules := []Rule{}
	for i, node := range file.Paths {
		raw, err := yaml.Marshal(&node)
		if err != nil {
			return nil, err
		}
		r := NewRule(Key{})
		err = decode(raw, &r)
		if err == nil {
			err = r.Check()
		}
		if err == nil && slices.ContainsFunc(rules, func(o Rule) bool { return o.Key == r.Key }) {
			err = fmt.Errorf("there are two rules for %v", r.Key)
		}
		if err != nil {
			return nil, fmt.Errorf("path %d, line %d: %w", i+1, node.Line, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func decode(text []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
	}
	return nil
}

// Save writes the live rules to a file that ReadFile reads: those of the caller's namespace, and of those that have a
// name of ip netns. It returns how many those are.
func Save(path string) (int, error) {
	live, err := List()
	if err != nil {
		return 0, err
	}
	file := struct {
		Paths []Rule `yaml:"paths"`
	}{[]Rule{}}
	for _, l := range live {
		if _, err := namespace(l.Netns); err == nil {
			file.Paths = append(file.Paths, l.Rule)
		}
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	head := "# The rules for paths: mpcc path save writes this file, and mpcc path keep obeys it.\n"
	return len(file.Paths), atomicfile.Write(path, append([]byte(head), text...), 0o644)
}

// count is what is kept of a rule's use.
type count struct {
	Key
	Bytes uint64    `json:"bytes"`
	Since time.Time `json:"since"`
}

// Restore makes rules live, with the counts that Keep has kept in a file. Those that are live already become what they
// are here, and go on with their counts.
func Restore(ctx context.Context, rules []Rule, counts string) error {
	kept, err := readCounts(counts)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if err := restore(ctx, r, kept); err != nil {
			return fmt.Errorf("%v: %w", r.Key, err)
		}
	}
	return nil
}

// Keep is Restore, and then writes these counts once a minute and begins those of monthly quotas anew, until ctx ends,
// which is no error. The error wraps loader.ErrNotLoaded if the maps are removed meanwhile.
func Keep(ctx context.Context, rules []Rule, counts string) error {
	if err := Restore(ctx, rules, counts); err != nil {
		return err
	}
	for {
		if err := writeCounts(ctx, counts, len(rules) > 0); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return writeCounts(context.WithoutCancel(ctx), counts, len(rules) > 0)
		case <-time.After(countEvery):
		}
	}
}

// restore makes a rule live, with the count that was kept, unless it is live and has one.
func restore(ctx context.Context, r Rule, kept []count) error {
	at, err := locate(r.Key)
	if err != nil {
		return err
	}
	now := time.Now()
	return loader.ChangePaths(ctx, func(p *loader.Paths) error {
		live, err := find(p, r.Key, at, now)
		if err != nil {
			return err
		}
		set := Live{Rule: r, Since: now}
		if live != nil {
			set.Used, set.Since = live.Used, live.Since
		} else if i := slices.IndexFunc(kept, func(c count) bool { return c.Key == r.Key }); i >= 0 {
			set.Used, set.Since = kept[i].Bytes, kept[i].Since
		}
		return set.put(p, at, live, now)
	})
}

func readCounts(path string) (kept []count, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, the counts of the quotas, is damaged (%w); remove it, and set them anew with mpcc path set PATH --used BYTES", path, err)
	}
	return kept, nil
}

// writeCounts begins new counts where a month has ended, and writes all of them.
func writeCounts(ctx context.Context, path string, expected bool) error {
	if err := renew(ctx); err != nil {
		return err
	}
	live, err := List()
	if err != nil {
		return err
	}
	if expected && len(live) == 0 {
		return fmt.Errorf("%w: the rules are gone, by mpcc unload --all or mpcc path reset", loader.ErrNotLoaded)
	}
	kept := []count{}
	for _, l := range live {
		kept = append(kept, count{l.Key, l.Used, l.Since})
	}
	text, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o644)
}

// renew begins new counts for the monthly quotas whose month has ended, or never would.
func renew(ctx context.Context) error {
	now := time.Now()
	live, err := List()
	if err != nil || !slices.ContainsFunc(live, func(l Live) bool { return l.Quota.Monthly }) {
		return err
	}
	return loader.ChangePaths(ctx, func(p *loader.Paths) error {
		for _, r := range p.Rules {
			use := p.Uses[r.Id]
			since := time.Unix(int64(use.SinceS), 0)
			bytes, begun := ruleOf(r).Quota.at(now, use.Bytes, since)
			if begun.Equal(since) {
				continue
			}
			use.Bytes, use.SinceS = bytes, uint64(begun.Unix())
			if err := p.PutUse(r.Id, use); err != nil {
				return err
			}
		}
		return nil
	})
}
