// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
)

func newLoadCommand() *cobra.Command {
	var o loader.Options
	var set []string
	c := &cobra.Command{
		Use:   "load NAME...",
		Short: "Attach algorithms to the kernel under their own names",
		Long: `load attaches the algorithms and pins them under /sys/fs/bpf/mpcc, so that they stay
after mpcc has ended. From then on sysctl net.ipv4.tcp_congestion_control, ip route … congctl
and setsockopt(TCP_CONGESTION) take the name of a congestion control, and sysctl
net.mptcp.scheduler that of a packet scheduler. Where a congestion control and a scheduler
have the same name, say cc/NAME or sched/NAME. Loading an algorithm again is no error. Where
/sys/fs/bpf is no BPF file system, load mounts one.

The first load also makes the maps that all algorithms share, with room for --max-subflows
live subflows (by default one for each 64 KiB of the machine's memory, 1024 to 262144) and
for half as many connections under packet schedulers.`,
		Example:           "  mpcc load dts\n  mpcc load olia minrtt --default --netns wan1,wan2\n  mpcc load olia --set metric=square\n  mpcc load dts --set paper --set min_cwnd=2\n  mpcc load sched/cdd --default",
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			entries, err := prepare(names, set, &o.Set)
			if err != nil {
				return err
			}
			if len(o.Netns) > 0 && !o.Default {
				return usageError("--netns names where --default applies; say --default too")
			}
			if o.Default {
				if err := oneOfEachKind(entries); err != nil {
					return err
				}
			}
			for _, e := range entries {
				done, err := loader.Load(c.Context(), e, o)
				reportLoaded(c.OutOrStdout(), e, o, done, err)
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	addLoadFlags(c, &o.DryRun, &set)
	c.Flags().BoolVar(&o.Default, "default", false, "make them the defaults of the network namespace")
	c.Flags().StringSliceVar(&o.Netns, "netns", nil, "with --default: the namespaces, as ip netns names them, instead of this one")
	c.Flags().IntVar(&o.MaxSubflows, "max-subflows", 0, "live subflows that the maps have room for; 0: by the machine's memory")
	return c
}

const setUsage = "set a tunable, name=value, or all to the paper's values: paper; mpcc list -v shows them"

func addLoadFlags(c *cobra.Command, dryRun *bool, set *[]string) {
	c.Flags().StringArrayVar(set, "set", nil, setUsage)
	c.Flags().BoolVar(dryRun, "dry-run", false, "have the kernel verify it, change nothing")
}

// prepare finds the algorithms, and makes sure that each of them can be given the tunables, before
// anything is done with one.
func prepare(names, set []string, tunables *map[string]string) ([]catalog.Entry, error) {
	entries, err := findAll(names)
	if err != nil {
		return nil, err
	}
	if *tunables, err = settings(set); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := loader.CheckTunables(e, *tunables); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// oneOfEachKind refuses two that cannot both be the default.
func oneOfEachKind(entries []catalog.Entry) error {
	first := map[catalog.Kind]catalog.Entry{}
	for _, e := range entries {
		if other, two := first[e.Kind]; two {
			return usageError("--default: %s and %s are both a %s; a namespace has one as its default", other, e, e.Kind.Noun())
		}
		first[e.Kind] = e
	}
	return nil
}

// reportLoaded writes what Load did, also what it did before it failed.
func reportLoaded(w io.Writer, e catalog.Entry, o loader.Options, done loader.Attached, err error) {
	if done.Mounted {
		fmt.Fprintln(w, "mounted a BPF file system at /sys/fs/bpf")
	}
	room := roomOf(done.Maps)
	switch {
	case done.NewMaps && done.New:
		fmt.Fprintf(w, "maps: %s\n", room)
	case err == nil && !o.DryRun && o.MaxSubflows != 0 && o.MaxSubflows != done.Maps.Subflows:
		fmt.Fprintf(w, "maps: there already, and stay as they are: %s; mpcc unload --all removes them\n", room)
	}
	switch {
	case done.New:
		fmt.Fprintf(w, "%s: loaded\n", e)
	case err != nil:
	case o.DryRun:
		fmt.Fprintf(w, "%s: the kernel accepts it; nothing was attached\n", e)
	default:
		fmt.Fprintf(w, "%s: was loaded already\n", e)
	}
	if err == nil && o.Default && !o.DryRun {
		where := "this network namespace"
		if len(o.Netns) > 0 {
			where = strings.Join(o.Netns, ", ")
		}
		fmt.Fprintf(w, "%s: default of %s\n", e, where)
	}
}

func roomOf(c loader.Capacity) string {
	return fmt.Sprintf("room for %d subflows and %d connections of schedulers, at most %s of memory",
		c.Subflows, c.Connections, size(c.Bytes))
}

func newSwitchCommand() *cobra.Command {
	var o loader.SwitchOptions
	var set []string
	c := &cobra.Command{
		Use:   "switch NAME...",
		Short: "Replace loaded algorithms' programs, each in one step",
		Long: `switch replaces the programs that are loaded under each name by those of this mpcc, with
the tunables given. The name stays available throughout; new connections get the new
programs, live ones keep theirs. Tunables that are not given get their defaults.`,
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			entries, err := prepare(names, set, &o.Set)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := loader.Switch(c.Context(), e, o); err != nil {
					return err
				}
				if o.DryRun {
					fmt.Fprintf(c.OutOrStdout(), "%s: the kernel accepts it; nothing was switched\n", e)
				} else {
					fmt.Fprintf(c.OutOrStdout(), "%s: switched; live connections keep the programs they have\n", e)
				}
			}
			return nil
		},
	}
	addLoadFlags(c, &o.DryRun, &set)
	return c
}

func newUnloadCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "unload NAME... | --all",
		Short: "Detach algorithms from the kernel",
		Long: `unload first restores the former default of every network namespace whose default the
algorithm is, then detaches it. Live connections run its programs until they close. --all
also removes the live state, the totals and the energy profiles, even while such
connections last.`,
		Args: func(_ *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usageError("name the algorithms, or say --all")
			}
			return nil
		},
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			if all {
				unloaded, err := loader.UnloadAll(c.Context())
				for _, u := range unloaded {
					reportUnloaded(c.OutOrStdout(), u)
				}
				if len(unloaded) == 0 && err == nil {
					fmt.Fprintln(c.OutOrStdout(), "nothing was loaded")
				}
				return err
			}
			entries, err := findAll(names)
			if err != nil {
				return err
			}
			for _, e := range entries {
				u, err := loader.Unload(c.Context(), e)
				if u.Name != "" {
					reportUnloaded(c.OutOrStdout(), u)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "unload whatever is loaded, remove the maps")
	return c
}

func reportUnloaded(out io.Writer, u loader.Unloaded) {
	for _, d := range u.Restored {
		fmt.Fprintf(out, "%s: the default of %s is %s again\n", u.Name, namespaceOf(d), d.Original)
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

// namespaceOf returns the namespace that has the default.
func namespaceOf(d loader.Default) netns.NS { return netns.NS{Inode: d.Inode, Name: d.Netns} }
