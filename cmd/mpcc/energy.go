// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

func newEnergyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "energy",
		Short: "Say what sending and receiving costs on an interface",
		Long: `The energy of a subflow is modelled: power = uplink × rate sent + downlink × rate
received + base while the interface is active. The figures come from a published profile or
are your own. A change takes effect on running connections. The tail of a radio after the last
packet is listed with the profiles; only experiments (mpcc run) count it.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newEnergyShowCommand(), newEnergySetCommand(), newEnergyUnsetCommand(), newEnergyLearnCommand())
	return c
}

// profileFlags adds --file, and reads the known profiles: the user's own hide mpcc's of the same name.
func profileFlags(c *cobra.Command) func() ([]energy.Profile, error) {
	var file string
	c.Flags().StringVar(&file, "file", "", "YAML file with profiles of your own")
	return func() ([]energy.Profile, error) {
		if file == "" {
			return energy.Builtin(), nil
		}
		own, err := energy.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, p := range energy.Builtin() {
			if !slices.ContainsFunc(own, func(o energy.Profile) bool { return o.Name == p.Name }) {
				own = append(own, p)
			}
		}
		return own, nil
	}
}

func netnsFlag(c *cobra.Command, name *string) {
	c.Flags().StringVarP(name, "netns", "n", "", "network namespace of the interface (as ip netns names it)")
}

func newEnergySetCommand() *cobra.Command {
	var uplink, downlink, base float64
	var at loader.Interface
	c := &cobra.Command{
		Use:   "set IFACE [PROFILE]",
		Short: "Give an interface a power profile",
		Example: `  mpcc energy set wlan0 wifi-2012
  mpcc energy set wwan0 5g-low-2021 --base 1500
  mpcc energy set eth0 --uplink 10 --downlink 10 --base 200`,
		Args:              args(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: completeProfiles,
	}
	c.Flags().Float64Var(&uplink, "uplink", 0, "sending, in mW/Mbps; overrides the profile's")
	c.Flags().Float64Var(&downlink, "downlink", 0, "receiving, in mW/Mbps; overrides the profile's")
	c.Flags().Float64Var(&base, "base", 0, "while active, in mW; overrides the profile's")
	netnsFlag(c, &at.Netns)
	profiles := profileFlags(c)
	c.RunE = func(c *cobra.Command, given []string) error {
		p := energy.Profile{Name: "of your own"}
		own := c.Flags().Changed("uplink") && c.Flags().Changed("downlink") && c.Flags().Changed("base")
		switch {
		case len(given) == 1 && !own:
			return usageError("name a profile (mpcc energy show lists them), or give all of --uplink, --downlink and --base")
		case len(given) == 2:
			known, err := profiles()
			if err != nil {
				return err
			}
			if p, err = energy.Find(known, given[1]); err != nil {
				return usageErr{err}
			}
		}
		for _, f := range []struct {
			flag  string
			value float64
			of    **float64
		}{{"uplink", uplink, &p.Uplink}, {"downlink", downlink, &p.Downlink}, {"base", base, &p.Base}} {
			if c.Flags().Changed(f.flag) {
				*f.of = &f.value
			}
		}
		if err := p.Complete(); err != nil {
			if missing := (*energy.MissingError)(nil); errors.As(err, &missing) {
				return usageError("profile %s has no published %s; give yours: --%s N (%s)",
					missing.Profile, missing.Key, flagOf(missing.Key), missing.Unit)
			}
			return usageErr{err}
		}
		at.Name = given[0]
		return loader.SetProfile(c.Context(), at, loader.Profile{Uplink: *p.Uplink, Downlink: *p.Downlink, Base: *p.Base})
	}
	return c
}

// flagOf returns the flag that overrides the profile's figure with this key: uplink for uplink_mw_per_mbps.
func flagOf(key string) string {
	name, _, _ := strings.Cut(key, "_")
	return name
}

func completeProfiles(_ *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(given) == 1 {
		for _, p := range energy.Builtin() {
			if strings.HasPrefix(p.Name, prefix) {
				names = append(names, p.Name+"\t"+p.Source)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func newEnergyUnsetCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "unset IFACE",
		Short: "Take an interface's power profile away",
		Args:  args(cobra.ExactArgs(1)),
	}
	var at loader.Interface
	netnsFlag(c, &at.Netns)
	c.RunE = func(c *cobra.Command, given []string) error {
		at.Name = given[0]
		return loader.DeleteProfile(c.Context(), at)
	}
	return c
}

// priced is an interface that has a profile.
type priced struct {
	Interface string  `json:"interface"`
	Ifindex   uint32  `json:"ifindex"`
	Netns     uint64  `json:"netns"` // inode number
	NetnsName string  `json:"netns_name,omitempty"`
	Uplink    float64 `json:"uplink_mw_per_mbps"`
	Downlink  float64 `json:"downlink_mw_per_mbps"`
	Base      float64 `json:"base_mw"`
	Profile   string  `json:"profile"` // the known one that has these figures, or ""
	Source    string  `json:"source"`
}

func newEnergyShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the known profiles, the interfaces that have one, and what measures power here",
		Args:  args(cobra.NoArgs),
	}
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	var name string
	netnsFlag(c, &name)
	profiles := profileFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		known, err := profiles()
		if err != nil {
			return err
		}
		interfaces, err := pricedInterfaces(c.Context(), known)
		if err != nil {
			return err
		}
		if name != "" {
			if _, err := netns.Named(name); err != nil {
				return err
			}
			interfaces = slices.DeleteFunc(interfaces, func(i priced) bool { return i.NetnsName != name })
		}
		sources, sourcesErr := energy.Sources(sysfs)
		if asJSON {
			err = writeJSON(c.OutOrStdout(), map[string]any{"profiles": known, "interfaces": interfaces, "sources": sources})
		} else if err = printEnergy(c.OutOrStdout(), known, interfaces); err == nil {
			err = printSources(c.OutOrStdout(), sources)
		}
		return errors.Join(err, sourcesErr)
	}
	return c
}

// pricedInterfaces lists the interfaces that have a profile, in all namespaces.
func pricedInterfaces(ctx context.Context, known []energy.Profile) ([]priced, error) {
	list := []priced{}
	source, err := telemetry.Open()
	if errors.Is(err, loader.ErrNotLoaded) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	defer source.Close()
	set, err := source.Profiles(ctx)
	for _, p := range set {
		i := priced{
			Interface: p.Interface, Ifindex: p.Ifindex, Netns: p.Netns, NetnsName: p.NetnsName,
			Uplink: p.Uplink, Downlink: p.Downlink, Base: p.Base, Source: "your own figures",
		}
		// The map holds figures, not the profile's name: a known profile with the same figures must be the one.
		for _, k := range known {
			if k.Complete() == nil && *k.Uplink == i.Uplink && *k.Downlink == i.Downlink && *k.Base == i.Base {
				i.Profile, i.Source = k.Name, k.Source
				break
			}
		}
		list = append(list, i)
	}
	return list, err
}

func printEnergy(w io.Writer, known []energy.Profile, interfaces []priced) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROFILE\tUPLINK mW/Mbps\tDOWNLINK mW/Mbps\tBASE mW\tTAIL (in experiments)\tSOURCE")
	unverified := false
	for _, p := range known {
		mark := func(key, text string) string {
			if slices.Contains(p.Unverified, key) {
				unverified = true
				return text + " ?"
			}
			return text
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name,
			mark("uplink_mw_per_mbps", figure(p.Uplink)), mark("downlink_mw_per_mbps", figure(p.Downlink)),
			mark("base_mw", figure(p.Base)), mark("tail", tail(p.Tail)), p.Source)
	}
	if len(interfaces) > 0 {
		fmt.Fprintln(t, "\nINTERFACE\tUPLINK mW/Mbps\tDOWNLINK mW/Mbps\tBASE mW\tNETNS\tPROFILE\tSOURCE")
	}
	for _, i := range interfaces {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i.Interface,
			figure(&i.Uplink), figure(&i.Downlink), figure(&i.Base),
			cmp.Or(i.NetnsName, strconv.FormatUint(i.Netns, 10)), cmp.Or(i.Profile, "-"), i.Source)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(interfaces) == 0 {
		fmt.Fprintln(w, "\nno interface has a profile; mpcc energy set IFACE PROFILE gives it one")
	}
	if unverified {
		fmt.Fprintln(w, "\n?  not yet compared with the source")
	}
	return nil
}

// printSources shows what measures power on this machine; nothing where nothing does.
func printSources(w io.Writer, sources []energy.Source) error {
	if len(sources) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nSOURCE\tMEASURES\tNOW\tREADS IN\tWRAPS AT\tNOTE")
	for _, s := range sources {
		now, wraps := "-", "-"
		if s.Watts != nil {
			now = fmt.Sprintf("%.3g W", *s.Watts)
		}
		if s.Range != nil {
			wraps = fmt.Sprintf("%.6g J", *s.Range)
		}
		reads := "-"
		if s.Resolution > 0 {
			reads = fmt.Sprintf("%.2g μ%s", s.Resolution*1e6, s.Unit)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Measures, now, reads, wraps, s.Unfit)
	}
	return t.Flush()
}

// figure shows a number; "-" where none was published.
func figure(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}

func tail(states []energy.Tail) string {
	if len(states) == 0 {
		return "-"
	}
	var words []string
	for _, s := range states {
		text := fmt.Sprintf("%g s", s.Seconds)
		if s.Power != nil {
			text = fmt.Sprintf("%g mW %s", *s.Power, text)
		}
		words = append(words, strings.TrimSpace(s.State+" "+text))
	}
	return strings.Join(words, ", ")
}
