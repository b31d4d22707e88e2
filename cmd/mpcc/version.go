// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/mpcc/mpcc/loader"
)

// version is what this mpcc calls itself.
var version = cmp.Or(release, built())

// release is the version that make build has the linker put here; other builds leave it empty.
var release string

// built returns the version that go install or go build left in the binary.
func built() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

// versionOf returns the version of the module that go install fetched or, of a build in a clone, the pseudo-version
// that go build made of the commit or, if it made none, the commit.
func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	v, changed := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "-dirty"
		}
	}
	return v + changed
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of mpcc, and the kernel it runs on",
		Args:  args(cobra.NoArgs),
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "mpcc %s (%s, kernel %s)\n", version, runtime.Version(), loader.Release())
		},
	}
}

func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a folder",
		Hidden: true,
		Args:   args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, dirs []string) error {
			if err := os.MkdirAll(dirs[0], 0o755); err != nil {
				return err
			}
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Title: "MPCC", Section: "8", Source: "mpcc " + version}, dirs[0])
		},
	}
}
