// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/figures"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/internal/pieces"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

type status struct {
	Kernel   string           `json:"kernel"`
	Loaded   []string         `json:"loaded"`
	Objects  []object         `json:"objects"` // those of Loaded that are of object files
	Defaults []loader.Default `json:"defaults"`
	// CgroupUses are what mpcc use has set for cgroups and destinations.
	CgroupUses []loader.CgroupUse `json:"cgroup_uses"`
	Maps       loader.Capacity    `json:"maps"`
	// Unpriced are the interfaces without an energy profile that connections of priced algorithms use now.
	Unpriced []unpriced `json:"unpriced"`
	// PieceBytes is how much a packet scheduler chooses for at a time; 0 where none is loaded.
	PieceBytes int `json:"piece_bytes,omitempty"`
	// Outdated are the sockets that run another scheduler than their namespace's default, where that is one of mpcc's.
	Outdated []outdated `json:"outdated"`
	telemetry.Snapshot
}

// object is an algorithm of somebody else's. Unless it is built with mpcc's headers, this is all there is to know.
type object struct {
	loader.LoadedObject
	Connections *int `json:"connections"` // that run it: subflows and those of TCP, or of MPTCP under a scheduler
}

type unpriced struct {
	Algorithm string `json:"algorithm"`
	Netns     uint64 `json:"netns"`
	NetnsName string `json:"netns_name,omitempty"`
	Interface string `json:"interface"`
}

// outdated are sockets of a process that were made before a scheduler became the default.
type outdated struct {
	Process     string `json:"process"`
	PID         int    `json:"pid"`
	Netns       uint64 `json:"netns"`
	NetnsName   string `json:"netns_name,omitempty"`
	Scheduler   string `json:"scheduler"`
	Listens     string `json:"listens,omitempty"`     // where; "" for connections
	Connections int    `json:"connections,omitempty"` // how many
}

func newStatusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what is loaded, and every live subflow",
		Long: `status shows the algorithms that are loaded, the namespaces whose default they are, each
live subflow as of its last refresh (at most once per RTT), and totals that outlive them.
Of an object file it shows from where and when it was loaded, and how many connections run it.
Of packet schedulers it shows each connection with its subflows: how many decisions chose
the subflow, its share of the bytes, and how many decisions chose it for a retransmission,
found no room in its window (FULL), or found room and did not use it (REFUSED). Of the scheduler
earliest it also shows how long a byte would take that is sent now (ARRIVAL), at which rate the
subflow sends (RATE), what the subflow has and is not acknowledged (HELD), and how often that was
sent again on others (REPEATED).
A socket keeps the scheduler that was its namespace's default when it was made, and what a
listener accepts has the listener's: where that is not the default any more, status says which
processes to restart.`,
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
	s := status{Kernel: loader.Release(), Loaded: []string{}, Objects: []object{}, Unpriced: []unpriced{}, Outdated: []outdated{}}
	loaded, err := loader.Loaded()
	if err != nil {
		return s, err
	}
	for _, e := range loaded {
		s.Loaded = append(s.Loaded, e.ID())
	}
	if err := s.findObjects(); err != nil {
		return s, err
	}
	if s.Defaults, err = loader.Defaults(ctx); err != nil {
		return s, err
	}
	if s.CgroupUses, err = loader.CgroupUses(); err != nil {
		return s, err
	}
	if slices.ContainsFunc(loaded, func(e catalog.Entry) bool { return e.Kind == catalog.Sched }) {
		s.PieceBytes, err = pieces.Bytes()
		if err != nil && !hidden(err) {
			return s, err
		}
	}
	if err := s.findOutdated(); err != nil && !hidden(err) {
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

// findObjects fills in Objects, and adds them to Loaded.
func (s *status) findObjects() error {
	loaded, err := loader.LoadedObjects()
	if err != nil {
		return err
	}
	for _, l := range loaded {
		o := object{LoadedObject: l}
		// Some kernels are built without the list of sockets.
		if n, err := connectionsOf(l.Entry()); err == nil {
			o.Connections = &n
		}
		s.Objects = append(s.Objects, o)
		s.Loaded = append(s.Loaded, l.Entry().ID())
	}
	return nil
}

func (o object) String() string {
	text := o.LoadedObject.String()
	switch {
	case o.Connections == nil:
		return text
	case *o.Connections == 1:
		return text + "; 1 connection runs it"
	}
	return fmt.Sprintf("%s; %d connections run it", text, *o.Connections)
}

// connectionsOf returns how many connections run an algorithm, of those in the network namespaces that this process may
// enter.
func connectionsOf(e catalog.Entry) (n int, err error) {
	if e.Kind == catalog.Sched {
		sockets, err := loader.Sockets()
		for _, k := range sockets {
			if !k.Listens && k.Scheduler == e.Name {
				n++
			}
		}
		return n, err
	}
	err = netns.Each(func(ns netns.NS) error {
		return ns.Do(func() error {
			counts, err := mptcp.CongestionControls()
			n += counts[e.Name]
			return err
		})
	})
	return n, err
}

// liveConnections is connectionsOf where not knowing it is no error: 0.
func liveConnections(e catalog.Entry) int {
	n, err := connectionsOf(e)
	if err != nil {
		return 0
	}
	return n
}

// hidden reports whether err means that this process, perhaps in a container, is not shown something.
func hidden(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)
}

// findOutdated fills in Outdated: each listener, and the connections of a process together.
func (s *status) findOutdated() error {
	isSched := func(d loader.Default) bool { return d.Kind == catalog.Sched }
	if !slices.ContainsFunc(s.Defaults, isSched) {
		return nil
	}
	sockets, err := loader.Sockets()
	if err != nil {
		return err
	}
	for _, k := range sockets {
		i := slices.IndexFunc(s.Defaults, func(d loader.Default) bool { return isSched(d) && d.Inode == k.Netns })
		if i < 0 || k.Scheduler == s.Defaults[i].Set {
			continue
		}
		o := outdated{Process: k.Process, PID: k.PID, Netns: k.Netns, NetnsName: s.Defaults[i].Netns, Scheduler: k.Scheduler}
		if k.Listens {
			o.Listens = k.Local.String()
			s.Outdated = append(s.Outdated, o)
			continue
		}
		same := func(a outdated) bool { a.Connections = 0; return a == o }
		at := slices.IndexFunc(s.Outdated, same)
		if at < 0 {
			at, s.Outdated = len(s.Outdated), append(s.Outdated, o)
		}
		s.Outdated[at].Connections++
	}
	return nil
}

func (o outdated) String() string {
	process := fmt.Sprintf("%s (process %d)", o.Process, o.PID)
	if o.NetnsName != "" {
		process += " in netns " + o.NetnsName
	}
	scheduler := catalog.Short(catalog.Sched, o.Scheduler)
	switch {
	case o.Listens != "":
		return fmt.Sprintf("%s listens at %s with scheduler %s, and so has what it accepts; restart it for the default", process, o.Listens, scheduler)
	case o.Connections == 1:
		return fmt.Sprintf("%s: a connection keeps scheduler %s", process, scheduler)
	}
	return fmt.Sprintf("%s: %d connections keep scheduler %s", process, o.Connections, scheduler)
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
		if !slices.ContainsFunc(s.Objects, func(o object) bool { return o.Entry().ID() == id }) {
			fmt.Fprintf(w, "%s loaded\n", id)
		}
	}
	for _, o := range s.Objects {
		fmt.Fprintln(w, o)
	}
	for _, d := range s.Defaults {
		was := ""
		if d.Original != "" {
			was = fmt.Sprintf(" (was %s)", d.Original)
		}
		fmt.Fprintf(w, "%s is the default of %s%s\n", catalog.Short(d.Kind, d.Set), namespaceOf(d), was)
	}
	for _, u := range s.CgroupUses {
		fmt.Fprintf(w, "%s is used %s\n", u.What, u.Where())
	}
	for _, o := range s.Outdated {
		fmt.Fprintln(w, o)
	}
	switch small := os.Getpagesize(); s.PieceBytes {
	case 0:
	case small:
		fmt.Fprintf(w, "schedulers choose for %d KiB at a time\n", small>>10)
	default:
		fmt.Fprintf(w, "schedulers choose for %d KiB at a time; with mpcc load NAME --small-pieces for %d\n", s.PieceBytes>>10, small>>10)
	}
	fmt.Fprintf(w, "maps: %s\n", roomOf(s.Maps))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Subflows) > 0 {
		fmt.Fprintln(t, "\nTOKEN\tID\tCC\tIFACE\tPATH\tCWND\tSSTHRESH\tSRTT\tBASE RTT\tRATE\tRETRANS\tCOUPLING\tENERGY")
		for i := range s.Subflows {
			printSubflow(t, &s.Subflows[i])
		}
	}
	if len(s.Totals) > 0 {
		fmt.Fprintln(t, "\nTOTAL\tIFACE\tNETNS\tSUBFLOWS\tACKED\tRECEIVED\tRETRANS\tLOSSES\tENERGY")
		for _, total := range s.Totals {
			printTotal(t, total)
		}
	}
	if len(s.Connections) > 0 {
		fmt.Fprintln(t, "\nTOKEN\tID\tSCHEDULER\tIFACE\tCHOSEN\tSHARE\tBYTES\tAGAIN\tFULL\tREFUSED\tARRIVAL\tHELD\tREPEATED\tRATE\tCOST")
		for _, c := range s.Connections {
			printConnection(t, c)
		}
	}
	if len(s.SchedTotals) > 0 {
		fmt.Fprintln(t, "\nTOTAL\tNETNS\tCONNECTIONS\tDECISIONS\tWAITS\tAGAIN\tREPEATED\tBYTES")
		for _, total := range s.SchedTotals {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", catalog.Short(catalog.Sched, total.Scheduler),
				figures.Netns(total.NetnsName, total.Netns), total.Opened, total.Decisions, total.Waits,
				total.Retransmissions, total.Repeats, figures.Size(total.Bytes))
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
		arrival, held := "-", "-"
		if f.Arrival != nil {
			arrival, held = figures.RTT(*f.Arrival), figures.Size(*f.Held)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.1f %%\t%s\t%d\t%d\t%d\t%s\t%s\t%d\t%s\t%s\n",
			c.Token, figures.SubflowID(f.SubflowID, f.Backup), catalog.Short(catalog.Sched, c.Scheduler), f.Interface, f.Chosen, 100*f.Share,
			figures.Size(f.Bytes), f.Retransmitted, f.Full, f.Refused, arrival, held, f.Repeated,
			withUnit(f.Rate, "Mbit/s"), withUnit(f.Cost, "mJ/Mbit"))
	}
}

// printChoice shows which subflows the scheduler has chosen, and what its objective is with each one more.
func printChoice(w io.Writer, token telemetry.Token, c *telemetry.SubsetChoice) {
	fmt.Fprintf(w, "%s: k* = %d of %d for %s;", token, c.K, len(c.Order), figures.Size(c.Bytes))
	for i, id := range c.Order {
		fmt.Fprintf(w, " with subflow %d O_%d = %.4g", id, i+1, c.Objective[i])
		if i < len(c.Order)-1 {
			fmt.Fprint(w, ",")
		}
	}
	fmt.Fprintln(w)
}

// withUnit shows a value in this very unit, and "-" for none.
func withUnit(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g %s", *v, unit)
}

func printSubflow(w io.Writer, f *telemetry.Subflow) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n",
		figures.Token(f.Token), figures.SubflowID(f.SubflowID, f.Backup), f.CC, f.Interface, figures.Path(f),
		f.Cwnd, figures.Ssthresh(f.Ssthresh), figures.RTT(f.SRTT), figures.RTT(f.BaseRTT),
		figures.BitRate(float64(f.DeliveryRate)), f.Retrans, figures.Coupling(f.Coupling), figures.Joules(f.Energy))
}

func printTotal(w io.Writer, t telemetry.Total) {
	energy := &t.Energy
	if t.Energy == 0 {
		energy = nil
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\n", t.CC, t.Interface, figures.Netns(t.NetnsName, t.Netns), t.Opened,
		figures.Size(t.BytesAcked), figures.Size(t.BytesReceived), t.Retrans, t.Losses, figures.Joules(energy))
}
