// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
)

func newLoadCommand() *cobra.Command {
	var o loader.Options
	var set []string
	c := &cobra.Command{
		Use:   "load NAME",
		Short: "Attach an algorithm to the kernel under its own name",
		Long: `load attaches the algorithm and pins it under /sys/fs/bpf/mpcc, so that it stays
after mpcc has ended. The name of a congestion control is then what sysctl
net.ipv4.tcp_congestion_control, ip route … congctl and setsockopt(TCP_CONGESTION) take;
that of a packet scheduler what sysctl net.mptcp.scheduler takes. Where both have the
name, say cc/NAME or sched/NAME. Loading what is loaded is fine.`,
		Example:           "  mpcc load dts\n  mpcc load olia --default --netns wan1,wan2\n  mpcc load olia --set metric=square\n  mpcc load sched/cdd --default",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			e, err := find(names[0])
			if err != nil {
				return err
			}
			if o.Set, err = settings(set); err != nil {
				return err
			}
			if len(o.Netns) > 0 && !o.Default {
				return usageError("--netns names where --default applies; say --default too")
			}
			loaded, err := loader.Load(e, o)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			switch {
			case o.DryRun:
				fmt.Fprintf(out, "%s: the kernel accepts it; nothing was attached\n", e)
				return nil
			case loaded:
				fmt.Fprintf(out, "%s: loaded\n", e)
			default:
				fmt.Fprintf(out, "%s: was loaded already\n", e)
			}
			if o.Default {
				where := "this network namespace"
				if len(o.Netns) > 0 {
					where = strings.Join(o.Netns, ", ")
				}
				fmt.Fprintf(out, "%s: default of %s\n", e, where)
			}
			return nil
		},
	}
	addLoadFlags(c, &o, &set)
	c.Flags().BoolVar(&o.Default, "default", false, "make it the default of the network namespace")
	c.Flags().StringSliceVar(&o.Netns, "netns", nil, "with --default: these namespaces of ip netns, not the own")
	return c
}

func addLoadFlags(c *cobra.Command, o *loader.Options, set *[]string) {
	c.Flags().StringArrayVar(set, "set", nil, "set a tunable, name=value; mpcc list -v shows them")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "have the kernel verify it, change nothing")
}

func newSwitchCommand() *cobra.Command {
	var o loader.Options
	var set []string
	c := &cobra.Command{
		Use:   "switch NAME",
		Short: "Replace a loaded algorithm's programs in one step",
		Long: `switch puts this mpcc's programs, with the tunables given, in the place of those that
are loaded under the name. The name is there throughout; new connections get the new
programs, live ones keep theirs. Tunables that are not given have their defaults.`,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			e, err := find(names[0])
			if err != nil {
				return err
			}
			if o.Set, err = settings(set); err != nil {
				return err
			}
			if err := loader.Switch(e, o); err != nil {
				return err
			}
			if o.DryRun {
				fmt.Fprintf(c.OutOrStdout(), "%s: the kernel accepts it; nothing was switched\n", e)
				return nil
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: switched; live connections keep the programs they have\n", e)
			return nil
		},
	}
	addLoadFlags(c, &o, &set)
	return c
}

func newUnloadCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "unload NAME | --all",
		Short: "Take an algorithm away again",
		Long: `unload first gives every network namespace that has the algorithm as its default the
former one back, then detaches. Live connections run the programs until they close. With
--all the live state, the totals and the energy profiles go too, even while such
connections last.`,
		Args: func(_ *cobra.Command, names []string) error {
			if all == (len(names) == 1) || len(names) > 1 {
				return usageError("name one algorithm, or say --all")
			}
			return nil
		},
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			if all {
				unloaded, err := loader.UnloadAll()
				for _, u := range unloaded {
					reportUnloaded(c, u)
				}
				if len(unloaded) == 0 && err == nil {
					fmt.Fprintln(c.OutOrStdout(), "nothing was loaded")
				}
				return err
			}
			e, err := find(names[0])
			if err != nil {
				return err
			}
			u, err := loader.Unload(e)
			if u.Name != "" {
				reportUnloaded(c, u)
			}
			return err
		},
	}
	c.Flags().BoolVar(&all, "all", false, "unload whatever is loaded, remove the maps")
	return c
}

func reportUnloaded(c *cobra.Command, u loader.Unloaded) {
	out := c.OutOrStdout()
	for _, d := range u.Restored {
		fmt.Fprintf(out, "%s: the default of %s is %s again\n", u.Name, d.Netns, d.Original)
	}
	what := "subflow"
	if u.Kind == catalog.Sched {
		what = "connection"
	}
	switch u.Live {
	case 0:
		fmt.Fprintf(out, "%s: unloaded\n", u.Name)
	case 1:
		fmt.Fprintf(out, "%s: unloaded; 1 live %s keeps its programs until it closes\n", u.Name, what)
	default:
		fmt.Fprintf(out, "%s: unloaded; %d live %ss keep its programs until they close\n", u.Name, u.Live, what)
	}
}
