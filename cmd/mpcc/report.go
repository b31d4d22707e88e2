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
		Long: `report reads the folders that mpcc run wrote: our figures with their 95 % confidence
intervals, the paper's beside them, and whether its claims were reproduced. Folders of one
scenario are compared side by side, such as two kernels or two algorithms, or put together:
with --join they are pieces of one long run, with other points or other seeds.

One DIR has its report.html and plots drawn again, unless --html or -j says where to.`,
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
			if err := r.Save(folders[0]); err != nil { // it may be somebody else's, or read-only
				fmt.Fprintln(c.ErrOrStderr(), "mpcc: the page and the plots are not drawn again:", err)
			}
			return nil
		},
	}
	c.Flags().StringVar(&html, "html", "", "write one self-contained page to `FILE`")
	c.Flags().BoolVar(&join, "join", false, "folders of one scenario are pieces of one run")
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}
