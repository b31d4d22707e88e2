// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/pkg/why"
)

func newWhyCommand() *cobra.Command {
	var o why.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "why [TOKEN]",
		Short: "Tell why connections do not aggregate their paths",
		Long: `why watches the MPTCP connections of a network namespace for two seconds, and says of each what holds
it down: the cause, the evidence, and the command that mends it. First comes what holds for all connections.
With a TOKEN, as ss -M shows it, it judges that connection alone. It needs nothing loaded; of congestion
controls and packet schedulers of mpcc it tells more. docs/why.md has the causes.`,
		Example: `  mpcc why
  mpcc why f3fd52c2 --netns phone --interval 5s`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, tokens []string) error {
			if o.Interval < why.ShortestInterval {
				return usageError("--interval %v: give at least %v", o.Interval, why.ShortestInterval)
			}
			if len(tokens) > 0 {
				token, err := strconv.ParseUint(tokens[0], 16, 32)
				if err != nil || token == 0 {
					return usageError("%q is not a token; ss -M shows them, such as f3fd52c2", tokens[0])
				}
				o.Token = uint32(token)
			}
			r, err := why.Observe(c.Context(), o)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), r)
			}
			printReport(c.OutOrStdout(), r)
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&o.Netns, "netns", "n", "", "connections in this network namespace (as ip netns names it)")
	f.DurationVar(&o.Interval, "interval", why.DefaultInterval, "how long to watch")
	f.BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}

func printReport(w io.Writer, r why.Report) {
	for _, f := range r.Host {
		fmt.Fprintf(w, "host: %s\n", f.Says)
		printFinding(w, f)
	}
	for i, c := range r.Connections {
		if i > 0 || len(r.Host) > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s > %s\n", c.Token, c.Local, c.Remote)
		for _, f := range c.Findings {
			fmt.Fprintf(w, "%s\n", f.Says)
			printFinding(w, f)
		}
	}
}

func printFinding(w io.Writer, f why.Finding) {
	for _, e := range f.Evidence {
		fmt.Fprintf(w, "    %s\n", e)
	}
	if f.Mend != "" {
		fmt.Fprintf(w, "    mend: %s\n", f.Mend)
	}
}
