// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

type status struct {
	Kernel   string           `json:"kernel"`
	Loaded   []string         `json:"loaded"`
	Defaults []loader.Default `json:"defaults"`
	Maps     loader.Capacity  `json:"maps"`
	// Unpriced are the interfaces without an energy profile that connections of priced algorithms use now.
	Unpriced []unpriced `json:"unpriced"`
	telemetry.Snapshot
}

type unpriced struct {
	Algorithm string `json:"algorithm"`
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
live subflow as of its last refresh (at most once per RTT), and totals that outlive them.
Of packet schedulers it shows each connection with its subflows: how many decisions chose
the subflow, its share of the bytes, and how many decisions chose it for a retransmission,
found no room in its window (FULL), or found room and did not use it (REFUSED).`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := readStatus(c.Context())
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

func readStatus(ctx context.Context) (status, error) {
	s := status{Kernel: loader.Release(), Loaded: []string{}, Unpriced: []unpriced{}}
	loaded, err := loader.Loaded()
	if err != nil {
		return s, err
	}
	for _, e := range loaded {
		s.Loaded = append(s.Loaded, e.ID())
	}
	if s.Defaults, err = loader.Defaults(ctx); err != nil {
		return s, err
	}
	source, err := telemetry.Open()
	if err != nil {
		return s, err
	}
	defer source.Close()
	if s.Maps, err = source.Capacity(); err != nil {
		return s, err
	}
	if s.Snapshot, err = source.Read(ctx); err != nil {
		return s, err
	}
	if len(s.Loaded)+len(s.Defaults)+len(s.Subflows)+len(s.Totals)+len(s.Connections)+len(s.SchedTotals) == 0 {
		return s, loader.ErrNothingLoaded // there are maps, but they hold energy profiles at most
	}
	s.findUnpriced()
	return s, nil
}

// findUnpriced fills in Unpriced: for each algorithm that takes energy into account, each interface once.
func (s *status) findUnpriced() {
	add := func(k catalog.Kind, u unpriced) {
		if e, err := catalog.Find(string(k) + "/" + u.Algorithm); err != nil || !e.Priced {
			return
		}
		u.Algorithm = catalog.Short(k, u.Algorithm)
		if !slices.Contains(s.Unpriced, u) {
			s.Unpriced = append(s.Unpriced, u)
		}
	}
	for _, f := range s.Subflows {
		if !f.Priced {
			add(catalog.CC, unpriced{f.CC, f.Netns, f.NetnsName, f.Interface})
		}
	}
	for _, c := range s.Connections {
		for _, f := range c.Subflows {
			if f.Cost == nil && f.Interface != "" {
				add(catalog.Sched, unpriced{c.Scheduler, c.Netns, c.NetnsName, f.Interface})
			}
		}
	}
}

func (u unpriced) String() string {
	where, option := "", ""
	if u.NetnsName != "" {
		where, option = " in netns "+u.NetnsName, " --netns "+u.NetnsName
	}
	return fmt.Sprintf("%s: no energy profile for %s%s: %[1]s cannot count the energy of connections over it; mpcc energy set %[2]s PROFILE%[4]s gives one",
		u.Algorithm, u.Interface, where, option)
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
		fmt.Fprintf(w, "%s is the default of %s%s\n", catalog.Short(d.Kind, d.Set), namespaceOf(d), was)
	}
	fmt.Fprintf(w, "maps: %s\n", roomOf(s.Maps))
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
	if len(s.Connections) > 0 {
		fmt.Fprintln(t, "\nTOKEN\tID\tSCHEDULER\tIFACE\tCHOSEN\tSHARE\tBYTES\tAGAIN\tFULL\tREFUSED\tRATE\tCOST")
		for _, c := range s.Connections {
			printConnection(t, c)
		}
	}
	if len(s.SchedTotals) > 0 {
		fmt.Fprintln(t, "\nTOTAL\tNETNS\tCONNECTIONS\tDECISIONS\tWAITS\tAGAIN\tBYTES")
		for _, total := range s.SchedTotals {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", catalog.Short(catalog.Sched, total.Scheduler),
				netnsOf(total.NetnsName, total.Netns), total.Opened, total.Decisions, total.Waits,
				total.Retransmissions, size(total.Bytes))
		}
	}
	err := t.Flush()
	for _, c := range s.Connections {
		if c.Choice != nil {
			printChoice(w, c.Token, c.Choice)
		}
	}
	for _, u := range s.Unpriced {
		fmt.Fprintln(w, u)
	}
	if s.Lost != (telemetry.Lost{}) {
		fmt.Fprintf(w, "not recorded: %d subflows, %d refreshes of totals; of schedulers: %d connections, %d in the totals\n",
			s.Lost.Subflows, s.Lost.Totals, s.Lost.Connections, s.Lost.SchedTotals)
	}
	return err
}

func printConnection(w io.Writer, c telemetry.Connection) {
	for _, f := range c.Subflows {
		id := fmt.Sprint(f.SubflowID)
		if f.Backup {
			id += " backup"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.1f %%\t%s\t%d\t%d\t%d\t%s\t%s\n",
			c.Token, id, catalog.Short(catalog.Sched, c.Scheduler), f.Interface, f.Chosen, 100*f.Share,
			size(f.Bytes), f.Retransmitted, f.Full, f.Refused,
			optional(f.Rate, "Mbit/s"), optional(f.Cost, "mJ/Mbit"))
	}
}

// printChoice shows which subflows the scheduler has chosen, and what its objective is with each one more.
func printChoice(w io.Writer, token telemetry.Token, c *telemetry.SubsetChoice) {
	fmt.Fprintf(w, "%s: k* = %d of %d for %s;", token, c.K, len(c.Order), size(c.Bytes))
	for i, id := range c.Order {
		fmt.Fprintf(w, " with subflow %d O_%d = %.4g", id, i+1, c.Objective[i])
		if i < len(c.Order)-1 {
			fmt.Fprint(w, ",")
		}
	}
	fmt.Fprintln(w)
}

func optional(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g %s", *v, unit)
}

// netnsOf names a namespace.
func netnsOf(name string, inode uint64) string {
	if name == "" {
		return fmt.Sprint(inode)
	}
	return name
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
	energy := &t.Energy
	if t.Energy == 0 {
		energy = nil
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\n", t.CC, t.Interface, netnsOf(t.NetnsName, t.Netns), t.Opened,
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
