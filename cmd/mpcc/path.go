// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/signal"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/paths"
)

func newPathCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "path",
		Short: "Say which paths to prefer: rank, weight, cap, quota, exclusion",
		Long: `The packet scheduler prefer obeys these rules, for what this host sends. A path is named by the
interface that it leaves through, or by local=ADDRESS[/BITS], remote=ADDRESS[/BITS], or the ids of these
addresses (ss -M shows them), local-id=N, remote-id=N. A change takes effect on running connections. See
docs/path.md.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPathShowCommand(), newPathSetCommand(), newPathResetCommand(), newPathSaveCommand(), newPathKeepCommand())
	return c
}

// keyFlags adds --only and --netns, and returns what reads the key for a path.
func keyFlags(c *cobra.Command) func(path string) (paths.Key, error) {
	var key paths.Key
	var only string
	c.Flags().StringVar(&only, "only", "", "for connections with mark=N, port=N (at either end) or cgroup=PATH")
	netnsFlag(c, &key.Netns)
	return func(path string) (paths.Key, error) {
		var err error
		if key.Path, err = paths.ParsePath(path); err != nil {
			return key, usageErr{err}
		}
		if key.Only, err = paths.ParseOnly(only); err != nil {
			return key, usageError("--only %w", err)
		}
		return key, nil
	}
}

func newPathSetCommand() *cobra.Command {
	var rank, weight uint32
	var spill, limit, quota, used string
	var exclude bool
	c := &cobra.Command{
		Use:   "set PATH",
		Short: "Give a path a rule, or change it",
		Long: `set changes what its options say of a path's rule, and leaves the rest of it. A new rule has rank 1, and
neither weight, cap nor quota; a path without a rule is like that.`,
		Example: `  mpcc path set lte0 --rank 2 --quota 20G/month --spill
  mpcc path set lte0 --rank 2 --spill=100ms --cap 5mbit
  mpcc path set dsl0 --weight 3
  mpcc path set remote=198.51.100.0/24 --exclude
  mpcc path set sat0 --exclude --only port=443`,
		Args: args(cobra.ExactArgs(1)),
	}
	f := c.Flags()
	f.Uint32Var(&rank, "rank", 1, "1 is the best; worse ones are used when all better ones have failed, or spill")
	f.StringVar(&spill, "spill", "never", "take what better ranks cannot: as soon as they are full, or (--spill=100ms) with so long a queue; --spill=never")
	f.Lookup("spill").NoOptDefVal = "0s"
	f.Uint32Var(&weight, "weight", 0, "share among the paths of its rank that have room; 0 for none")
	f.StringVar(&limit, "cap", "none", "rate, of all connections together, such as 800kbit or 5mbit")
	f.StringVar(&quota, "quota", "none", "bytes, such as 500M or 20G/month (powers of 1000); then the path is a backup")
	f.StringVar(&used, "used", "", "bytes that the quota is to count as used, such as what the modem shows")
	f.BoolVar(&exclude, "exclude", false, "use it only where nothing else is alive; --exclude=false")
	key := keyFlags(c)
	c.RunE = func(c *cobra.Command, given []string) error {
		k, err := key(given[0])
		if err != nil {
			return err
		}
		var asked paths.Rule
		for _, text := range []struct {
			flag, given string
			into        interface{ UnmarshalText([]byte) error }
		}{{"spill", spill, &asked.Spill}, {"cap", limit, &asked.Cap}, {"quota", quota, &asked.Quota}} {
			if err := text.into.UnmarshalText([]byte(text.given)); err != nil {
				return usageError("--%s %w", text.flag, err)
			}
		}
		var count *uint64
		if f.Changed("used") {
			n, err := paths.ParseBytes(used)
			if err != nil {
				return usageError("--used %w", err)
			}
			count = &n
		}
		if err := paths.CheckInterface(k); err != nil {
			return err
		}
		_, err = paths.Set(c.Context(), k, count, func(r *paths.Rule) error {
			for flag, change := range map[string]func(){
				"rank":    func() { r.Rank = rank },
				"weight":  func() { r.Weight = weight },
				"spill":   func() { r.Spill = asked.Spill },
				"cap":     func() { r.Cap = asked.Cap },
				"quota":   func() { r.Quota = asked.Quota },
				"exclude": func() { r.Excluded = exclude },
			} {
				if f.Changed(flag) {
					change()
				}
			}
			if err := r.Check(); err != nil {
				return usageErr{err}
			}
			return nil
		})
		return err
	}
	return c
}

func newPathResetCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "reset PATH",
		Short: "Take a path's rule away, and its count",
		Args:  args(cobra.MaximumNArgs(1)),
	}
	c.Flags().BoolVar(&all, "all", false, "those of all paths of the network namespace")
	key := keyFlags(c)
	c.RunE = func(c *cobra.Command, given []string) error {
		if all == (len(given) == 1) {
			return usageError("name a path, or give --all; see %s --help", c.CommandPath())
		}
		if all {
			name, _ := c.Flags().GetString("netns")
			_, err := paths.ResetAll(c.Context(), name)
			return err
		}
		k, err := key(given[0])
		if err != nil {
			return err
		}
		_, err = paths.Reset(c.Context(), k)
		return err
	}
	return c
}

func newPathShowCommand() *cobra.Command {
	var asJSON bool
	var name string
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the rules, and what each path has carried",
		Args:  args(cobra.NoArgs),
	}
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	netnsFlag(c, &name)
	c.RunE = func(c *cobra.Command, _ []string) error {
		live, err := paths.List()
		if err != nil {
			return err
		}
		if name != "" {
			ns, err := netns.Named(name)
			if err != nil {
				return err
			}
			live = slices.DeleteFunc(live, func(l paths.Live) bool { return l.Inode != ns.Inode })
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), map[string]any{"paths": live})
		}
		return printPaths(c.OutOrStdout(), live)
	}
	return c
}

func printPaths(w io.Writer, live []paths.Live) error {
	if len(live) == 0 {
		fmt.Fprintln(w, "no path has a rule; mpcc path set PATH gives it one")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tONLY\tNETNS\tRANK\tSPILL\tWEIGHT\tCAP\tUSED\tQUOTA\tSTATE")
	for _, l := range live {
		weight, state := "-", "in use"
		if l.Weight > 0 {
			weight = strconv.FormatUint(uint64(l.Weight), 10)
		}
		switch {
		case l.Excluded:
			state = "excluded"
		case l.Spent:
			state = "quota used up"
		}
		fmt.Fprintf(t, "%v\t%s\t%s\t%d\t%v\t%s\t%v\t%s\t%v\t%s\n", l.Path, cmp.Or(l.Only.String(), "-"), cmp.Or(l.Netns, "-"),
			l.Rank, l.Spill, weight, l.Cap, paths.FormatBytes(l.Used), l.Quota, state)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	loaded, err := loader.Loaded()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(loaded, func(e catalog.Entry) bool { return e.ID() == "sched/prefer" }) {
		fmt.Fprintln(w, "\nnothing obeys these rules yet: mpcc load prefer --default has new connections do so")
	}
	return nil
}

func newPathSaveCommand() *cobra.Command {
	file := paths.ConfigFile
	c := &cobra.Command{
		Use:   "save",
		Short: "Write the rules to the file that path keep reads",
		Args:  args(cobra.NoArgs),
	}
	c.Flags().StringVar(&file, "file", file, "where to")
	c.RunE = func(c *cobra.Command, _ []string) error {
		n, err := paths.Save(file)
		if err == nil {
			fmt.Fprintf(c.OutOrStdout(), "%s: rules for %d paths\n", file, n)
		}
		return err
	}
	return c
}

func newPathKeepCommand() *cobra.Command {
	own, counts := paths.ConfigFile, paths.CountsFile
	c := &cobra.Command{
		Use:   "keep",
		Short: "Make the saved rules live, and have quotas survive reboots",
		Long: `keep makes the rules of a file live, as mpcc path save has written it, goes on with the counts of
quotas from before the reboot, writes them once a minute, and begins those of monthly quotas anew on the first.
Where /etc/mpcc/config.yaml declares rules, it takes these; without rules, it keeps the counts of those that
are live. It runs until it is ended;
deploy/systemd/mpcc-paths.service runs it.`,
		Args: args(cobra.NoArgs),
	}
	c.Flags().StringVar(&own, "file", own, "the rules, in place of those of the configuration")
	c.Flags().StringVar(&counts, "counts", counts, "the counts")
	configFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		file, err := declared(c)
		if err != nil {
			return err
		}
		rules := file.Paths
		if len(rules) == 0 || c.Flags().Changed("file") {
			rules, err = paths.ReadFile(own)
			if errors.Is(err, fs.ErrNotExist) && !c.Flags().Changed("file") {
				err = nil // the counts of the rules that are live are kept
			}
			if err != nil {
				return err
			}
		}
		ctx, stop := signal.NotifyContext(c.Context(), unix.SIGHUP)
		defer stop()
		err = paths.Keep(ctx, rules, counts)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	return c
}
