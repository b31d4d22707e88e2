// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/choose"
	"github.com/mpcc/mpcc/loader"
)

type listed struct {
	Name           string           `json:"name"`
	Title          string           `json:"title"`
	Source         string           `json:"source"`
	Rule           string           `json:"rule"`
	Coupling       string           `json:"coupling,omitempty"`
	State          string           `json:"state"`
	Good           string           `json:"good_for"`
	Bad            string           `json:"bad_idea_for"`
	Reconstruction string           `json:"reconstruction,omitempty"`
	Tunables       []loader.Tunable `json:"tunables"`
	Choose         string           `json:"choose"` // rows of docs/choose.md, trade or -
	Loaded         *bool            `json:"loaded"` // null where the user may not see it
}

func newListCommand() *cobra.Command {
	var verbose, asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the algorithms, their sources and tunables",
		Long: `list shows the algorithms that mpcc brings. CHOOSE says whom each is for by what was measured
(docs/choose.md): the rows of that page that recommend it; trade, where it gains in one thing
and costs in another; and - where nothing speaks for it. mpcc advise says which row is yours.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			all := catalogue()
			if !asJSON && !verbose {
				return printList(c.OutOrStdout(), all)
			}
			for i := range all { // each from its object, which takes some milliseconds
				var err error
				if all[i].Tunables, err = loader.Tunables(catalog.Entries[i]); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), all)
			}
			printVerbose(c.OutOrStdout(), all)
			return nil
		},
	}
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "show rule, source and tunables")
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}

// catalogue returns all algorithms, without their tunables, in the order of catalog.Entries.
func catalogue() []listed {
	attached, forbidden := loader.Loaded()
	var all []listed
	for _, e := range catalog.Entries {
		l := listed{
			Name: e.ID(), Title: e.Title, Source: e.Source, Rule: e.Rule, Coupling: e.Coupling,
			State: e.State, Good: e.Good, Bad: e.Bad,
			Reconstruction: e.Reconstruction,
			Choose: choose.Word(func(c choose.Contestant) bool {
				return e.Kind == catalog.CC && c.CC == e.Name || e.Kind == catalog.Sched && c.Scheduler == e.Name
			}),
		}
		if forbidden == nil {
			loaded := slices.ContainsFunc(attached, func(a catalog.Entry) bool { return a.ID() == e.ID() })
			l.Loaded = &loaded
		}
		all = append(all, l)
	}
	return all
}

func printList(w io.Writer, all []listed) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tLOADED\tCHOOSE\tTITLE\tSOURCE")
	for _, l := range all {
		loaded := "?"
		switch {
		case l.Loaded == nil:
		case *l.Loaded:
			loaded = "yes"
		default:
			loaded = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.Name, loaded, l.Choose, l.Title, l.Source)
	}
	return t.Flush()
}

func printVerbose(w io.Writer, all []listed) {
	for i, l := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s\n  source    %s\n  rule      %s\n", l.Name, l.Title, l.Source, l.Rule)
		if l.Coupling != "" {
			fmt.Fprintf(w, "  coupling  %s\n", l.Coupling)
		}
		fmt.Fprintf(w, "  good for  %s\n  bad for   %s\n", l.Good, l.Bad)
		if l.Reconstruction != "" {
			fmt.Fprintf(w, "  reconstructed by mpcc: %s\n", l.Reconstruction)
		}
		for _, t := range l.Tunables {
			paper := ""
			if t.Paper != "" {
				paper = "; paper: " + t.Paper
			}
			fmt.Fprintf(w, "  --set %s=%s  (%s%s) %s\n", t.Name, t.Default, t.Range(), paper, t.Meaning)
		}
	}
}
