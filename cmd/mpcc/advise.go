// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/pkg/advise"
)

func newAdviseCommand() *cobra.Command {
	var o advise.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "advise",
		Short: "Tell which algorithm this host should load, if any",
		Long: `advise looks at the ways out of a network namespace – interfaces, gateways, what is paid by the
byte, RTTs, losses and rates of its connections so far – and says which kind of user of
docs/choose.md that is, why, and what was measured to be best there. Often that is the kernel's
own: load nothing. It changes nothing, and needs nothing loaded.`,
		Example: `  mpcc advise
  mpcc advise --netns phone --metered lte0`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := advise.Observe(c.Context(), o)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), r)
			}
			printAdvice(c.OutOrStdout(), r)
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&o.Netns, "netns", "n", "", "the host in this network namespace (as ip netns names it)")
	f.StringSliceVar(&o.Metered, "metered", nil, "interfaces that are paid by the byte, beside those with a quota of mpcc path")
	f.BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}

func printAdvice(w io.Writer, r advise.Report) {
	fmt.Fprintf(w, "row %s: %s\n", r.Row, r.Title)
	for _, line := range r.Why {
		fmt.Fprintf(w, "    %s\n", line)
	}
	if r.Load == "" {
		fmt.Fprintln(w, "load nothing")
	} else {
		fmt.Fprintf(w, "load %s: %s\n", r.Load, r.Command)
	}
	for _, line := range r.Measured {
		fmt.Fprintf(w, "    %s\n", line)
	}
	for _, t := range r.Trades {
		fmt.Fprintf(w, "to trade: %s\n    gains: %s\n", t.Command, t.Gain)
		if t.Cost != "" {
			fmt.Fprintf(w, "    costs: %s\n", t.Cost)
		}
	}
}
