// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/energy/learn"
)

// sysfs is where the kernel shows its meters.
const sysfs = "/sys"

// shortestSample is the shortest pause that ends an interface's activity.
const shortestSample = 200 * time.Millisecond

// lesson is what mpcc energy learn was asked for.
type lesson struct {
	iface, netns, source, name, out string
	lasts, interval, tail           time.Duration
	asJSON                          bool
}

func newEnergyLearnCommand() *cobra.Command {
	var l lesson
	c := &cobra.Command{
		Use:   "learn IFACE",
		Short: "Learn an interface's power profile from a meter",
		Long: `learn measures power while the interface is used, and fits the profile's figures to it by least squares,
with their errors. It makes no traffic: let the interface send and receive meanwhile, one after the other, in steps
from idle to full. Ctrl-C ends the measurement, and fits what there is. docs/energy.md says how to measure well.

The source is a battery (battery:BAT0) or a RAPL zone (rapl:psys) of this machine, as mpcc energy show lists them, or
a CSV file of another meter, with the columns time (RFC 3339, or seconds since 1970) and watts or joules. If it has
the traffic, too (tx_bytes or tx_mbps, rx_bytes or rx_mbps), nothing is measured here. The default is the battery,
where one supplies the machine.`,
		Example: `  mpcc energy learn wlan0 -o wlan0.yaml
  mpcc energy set wlan0 wlan0 --file wlan0.yaml
  mpcc energy learn wwan0 --source meter.csv --for 20m --tail 15s --name my-lte -o my-lte.yaml
  mpcc energy learn eth0 --source rapl:psys --json`,
		Args: args(cobra.ExactArgs(1)),
	}
	f := c.Flags()
	netnsFlag(c, &l.netns)
	f.StringVar(&l.source, "source", "", "what measures the power: battery:NAME, rapl:ZONE, or a CSV file")
	f.DurationVar(&l.lasts, "for", 10*time.Minute, "how long to measure")
	f.DurationVar(&l.interval, "interval", time.Second, "length of a sample, at least 200ms")
	f.DurationVar(&l.tail, "tail", 0, "time after the last data in which the radio is not yet at rest: leave it out")
	f.StringVar(&l.name, "name", "", "name of the profile (default IFACE)")
	f.StringVarP(&l.out, "output", "o", "", "write the profile to this file, which must not be there yet")
	f.BoolVarP(&l.asJSON, "json", "j", false, "write JSON")
	c.RunE = func(c *cobra.Command, given []string) error {
		l.iface = given[0]
		if l.name == "" {
			l.name = l.iface
		}
		switch {
		case l.lasts <= 0:
			return usageError("--for %v: give more than 0", l.lasts)
		case l.interval < shortestSample:
			return usageError("--interval %v: give at least %v", l.interval, shortestSample)
		case l.tail < 0:
			return usageError("--tail %v: give 0 or more", l.tail)
		}
		if _, err := os.Stat(l.out); l.out != "" && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there already; name another file, or remove it", l.out)
		}
		if err := l.choose(); err != nil {
			return err
		}
		samples, at, err := l.measure(c)
		if err != nil {
			return err
		}
		result, err := learn.Fit(learn.WithoutTails(samples, l.tail))
		if err != nil {
			return fmt.Errorf("%s with %s: %w", l.iface, l.source, err)
		}
		return l.report(c.OutOrStdout(), result, at)
	}
	return c
}

// choose sets the source where none is given: a battery, if that is what supplies the machine.
func (l *lesson) choose() error {
	if l.source != "" {
		return nil
	}
	sources, err := energy.Sources(sysfs)
	if err != nil {
		return err
	}
	var fit, all []string
	for _, s := range sources {
		all = append(all, s.Name)
		if s.Unfit == "" && strings.HasPrefix(s.Name, energy.SourceBattery+":") {
			fit = append(fit, s.Name)
		}
	}
	switch {
	case len(all) == 0:
		return usageError("this machine has neither a battery nor RAPL to measure with; give --source FILE, a CSV of another meter")
	case len(fit) != 1:
		return usageError("say what measures the power: --source FILE, or one of %s (mpcc energy show tells of them)", strings.Join(all, ", "))
	}
	l.source = fit[0]
	return nil
}

// measure returns the samples, and when the last of them ended.
func (l *lesson) measure(c *cobra.Command) (samples []learn.Sample, at time.Time, err error) {
	kind, _, _ := strings.Cut(l.source, ":")
	if kind == energy.SourceBattery || kind == energy.SourceRAPL {
		meter, err := energy.Open(sysfs, l.source)
		if err != nil {
			return nil, at, err
		}
		traffic, power, err := l.record(c, meter.Joules)
		if err != nil {
			return nil, at, err
		}
		return traffic.Samples(power, l.interval), traffic[len(traffic)-1].At, nil
	}

	log, err := readLog(l.source)
	if err != nil {
		return nil, at, err
	}
	if !log.HasTraffic() {
		return l.measureBeside(c)
	}
	for _, flag := range []string{"for", "interval", "netns"} {
		if c.Flags().Changed(flag) {
			return nil, at, usageError("--%s is for what is measured here, and %s has the traffic itself: give only one of them", flag, l.source)
		}
	}
	if power := log.Power(); len(power) > 0 {
		at = power[len(power)-1].At
	}
	return log.Samples(), at, nil
}

// measureBeside watches the interface while another meter writes its log.
func (l *lesson) measureBeside(c *cobra.Command) (samples []learn.Sample, at time.Time, err error) {
	traffic, _, err := l.record(c, nil)
	if err != nil {
		return nil, at, err
	}
	log, err := readLog(l.source)
	if err != nil {
		return nil, at, err
	}
	power, at := log.Power(), traffic[len(traffic)-1].At
	if samples = traffic.Samples(power, l.interval); len(samples) > 0 {
		return samples, at, nil
	}
	has, form := "no rows", time.RFC3339
	if len(power) > 0 {
		has = power[0].At.Format(form) + " to " + power[len(power)-1].At.Format(form)
	}
	return nil, at, fmt.Errorf("%s has %s, and %s was watched from %s to %s: nothing in common; do the clocks agree?",
		l.source, has, l.iface, traffic[0].At.Format(form), at.Format(form))
}

// record watches the interface, and the meter if there is one here.
func (l *lesson) record(c *cobra.Command, joules func() (float64, error)) (learn.Traffic, learn.Power, error) {
	counters, err := countersOf(l.netns, l.iface)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(c.ErrOrStderr(), "measuring %s with %s for %v: let it send and receive in steps meanwhile; Ctrl-C ends it earlier\n",
		l.iface, l.source, l.lasts)
	ctx, stop := context.WithTimeout(c.Context(), l.lasts)
	defer stop()
	return learn.Record(ctx, learn.Watched{Counters: counters, Joules: joules, Interval: l.interval})
}

// readLog reads a CSV. One without traffic another meter may be writing: what is after the last end of a line is not
// yet a line.
func readLog(path string) (*learn.Log, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	log, err := learn.ReadCSV(bytes.NewReader(text))
	if end := bytes.LastIndexByte(text, '\n') + 1; end > 0 && end < len(text) && (err != nil || !log.HasTraffic()) {
		if begun, begunErr := learn.ReadCSV(bytes.NewReader(text[:end])); begunErr == nil && !begun.HasTraffic() {
			log, err = begun, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return log, nil
}

// countersOf returns what reads the counters of an interface; its error is that there is none.
func countersOf(namespace, iface string) (func() (sent, received uint64, err error), error) {
	ns, err := netns.Current()
	if namespace != "" {
		ns, err = netns.Named(namespace)
	}
	if err != nil {
		return nil, err
	}
	read := func() (sent, received uint64, err error) {
		err = ns.Do(func() error {
			proc, err := procfs.NewFS("/proc/thread-self")
			if err != nil {
				return err
			}
			devices, err := proc.NetDev()
			if err != nil {
				return err
			}
			device, ok := devices[iface]
			if !ok {
				return fmt.Errorf("%v has no interface %s; it has %s", ns, iface, strings.Join(slices.Sorted(maps.Keys(devices)), ", "))
			}
			sent, received = device.TxBytes, device.RxBytes
			return nil
		})
		return sent, received, err
	}
	_, _, err = read()
	return read, err
}

// Learned is what --json writes; docs/energy.md has the same heading.
type Learned struct {
	Interface string         `json:"interface"`
	Source    string         `json:"source"`
	Profile   energy.Profile `json:"profile"`
	learn.Result
}

// report writes the result, and the file.
func (l *lesson) report(w io.Writer, r *learn.Result, at time.Time) error {
	p := r.Profile(l.name, fmt.Sprintf("measured with %s on %s (mpcc energy learn): %d samples in %v, residual %.2g W, R² %.4g",
		l.source, at.Format(time.DateOnly), r.Samples, lasted(r), r.Residual, r.R2))
	if l.asJSON {
		if err := writeJSON(w, Learned{l.iface, l.source, p, *r}); err != nil {
			return err
		}
	} else if err := l.print(w, r, p); err != nil {
		return err
	}
	if l.out == "" {
		return nil
	}
	text, err := r.File(p)
	if err != nil {
		return err
	}
	return atomicfile.Write(l.out, text, 0o644)
}

func lasted(r *learn.Result) time.Duration {
	return time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
}

func (l *lesson) print(w io.Writer, r *learn.Result, p energy.Profile) error {
	fmt.Fprintf(w, "%s with %s: %d samples in %v", l.iface, l.source, r.Samples, lasted(r))
	if r.Independent < 0.8*float64(r.Samples) {
		fmt.Fprintf(w, ", which say as much as %.0f that do not resemble their neighbours", r.Independent)
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tVALUE\tUNIT\tSTANDARD ERROR\t95 %")
	line := func(name, unit string, f *learn.Figure) {
		fmt.Fprintf(t, "%s\t%.*f\t%s\t%.*f\t%s\n", name, f.Decimals(), f.Value, unit, f.Decimals(), f.Error, f.Interval())
	}
	var notes []string
	for _, f := range []struct {
		name, unit string
		figure     *learn.Figure
	}{
		{"uplink", "mW/Mbps", r.Uplink}, {"downlink", "mW/Mbps", r.Downlink}, {"base", "mW", &r.Base},
	} {
		if f.figure == nil {
			fmt.Fprintf(t, "%s\t-\t%s\t-\t-\n", f.name, f.unit)
			notes = append(notes, fmt.Sprintf("%s is not learned: that direction carried no more than acknowledgements", f.name))
			continue
		}
		line(f.name, f.unit, f.figure)
		if f.figure.Low == 0 {
			notes = append(notes, fmt.Sprintf("%s cannot be told from 0: measure longer, or with larger steps", f.name))
		}
	}
	line("rest", "mW", &r.Rest)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nThe fit leaves %.2g W (standard deviation); R² is %.4g.\n", r.Residual, r.R2)
	if r.Fresh < r.Samples/2 {
		notes = append(notes, fmt.Sprintf("the meter had a new figure in %d of %d samples: it follows slowly; take a longer --interval, and steps of minutes", r.Fresh, r.Samples))
	}
	for _, note := range notes {
		fmt.Fprintln(w, note)
	}
	fmt.Fprintln(w, "\n"+l.set(p))
	return nil
}

// set is the command that gives the interface the profile.
func (l *lesson) set(p energy.Profile) string {
	words := []string{"mpcc energy set", l.iface}
	if l.netns != "" {
		words = append(words, "--netns", l.netns)
	}
	if l.out != "" {
		words = append(words, l.name, "--file", l.out)
	}
	for _, f := range []struct {
		flag  string
		value *float64
	}{{"--uplink", p.Uplink}, {"--downlink", p.Downlink}, {"--base", p.Base}} {
		switch {
		case f.value == nil:
			words = append(words, f.flag, "N")
		case l.out == "":
			words = append(words, f.flag, strconv.FormatFloat(*f.value, 'f', -1, 64))
		}
	}
	return strings.Join(words, " ")
}
