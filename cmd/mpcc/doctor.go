// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
)

type diagnosis struct {
	Kernel     string           `json:"kernel"`
	Features   []loader.Feature `json:"features"`
	Algorithms []verdict        `json:"algorithms"`
}

type verdict struct {
	Name  string `json:"name"`
	Works bool   `json:"works"`
	Why   string `json:"why,omitempty"`
	err   error
}

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor [NAME...]",
		Short: "Say which algorithms this kernel can run, and what it lacks for the others",
		Long: `doctor looks up what the kernel has and has its verifier check each algorithm; it
attaches nothing. It fails if one of the algorithms cannot run here.`,
		ValidArgsFunction: completeNames,
		RunE: func(c *cobra.Command, names []string) error {
			d, err := diagnose(names)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(c.OutOrStdout(), d)
			} else {
				err = d.print(c)
			}
			for _, v := range d.Algorithms {
				err = errors.Join(err, v.err)
			}
			if err != nil {
				return &summary{errors.New("not every algorithm can run here; see above"), err}
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}

// summary says one line and stays what its cause is.
type summary struct {
	error
	cause error
}

func (s *summary) Unwrap() error { return s.cause }

func diagnose(names []string) (diagnosis, error) {
	d := diagnosis{Kernel: loader.Release(), Features: loader.Probe(catalog.CC)}
	for _, f := range loader.Probe(catalog.Sched) {
		if !slices.Contains(d.Features, f) {
			d.Features = append(d.Features, f)
		}
	}
	entries := catalog.Entries
	if len(names) > 0 {
		entries = nil
		for _, name := range names {
			e, err := find(name)
			if err != nil {
				return d, err
			}
			entries = append(entries, e)
		}
	}
	for _, e := range entries {
		v := verdict{Name: e.ID(), err: loader.Check(e)}
		v.Works = v.err == nil
		if v.err != nil {
			v.Why = v.err.Error()
		}
		d.Algorithms = append(d.Algorithms, v)
	}
	return d, nil
}

func (d diagnosis) print(c *cobra.Command) error {
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "KERNEL %s\n", d.Kernel)
	for _, f := range d.Features {
		state := "yes"
		switch {
		case !f.Present:
			state = "no: " + f.Mend
		case f.Origin != "":
			state = "yes: " + f.Origin
		}
		fmt.Fprintf(t, "%s\t%s\n", f.Name, state)
	}
	fmt.Fprintln(t, "\t\nALGORITHM\tCAN BE ATTACHED")
	for _, v := range d.Algorithms {
		state := "yes"
		if !v.Works {
			state = "no: " + v.Why
		}
		fmt.Fprintf(t, "%s\t%s\n", v.Name, state)
	}
	return t.Flush()
}
