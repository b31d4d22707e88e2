// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/catalog"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

type status struct {
	Kernel   string           `json:"kernel"`
	Loaded   []string         `json:"loaded"`
	Defaults []loader.Default `json:"defaults"`
	// Unpriced are interfaces without an energy profile that live subflows of priced algorithms use.
	Unpriced []unpriced `json:"unpriced"`
	telemetry.Snapshot
}

type unpriced struct {
	CC        string `json:"cc"`
	Netns     uint64 `json:"netns"`
	NetnsName string `json:"netns_name,omitempty"`
	Interface string `json:"interface"`
}

func newStatusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what is loaded, and every live subflow",
		Long: `status shows the algorithms that are loaded, the namespaces whose default they are, each
live subflow as of its last refresh (at most once per RTT), and totals that outlive them.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := readStatus()
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), s)
			}
			return s.print(c.OutOrStdout())
		},
	}
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}

func readStatus() (status, error) {
	s := status{Kernel: loader.Release(), Loaded: []string{}, Unpriced: []unpriced{}}
	loaded, err := loader.Loaded()
	if err != nil {
		return s, err
	}
	for _, e := range loaded {
		s.Loaded = append(s.Loaded, e.ID())
	}
	if s.Defaults, err = loader.Defaults(); err != nil {
		return s, err
	}
	source, err := telemetry.Open()
	if err != nil {
		return s, err
	}
	defer source.Close()
	if s.Snapshot, err = source.Read(); err != nil {
		return s, err
	}
	if len(s.Loaded)+len(s.Defaults)+len(s.Subflows)+len(s.Totals) == 0 {
		return s, loader.ErrNothingLoaded // the maps are there, with energy profiles or with nothing
	}
	s.Unpriced = append(s.Unpriced, findUnpriced(s.Subflows)...)
	return s, nil
}

// findUnpriced names each interface once for each algorithm that would want its price.
func findUnpriced(subflows []telemetry.Subflow) []unpriced {
	var found []unpriced
	for _, f := range subflows {
		u := unpriced{f.CC, f.Netns, f.NetnsName, f.Interface}
		if f.Priced || slices.Contains(found, u) {
			continue
		}
		if e, err := catalog.Find("cc/" + f.CC); err == nil && e.Priced {
			found = append(found, u)
		}
	}
	return found
}

func (u unpriced) String() string {
	where, option := "", ""
	if u.NetnsName != "" {
		where, option = " in netns "+u.NetnsName, " --netns "+u.NetnsName
	}
	return fmt.Sprintf("%s: no energy profile for %s%s: its connections run unpriced; mpcc energy set %s PROFILE%s gives one",
		u.CC, u.Interface, where, u.Interface, option)
}

func (s status) print(w io.Writer) error {
	if len(s.Loaded) == 0 {
		fmt.Fprintln(w, "nothing loaded")
	}
	for _, id := range s.Loaded {
		fmt.Fprintf(w, "%s loaded\n", id)
	}
	for _, d := range s.Defaults {
		was := ""
		if d.Original != "" {
			was = fmt.Sprintf(" (was %s)", d.Original)
		}
		fmt.Fprintf(w, "%s is the default of %s%s\n", catalog.Short(d.Kind, d.Set), d.Netns, was)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Subflows) > 0 {
		fmt.Fprintln(t, "\nTOKEN\tID\tCC\tIFACE\tPATH\tCWND\tSSTHRESH\tSRTT\tBASE RTT\tRATE\tRETRANS\tCOUPLING\tENERGY")
		for _, f := range s.Subflows {
			printSubflow(t, f)
		}
	}
	if len(s.Totals) > 0 {
		fmt.Fprintln(t, "\nTOTAL\tIFACE\tNETNS\tSUBFLOWS\tACKED\tRECEIVED\tRETRANS\tLOSSES\tENERGY")
		for _, total := range s.Totals {
			printTotal(t, total)
		}
	}
	err := t.Flush()
	for _, u := range s.Unpriced {
		fmt.Fprintln(w, u)
	}
	if s.Lost != (telemetry.Lost{}) {
		fmt.Fprintf(w, "not recorded: %d subflows, %d refreshes of totals, %d refreshes of connections with more than 8 subflows\n",
			s.Lost.Subflows, s.Lost.Totals, s.Lost.Siblings)
	}
	return err
}

func printSubflow(w io.Writer, f telemetry.Subflow) {
	token, ssthresh := "-", "-"
	if f.Token != 0 {
		token = f.Token.String()
	}
	if f.Ssthresh != nil {
		ssthresh = fmt.Sprint(*f.Ssthresh)
	}
	id := fmt.Sprint(f.SubflowID)
	if f.Backup {
		id += " backup"
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s > %s\t%d\t%s\t%s\t%s\t%s\t%d\t%.3f\t%s\n",
		token, id, f.CC, f.Interface, f.Local.Addr(), f.Remote.Addr(), f.Cwnd, ssthresh,
		milliseconds(f.SRTT), milliseconds(f.BaseRTT), bitRate(f.DeliveryRate), f.Retrans, f.Coupling, joules(f.Energy))
}

func printTotal(w io.Writer, t telemetry.Total) {
	netns := t.NetnsName
	if netns == "" {
		netns = fmt.Sprint(t.Netns)
	}
	energy := &t.Energy
	if t.Energy == 0 {
		energy = nil
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\n", t.CC, t.Interface, netns, t.Opened,
		size(t.BytesAcked), size(t.BytesReceived), t.Retrans, t.Losses, joules(energy))
}

func milliseconds(m telemetry.Micros) string {
	if m == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g ms", float64(m)/float64(time.Millisecond))
}

func bitRate(bytesPerSecond uint64) string {
	return scaled(float64(bytesPerSecond)*8, "bit/s")
}

func size(bytes uint64) string { return scaled(float64(bytes), "B") }

func scaled(v float64, unit string) string {
	prefix := ""
	for _, p := range []string{"k", "M", "G", "T"} {
		if v < 1000 {
			break
		}
		v, prefix = v/1000, p
	}
	return fmt.Sprintf("%.3g %s%s", v, prefix, unit)
}

// joules shows modelled energy; "-" without a profile.
func joules(e *float64) string {
	if e == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g J", *e)
}
