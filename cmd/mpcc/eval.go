// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newEvalCommand() *cobra.Command {
	var set []string
	c := &cobra.Command{
		Use:   "eval NAME|OBJECT [FILE]",
		Short: "Run one decision of an algorithm on given numbers",
		Long: `eval reads a connection's subflows as JSON from FILE or standard input, runs the
algorithm's own bytecode on them in the kernel, and writes what it decides for each:
of a congestion control the increase per acknowledged segment and the window after a
loss, in packets, and the quantity that couples the subflows; of a packet scheduler,
which subflow sends. OBJECT is an object file that was built with mpcc's headers.`,
		Example: `  echo '{"subflows":[{"cwnd":10,"srtt_us":50000},{"cwnd":20,"srtt_us":100000}]}' | mpcc eval lia`,
		Args:    args(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: func(c *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(given) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // a file
			}
			return completeNamesAndFiles(c, given, prefix)
		},
		RunE: func(c *cobra.Command, names []string) error {
			e, err := findLoadable(names[0])
			if err != nil {
				return err
			}
			values, err := settings(set)
			if err != nil {
				return err
			}
			in := c.InOrStdin()
			if len(names) == 2 {
				f, err := os.Open(names[1])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			input, err := readAll(c.Context(), in)
			if err != nil {
				return err
			}
			ev, err := e.newEvaluator(values)
			if err != nil {
				return err
			}
			defer ev.Close()
			output, err := ev.EvalJSON(input)
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), string(output))
			return nil
		},
	}
	c.Flags().StringArrayVar(&set, "set", nil, setUsage)
	return c
}

// readAll is io.ReadAll, and ends with ctx: nobody may ever write to a terminal.
func readAll(ctx context.Context, in io.Reader) ([]byte, error) {
	var text []byte
	done := make(chan error, 1)
	go func() {
		var err error
		text, err = io.ReadAll(in)
		done <- err
	}()
	select {
	case err := <-done:
		return text, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
