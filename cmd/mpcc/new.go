// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/template"
	"github.com/mpcc/mpcc/loader"
)

func newNewCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "new cc|sched NAME",
		Short: "Begin a congestion control or a packet scheduler of your own",
		Long: `new writes a folder with an algorithm that works, to be made another one: NAME.bpf.c, its rule in
floating point (reference.py), vectors, a test that compares them, and a Makefile. It builds anywhere
where mpcc's headers are installed, and mpcc load ./NAME.bpf.o loads it. See docs/extend.md.`,
		Example: "  mpcc new cc mine && make -C mine && mpcc load ./mine/mine.bpf.o\n  mpcc new sched mine --dir ~/src/mine",
		Args:    args(cobra.ExactArgs(2)),
		ValidArgsFunction: func(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(given) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"cc\ta congestion control", "sched\ta packet scheduler"}, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, given []string) error {
			kind, name := catalog.Kind(given[0]), given[1]
			if kind != catalog.CC && kind != catalog.Sched {
				return usageError("%s: say cc for a congestion control, sched for a packet scheduler", given[0])
			}
			// The name is part of the names of C functions too.
			if !regexp.MustCompile(`^[a-z][a-z0-9_]{0,14}$`).MatchString(name) {
				return usageError("%s: the kernel and C take a name of 1 to 15 letters a-z, digits and _, a letter first", name)
			}
			if err := loader.CheckName(name); err != nil {
				return err
			}
			to := cmp.Or(dir, name)
			written, err := template.Write(to, kind, name)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s is there already; --dir names another folder", to)
			}
			if err != nil {
				return err
			}
			for _, file := range written {
				fmt.Fprintln(c.OutOrStdout(), file)
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "the folder to make (default: NAME)")
	return c
}
