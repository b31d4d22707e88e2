// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
)

// find returns the algorithm of a name. An unknown name is a usage error.
func find(name string) (catalog.Entry, error) {
	e, err := catalog.Find(name)
	if err != nil {
		return e, usageErr{err}
	}
	return e, nil
}

// findAll returns the algorithms of these names, without duplicates. It fails if one of them is unknown.
func findAll(names []string) ([]catalog.Entry, error) {
	var all []catalog.Entry
	for _, name := range names {
		e, err := find(name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(f catalog.Entry) bool { return f.ID() == e.ID() }) {
			all = append(all, e)
		}
	}
	return all, nil
}

// completeNames completes algorithm names on the command line.
func completeNames(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, e := range catalog.Entries {
		name := e.String()
		if strings.Contains(prefix, "/") {
			name = e.ID()
		}
		if strings.HasPrefix(name, prefix) {
			names = append(names, name+"\t"+e.Title)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// settings reads --set name=value and --set paper.
func settings(given []string) (map[string]string, error) {
	set := map[string]string{}
	for _, s := range given {
		name, value, ok := strings.Cut(s, "=")
		switch {
		case name == loader.Paper && ok:
			return nil, usageError("--set %s: paper takes no value; say --set paper", s)
		case name == "" || !ok && name != loader.Paper:
			return nil, usageError("--set %s: say name=value, or paper", s)
		}
		set[name] = value
	}
	return set, nil
}

// writeJSON writes a value for programs to read.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
