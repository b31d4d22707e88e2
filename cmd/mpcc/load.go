// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/figures"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
)

func newLoadCommand() *cobra.Command {
	var o loader.Options
	var set []string
	var smallPieces bool
	c := &cobra.Command{
		Use:   "load NAME|FILE...",
		Short: "Attach algorithms to the kernel under their own names",
		Long: `load attaches the algorithms and pins them under /sys/fs/bpf/mpcc, so that they stay
after mpcc has ended. From then on sysctl net.ipv4.tcp_congestion_control, ip route … congctl
and setsockopt(TCP_CONGESTION) take the name of a congestion control, and sysctl
net.mptcp.scheduler that of a packet scheduler. Where a congestion control and a scheduler
have the same name, say cc/NAME or sched/NAME. Loading an algorithm again is no error. Where
/sys/fs/bpf is no BPF file system, load mounts one.

FILE is an object file with a congestion control or a packet scheduler of somebody else's, such as
./mine.bpf.o: anything with a slash, or that ends in .o. The other commands know it by the name that
it has in the kernel. See docs/extend.md.

A packet scheduler chooses once for each piece in which the kernel hands data over: 32 KB, some
20 packets. --small-pieces makes it one page of memory, 4 KB, by setting
net.core.high_order_alloc_disable for the whole machine, until the last scheduler is unloaded.

The first load also makes the maps that all algorithms share, with room for --max-subflows
live subflows (by default one for each 64 KiB of the machine's memory, 1024 to 262144) and
for half as many connections under packet schedulers.`,
		Example:           "  mpcc load dts\n  mpcc load olia minrtt --default --netns wan1,wan2\n  mpcc load olia --set metric=square\n  mpcc load dts --set paper --set min_cwnd=2\n  mpcc load sched/cdd --default --small-pieces\n  mpcc load ./mine.bpf.o",
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeNamesAndFiles,
		RunE: func(c *cobra.Command, names []string) error {
			all, err := prepare(names, set, &o.Set)
			if err != nil {
				return err
			}
			if len(o.Netns) > 0 && !o.Default {
				return usageError("--netns names where --default applies; say --default too")
			}
			if o.Default {
				if err := oneOfEachKind(all); err != nil {
					return err
				}
			}
			isSched := func(l loadable) bool { return l.Kind == catalog.Sched }
			if smallPieces && !slices.ContainsFunc(all, isSched) {
				return usageError("--small-pieces is for packet schedulers, and %s is none", strings.Join(names, ", "))
			}
			for _, l := range all {
				o.SmallPieces, o.Object = smallPieces && isSched(l), l.object
				done, err := loader.Load(c.Context(), l.Entry, o)
				reportLoaded(c.OutOrStdout(), l.Entry, o, done, err)
				if err != nil {
					return err
				}
				if limits := loader.Limits(l.Entry); limits != "" && l.object == nil {
					fmt.Fprintf(c.OutOrStdout(), "%s: with this kernel's own type of packet schedulers: %s\n", l, limits)
				}
			}
			if !slices.ContainsFunc(all, isSched) {
				return warnOfStarving(c.OutOrStdout(), all, o.Set)
			}
			return nil
		},
	}
	addLoadFlags(c, &o.DryRun, &set)
	c.Flags().BoolVar(&o.Default, "default", false, "make them the defaults of the network namespace")
	c.Flags().StringSliceVar(&o.Netns, "netns", nil, "with --default: the namespaces, as ip netns names them, instead of this one")
	c.Flags().BoolVar(&smallPieces, "small-pieces", false, "have schedulers choose for each page of memory, 4 KB, instead of 32 KB")
	c.Flags().IntVar(&o.MaxSubflows, "max-subflows", 0, "live subflows that the maps have room for; 0: by the machine's memory")
	return c
}

const setUsage = "set a tunable, name=value, or all to the paper's values: paper; mpcc list -v shows them"

func addLoadFlags(c *cobra.Command, dryRun *bool, set *[]string) {
	c.Flags().StringArrayVar(set, "set", nil, setUsage)
	c.Flags().BoolVar(dryRun, "dry-run", false, "have the kernel verify it, change nothing")
}

// loadable is an algorithm with its object file, if it is none of mpcc's.
type loadable struct {
	catalog.Entry
	object *loader.Object
}

// prepare finds the algorithms, and makes sure that each of them can be given the tunables, before
// anything is done with one.
func prepare(names, set []string, tunables *map[string]string) ([]loadable, error) {
	var all []loadable
	for _, name := range names {
		l, err := findLoadable(name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(a loadable) bool { return a.ID() == l.ID() }) {
			all = append(all, l)
		}
	}
	var err error
	if *tunables, err = settings(set); err != nil {
		return nil, err
	}
	for _, l := range all {
		if err := l.checkTunables(*tunables); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (l loadable) checkTunables(set map[string]string) error {
	if l.object != nil {
		return l.object.CheckTunables(set)
	}
	return loader.CheckTunables(l.Entry, set)
}

func (l loadable) check() error {
	if l.object != nil {
		return l.object.Check()
	}
	return loader.Check(l.Entry)
}

func (l loadable) newEvaluator(tunables map[string]string) (*loader.Evaluator, error) {
	if l.object != nil {
		return l.object.NewEvaluator(tunables)
	}
	return loader.NewEvaluator(l.Entry, tunables)
}

// oneOfEachKind refuses two that cannot both be the default.
func oneOfEachKind(all []loadable) error {
	first := map[catalog.Kind]loadable{}
	for _, e := range all {
		if other, two := first[e.Kind]; two {
			return usageError("--default: %s and %s are both a %s; a namespace has one as its default", other, e, e.Kind.Noun())
		}
		first[e.Kind] = e
	}
	return nil
}

// warnOfStarving names the congestion controls that should not run with the kernel's packet scheduler. As published, most
// rules may leave a window of a few packets to a subflow that shares no bottleneck. The kernel's packet scheduler takes such a
// subflow for fast while much data is queued on the subflow, and queues more there; the fast subflows then have nothing to
// send. With growth=cubic no subflow has so small a window, not even with couple=always: simulated over fibre of 20 Mbit/s, LTE
// of 6 and Wi-Fi of 9 that lose 0.2 and 0.5 %, every control then has at least 24.6 Mbit/s, and one TCP on the fibre 19.1.
func warnOfStarving(w io.Writer, all []loadable, set map[string]string) error {
	for _, l := range all {
		if l.Kind != catalog.CC || l.object != nil {
			continue
		}
		tunables, err := loader.Tunables(l.Entry)
		if err != nil {
			return err
		}
		value := map[string]string{}
		for _, t := range tunables {
			value[t.Name] = t.Value(set)
		}
		if value["couple"] == "always" && value["growth"] == "reno" {
			fmt.Fprintf(w, "%s: couples subflows that share nothing and may starve one, which then stops the others under the kernel's packet scheduler; mpcc load earliest --default prevents that\n", l)
		}
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
	case o.Object != nil:
		fmt.Fprintf(w, "%s: was loaded already; mpcc switch %s gives it what the file has now\n", e, o.Object.File)
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
		c.Subflows, c.Connections, figures.Size(c.Bytes))
}

func newSwitchCommand() *cobra.Command {
	var o loader.SwitchOptions
	var set []string
	c := &cobra.Command{
		Use:   "switch NAME|FILE...",
		Short: "Replace loaded algorithms' programs, each in one step",
		Long: `switch replaces the programs that are loaded under each name by those of this mpcc, or of the
object FILE, with the tunables given. The name stays available throughout; new connections get the new
programs, live ones keep theirs. Tunables that are not given get their defaults.`,
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeNamesAndFiles,
		RunE: func(c *cobra.Command, names []string) error {
			all, err := prepare(names, set, &o.Set)
			if err != nil {
				return err
			}
			for _, e := range all {
				o.Object = e.object
				if err := loader.Switch(c.Context(), e.Entry, o); err != nil {
					return err
				}
				if o.DryRun {
					fmt.Fprintf(c.OutOrStdout(), "%s: the kernel accepts it; nothing was switched\n", e)
				} else {
					fmt.Fprintf(c.OutOrStdout(), "%s: switched; live connections keep the programs they have\n", e)
				}
			}
			return warnOfStarving(c.OutOrStdout(), all, o.Set)
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
algorithm is, and ends its use in cgroups, then detaches it. Live connections run its
programs until they close. --all also removes the live state, the totals, the energy
profiles and all that mpcc use has set, even while such connections last.`,
		Args: func(_ *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usageError("name the algorithms, or say --all")
			}
			return nil
		},
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			if all {
				unloaded, ended, err := loader.UnloadAll(c.Context())
				for _, u := range ended {
					fmt.Fprintf(c.OutOrStdout(), "%s: no longer used %s\n", u.What, u.Where())
				}
				for _, u := range unloaded {
					reportUnloaded(c.OutOrStdout(), u)
				}
				if len(unloaded)+len(ended) == 0 && err == nil {
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
	for _, used := range u.Ended {
		fmt.Fprintf(out, "%s: no longer used %s\n", u.Name, used.Where())
	}
	if _, err := catalog.Find(u.Name); err != nil {
		// Of an object file: the maps may know nothing of it.
		u.Live = max(u.Live, liveConnections(catalog.Entry{Kind: u.Kind, Name: u.Name}))
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
