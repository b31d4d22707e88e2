// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/pkg/use"
)

// useFlags are the flags of mpcc use.
type useFlags struct {
	netns, cgroup, sched    string
	to, dev                 string
	pids                    []int
	multipath, remove, json bool
}

func newUseCommand() *cobra.Command {
	var f useFlags
	c := &cobra.Command{
		Use:   "use [NAME] [--netns NS | --cgroup PATH | --to PREFIX | --pid PID,...]",
		Short: "Choose the congestion control of some applications; list and undo that",
		Long: `use has applications use a loaded congestion control: by default in a network namespace (--netns), for
the MPTCP connections that programs in a cgroup make (--cgroup), for those to some addresses (--to, and --dev for
one interface), or once for the connections that processes have open (--pid). --multipath gives the
programs in a cgroup MPTCP sockets where they ask for TCP ones.
--sched makes a packet scheduler the default of a namespace. Without any of these, use lists what is used where.
--remove undoes it in a place, --remove all everywhere; so does unloading the algorithm. See docs/use.md.`,
		Example: `  mpcc use dts --cgroup system.slice/backup.service
  mpcc use --multipath --cgroup system.slice/backup.service
  mpcc use lia --to 203.0.113.0/24 --dev lte0
  mpcc use olia --sched minrtt --netns wan1
  mpcc use lia --pid 1234
  mpcc use --remove --cgroup system.slice/backup.service
  mpcc use --remove all`,
		Args:              args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			name := strings.Join(names, "")
			if f.remove {
				return f.undo(c, name)
			}
			if name == "" && !c.Flags().Changed("sched") && !f.multipath {
				return f.list(c)
			}
			return f.start(c, name)
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.netns, "netns", "n", "", "connections in this network namespace (as ip netns names it) that choose none")
	flags.StringVar(&f.cgroup, "cgroup", "", "MPTCP connections of this cgroup and those below it, such as system.slice/x.service")
	flags.StringVar(&f.to, "to", "", "MPTCP connections to these addresses, such as 203.0.113.0/24 or default; with --netns, of that namespace")
	flags.StringVar(&f.dev, "dev", "", "with --to: those that leave by this interface")
	flags.IntSliceVar(&f.pids, "pid", nil, "connections that these processes have open now")
	flags.BoolVar(&f.multipath, "multipath", false, "with --cgroup: MPTCP sockets in place of TCP ones")
	flags.StringVar(&f.sched, "sched", "", "with --netns: this packet scheduler")
	flags.BoolVar(&f.remove, "remove", false, "undo it in this --netns or --cgroup, or --to there, or everywhere: --remove all")
	flags.BoolVarP(&f.json, "json", "j", false, "write the list as JSON")
	return c
}

// place returns the place that the flags name; nil where they name processes.
func (f useFlags) place() (*use.Place, error) {
	var p use.Place
	var err error
	given := 0
	switch {
	case f.to != "":
		given++
		to, parseErr := parseDestination(f.to)
		if parseErr != nil {
			return nil, parseErr
		}
		p, err = use.InDirection(to, f.dev, f.netns)
	case f.dev != "":
		return nil, usageError("--dev is one way to addresses: say --to PREFIX too, or --to default for all")
	case f.netns != "":
		given++
		p, err = use.InNetns(f.netns)
	}
	if f.cgroup != "" {
		given++
		p, err = use.InCgroup(f.cgroup)
	}
	if len(f.pids) > 0 {
		given++
	}
	if given != 1 {
		return nil, usageError("say for whom: one of --netns, --cgroup, --to and --pid")
	}
	if p == (use.Place{}) {
		return nil, err
	}
	return &p, err
}

// parseDestination understands what ip route does: a prefix, an address, default (of IPv4).
func parseDestination(s string) (netip.Prefix, error) {
	if s == "default" {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, usageError("--to %s: want addresses such as 203.0.113.0/24, 2001:db8::/32, 203.0.113.7 or default", s)
	case p != p.Masked():
		return p, usageError("--to %s has bits beyond its length; say %s", s, p.Masked())
	}
	return p, nil
}

// algorithms returns the congestion control and the packet scheduler that are asked for, if any.
func (f useFlags) algorithms(name string) (all []catalog.Entry, err error) {
	if name != "" {
		e, err := findKind(catalog.CC, name)
		if err != nil {
			return nil, err
		}
		if e.Kind != catalog.CC {
			return nil, usageError("%s is a %s; say --sched %s", e, e.Kind.Noun(), e)
		}
		all = append(all, e)
	}
	if f.sched != "" {
		e, err := findKind(catalog.Sched, f.sched)
		if err != nil {
			return nil, err
		}
		if e.Kind != catalog.Sched {
			return nil, usageError("--sched %s: it is a %s; say mpcc use %[1]s", e, e.Kind.Noun())
		}
		all = append(all, e)
	}
	return all, nil
}

// findKind is find where a bare name is of this kind if there is one.
func findKind(k catalog.Kind, name string) (catalog.Entry, error) {
	if e, err := catalog.Find(string(k) + "/" + name); err == nil {
		return e, nil
	}
	return find(name)
}

func (f useFlags) start(c *cobra.Command, name string) error {
	entries, err := f.algorithms(name)
	if err != nil {
		return err
	}
	if f.multipath && f.cgroup == "" {
		return usageError("--multipath is for a cgroup: say --cgroup PATH")
	}
	at, err := f.place()
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	for _, e := range entries {
		if at == nil {
			err = startProcesses(c.Context(), out, e, f.pids)
		} else {
			isNew, startErr := use.Start(c.Context(), e, *at)
			err = startErr
			reportUse(out, e.String(), *at, isNew, err)
		}
		if err != nil {
			return err
		}
	}
	if !f.multipath {
		return nil
	}
	isNew, err := use.StartMultipath(c.Context(), *at)
	reportUse(out, use.Multipath, *at, isNew, err)
	return err
}

func reportUse(w io.Writer, what string, at use.Place, isNew bool, err error) {
	switch {
	case err != nil:
	case isNew:
		fmt.Fprintf(w, "%s: used %s by what connects from now on\n", what, where(at))
	default:
		fmt.Fprintf(w, "%s: was used %s already\n", what, where(at))
	}
}

func where(p use.Place) string {
	if p.To.IsValid() {
		return "for " + p.String()
	}
	return "in " + p.String()
}

func startProcesses(ctx context.Context, w io.Writer, e catalog.Entry, pids []int) error {
	set, err := use.Processes(ctx, e, pids)
	if err == nil || set != (use.Connections{}) {
		fmt.Fprintf(w, "%s: set on %d MPTCP and %d TCP connections\n", e, set.MPTCP, set.TCP)
	}
	return err
}

func (f useFlags) undo(c *cobra.Command, name string) error {
	if f.multipath || f.sched != "" || len(f.pids) > 0 || name != "" && name != "all" {
		return usageError("--remove undoes all that is used in a place: say --netns NS, --cgroup PATH, --to PREFIX or all, and no more")
	}
	everywhere := func(use.Use) bool { return true }
	selected := everywhere
	if name == "" {
		at, err := f.place()
		if err != nil {
			return err
		}
		selected = func(u use.Use) bool { return u.Place == *at }
	} else if f.netns+f.cgroup+f.to+f.dev != "" {
		return usageError("--remove all is everywhere; leave out all, or --netns, --cgroup and --to")
	}
	ended, err := use.Remove(c.Context(), selected)
	for _, u := range ended {
		reportEnded(c.OutOrStdout(), u)
	}
	if len(ended) == 0 && err == nil {
		fmt.Fprintln(c.OutOrStdout(), "nothing was used there")
	}
	return err
}

func reportEnded(w io.Writer, u use.Use) {
	if u.Was != "" {
		fmt.Fprintf(w, "%s: the default of %s is %s again\n", u.What, u.Place, u.Was)
		return
	}
	fmt.Fprintf(w, "%s: no longer used %s\n", u.What, where(u.Place))
}

func (f useFlags) list(c *cobra.Command) error {
	if f.netns+f.cgroup+f.to+f.dev != "" || len(f.pids) > 0 {
		return usageError("say what to use there: mpcc use NAME, --multipath or --sched NAME; mpcc use alone lists")
	}
	all, err := use.List(c.Context())
	if err != nil {
		return err
	}
	if f.json {
		return writeJSON(c.OutOrStdout(), map[string]any{"uses": all})
	}
	if len(all) == 0 {
		fmt.Fprintln(c.OutOrStdout(), "nothing is used anywhere in particular; mpcc use --help says how")
		return nil
	}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tWHERE\tWAS")
	for _, u := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\n", u.What, u.Place, cmp.Or(u.Was, "-"))
	}
	return t.Flush()
}
