// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/internal/experiment/report"
)

func newReportCommand() *cobra.Command {
	var html string
	var join, asJSON bool
	c := &cobra.Command{
		Use:   "report DIR…",
		Short: "Show and compare what mpcc run measured",
		Long: `report reads folders that mpcc run has written, and shows what was measured, with 95 %
confidence intervals, beside what the paper says, and whether its claims were reproduced.
Folders of one scenario are compared side by side: two kernels, say, or two algorithms.
With --join they count as one instead: pieces of a long run that was done in several goes,
with other points or other seeds.

Of a single DIR it also writes report.html and the plots again, unless there is --html or -j.`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, folders []string) error {
			load := report.Load
			if join {
				load = report.Join
			}
			r, err := load(folders...)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(c.OutOrStdout(), r)
			} else {
				err = r.Text(c.OutOrStdout())
			}
			if err != nil {
				return err
			}
			if html != "" {
				return r.SaveHTML(html)
			}
			if len(folders) > 1 || asJSON {
				return nil
			}
			if err := r.Save(folders[0]); err != nil { // the folder may be somebody else's, or read-only
				fmt.Fprintln(c.ErrOrStderr(), "mpcc: report.html and the plots are not written again:", err)
			}
			return nil
		},
	}
	c.Flags().StringVar(&html, "html", "", "write the report as one self-contained page to `FILE`")
	c.Flags().BoolVar(&join, "join", false, "treat folders of one scenario as pieces of one run")
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}
