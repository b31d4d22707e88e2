// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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
	kind  catalog.Kind
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
			d, err := diagnose(c.Context(), names)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(c.OutOrStdout(), d)
			} else {
				err = d.print(c.OutOrStdout())
			}
			if err != nil {
				return err
			}
			for _, v := range d.Algorithms {
				err = errors.Join(err, v.err)
			}
			if err != nil {
				return reported{err}
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}

func diagnose(ctx context.Context, names []string) (diagnosis, error) {
	d := diagnosis{Kernel: loader.Release(), Features: loader.Probe(catalog.CC)}
	for _, f := range loader.Probe(catalog.Sched) {
		if !slices.Contains(d.Features, f) {
			d.Features = append(d.Features, f)
		}
	}
	d.Features = append(d.Features, loader.ProbeUse()...)
	all, err := prepare(names, nil, new(map[string]string))
	if err != nil {
		return d, err
	}
	if len(names) == 0 {
		for _, e := range catalog.Entries {
			all = append(all, loadable{Entry: e})
		}
	}
	for _, l := range all {
		if ctx.Err() != nil {
			return d, context.Cause(ctx)
		}
		v := verdict{Name: l.ID(), err: l.check(), kind: l.Kind}
		v.Works = v.err == nil
		if v.err != nil {
			v.Why = v.err.Error()
		}
		d.Algorithms = append(d.Algorithms, v)
	}
	return d, nil
}

func (d diagnosis) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "KERNEL %s\n", d.Kernel)
	for _, f := range d.Features {
		state := "yes"
		switch {
		case !f.Present:
			state = "no: " + f.Mend
		case f.Origin != "":
			state = "yes: " + f.Origin
		}
		if f.Limits != "" {
			state += ", with limits: " + f.Limits
		}
		fmt.Fprintf(t, "%s\t%s\n", f.Name, state)
	}
	fmt.Fprintln(t, "\t\nALGORITHM\tCAN BE ATTACHED")
	work := 0
	for _, v := range d.Algorithms {
		state := "no"
		if v.Works {
			state = "yes"
			work++
		}
		fmt.Fprintf(t, "%s\t%s\n", v.Name, state)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d of %d can run here\n", work, len(d.Algorithms))
	d.printReasons(w)
	return nil
}

// printReasons writes each reason why algorithms cannot run once, after the names of all that it holds for.
func (d diagnosis) printReasons(w io.Writer) {
	var reasons []string
	for _, v := range d.Algorithms {
		if !v.Works && !slices.Contains(reasons, v.Why) {
			reasons = append(reasons, v.Why)
		}
	}
	for _, why := range reasons {
		var who []string
		for _, k := range []catalog.Kind{catalog.CC, catalog.Sched} {
			names, all := []string{}, 0
			for _, v := range d.Algorithms {
				if v.kind != k {
					continue
				}
				all++
				if v.Why == why {
					names = append(names, v.Name)
				}
			}
			if len(names) == all && all > 1 {
				names = []string{"the " + k.Noun() + "s"}
			}
			who = append(who, names...)
		}
		fmt.Fprintf(w, "%s: %s\n", strings.Join(who, ", "), why)
	}
}
