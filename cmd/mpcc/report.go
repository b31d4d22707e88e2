// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/experiment/report"
)

func newReportCommand() *cobra.Command {
	var html, repeats, latex, against string
	var margin float64
	var join, asJSON bool
	c := &cobra.Command{
		Use:   "report DIR…",
		Short: "Show and compare what mpcc run measured",
		Long: `report reads folders that mpcc run has written, and shows what was measured, with 95 %
confidence intervals, beside what the paper says, and whether its claims were reproduced.
Folders of one scenario are compared side by side: two kernels, say, or two algorithms.
With --join they count as one instead: pieces of a long run that was done in several goes,
with other points or other seeds.

--against cc=lia says at a glance what is more, less or the same as with LIA: by tests over
repeats, corrected for all that is compared. --csv and --latex write every run's figures,
and the tables for a paper.

Of a single DIR it also writes report.html and the plots again, unless there is --html or -j.`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, folders []string) error {
			if margin <= 0 || margin > 50 {
				return usageError("--margin %g: it is a percentage, above 0 and up to 50", margin)
			}
			if asJSON && against != "" {
				return usageError("--against writes a table: leave out -j")
			}
			axis, value, err := report.Baseline(against)
			if against != "" && err != nil {
				return usageError("--against: %v", err)
			}
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
			if err == nil && against != "" {
				err = compare(c.OutOrStdout(), r, axis, value, margin)
			}
			if err != nil {
				return err
			}
			for _, file := range []struct {
				path  string
				write func(io.Writer) error
			}{{repeats, r.WriteRepeats}, {latex, r.LaTeX}} {
				if err := writeFile(file.path, file.write); err != nil {
					return err
				}
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
	c.Flags().StringVar(&repeats, "csv", "", "write every run's figures to `FILE`, a row for each run and metric")
	c.Flags().StringVar(&latex, "latex", "", "write the tables to `FILE`, as LaTeX with booktabs")
	c.Flags().StringVar(&against, "against", "", "compare with another value of a variable, as in cc=lia")
	c.Flags().Float64Var(&margin, "margin", 5, "percent up to which --against calls two means the same")
	c.Flags().BoolVar(&join, "join", false, "treat folders of one scenario as pieces of one run")
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}

// writeFile writes a file in one step; nothing without a path.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return atomicfile.Write(path, text.Bytes(), 0o644)
}

// compare writes how everything compares with a baseline.
func compare(w io.Writer, r *report.Report, axis, value string, margin float64) error {
	tables, err := r.Against(axis, value, margin/100)
	if err != nil {
		return fmt.Errorf("--against: %w", err)
	}
	for _, t := range tables {
		if err := t.Text(w); err != nil {
			return err
		}
	}
	return nil
}
