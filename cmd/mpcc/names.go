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

// find returns the algorithm of a name: one of mpcc's, or of an object file that is loaded. An unknown name is a usage
// error.
func find(name string) (catalog.Entry, error) {
	e, err := catalog.Find(name)
	if err == nil {
		return e, nil
	}
	if objects, forbidden := loader.LoadedObjects(); forbidden == nil {
		for _, o := range objects {
			if name == o.Name || name == o.Entry().ID() {
				return o.Entry(), nil
			}
		}
	}
	return e, usageErr{err}
}

// isObject reports whether an algorithm is of an object file.
func isObject(e catalog.Entry) bool {
	_, err := catalog.Find(e.ID())
	return err != nil
}

// isFile reports whether a user means a file and no name.
func isFile(name string) bool {
	kind, _, slash := strings.Cut(name, "/")
	isID := kind == string(catalog.CC) || kind == string(catalog.Sched)
	return slash && !isID || strings.HasSuffix(name, ".o")
}

// findLoadable returns the algorithm of a name that mpcc brings, or of a file.
func findLoadable(name string) (loadable, error) {
	if isFile(name) {
		o, err := loader.ReadObject(name)
		if err != nil {
			return loadable{}, err
		}
		return loadable{o.Entry, o}, nil
	}
	e, err := find(name)
	if err == nil && isObject(e) {
		return loadable{}, usageError("%s is loaded, from an object file; name the file to load it anew or to switch to what it has now", e)
	}
	return loadable{e, nil}, err
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
	all := catalog.Entries
	if objects, forbidden := loader.LoadedObjects(); forbidden == nil {
		for _, o := range objects {
			e := o.Entry()
			e.Title = o.File
			all = append(slices.Clip(all), e)
		}
	}
	var names []string
	for _, e := range all {
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

// completeNamesAndFiles completes both on the command line.
func completeNamesAndFiles(c *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if isFile(prefix) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return completeNames(c, given, prefix)
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
