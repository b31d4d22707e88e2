// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/mpcc/mpcc/internal/figures"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Source reads what is there now.
type Source func(context.Context) (Reading, error)

// Repeat writes what the source has, at once and then once an interval: so many times, or until the context ends
// if count is 0.
func (w *Watch) Repeat(
	ctx context.Context, source Source, interval time.Duration, count int, write func() error,
) error {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for n := 1; ; n++ {
		r, err := source(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.Refresh(r)
		if err := write(); err != nil || n == count {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// Refresh is a reading as NDJSON has it.
type Refresh struct {
	Time     time.Time      `json:"time"`
	Loaded   []string       `json:"loaded"`
	Subflows []*Subflow     `json:"subflows"`
	Lost     telemetry.Lost `json:"lost"`
}

// WriteJSON writes the last reading in a line of JSON.
func (w *Watch) WriteJSON(out io.Writer, now time.Time) error {
	r := Refresh{now, w.loaded, w.subflows, w.lost}
	if r.Loaded == nil {
		r.Loaded = []string{}
	}
	if r.Subflows == nil {
		r.Subflows = []*Subflow{}
	}
	return json.NewEncoder(out).Encode(r)
}

// WriteTable writes the last reading for people to read.
func (w *Watch) WriteTable(out io.Writer, now time.Time) error {
	fmt.Fprint(out, now.Format(time.TimeOnly), "  ")
	if note := w.Note(); note != "" {
		_, err := fmt.Fprintln(out, note)
		return err
	}
	fmt.Fprintln(out, w.Summary())
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tID\tCC\tIFACE\tPATH\tCWND\tSSTHRESH\tSRTT\tBASE RTT\t"+
		"RATE\tRECEIVING\tRETRANS\tCOUPLING\tPOWER\tENERGY\tNETNS")
	for _, c := range w.connections {
		for _, f := range c.Subflows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
				figures.Token(f.Token), figures.SubflowID(f.SubflowID, f.Backup), f.CC, f.Interface, figures.Path(&f.Subflow),
				f.Cwnd, figures.Ssthresh(f.Ssthresh), figures.RTT(f.SRTT), figures.RTT(f.BaseRTT),
				rate(f.Rate), rate(f.Receiving), f.Retrans, figures.Coupling(f.Coupling),
				figures.Optional(f.Power, "W"), figures.Joules(f.Energy), figures.Netns(f.NetnsName, f.Netns))
		}
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// Summary says how much is shown, in a line.
func (w *Watch) Summary() string {
	subflows := 0
	var sent, power *float64
	for _, c := range w.connections {
		subflows += len(c.Subflows)
		sent, power = sum(sent, c.Rate), sum(power, c.Power)
	}
	text := several(len(w.connections), "connection") + ", " + several(subflows, "subflow")
	if sent != nil {
		text += ", " + rate(sent)
	}
	if power != nil {
		text += ", " + figures.Optional(power, "W")
	}
	if w.lost.Subflows > 0 {
		text += ", " + several(int(w.lost.Subflows), "subflow") + " not recorded"
	}
	return text
}

func several(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Note says in a line why nothing is shown; "" where something is.
func (w *Watch) Note() string {
	switch {
	case len(w.connections) > 0:
		return ""
	case len(w.subflows) > 0:
		return "no subflow matches the filter"
	case len(w.loaded) == 0:
		return loader.ErrNothingLoaded.Error()
	default:
		return "no live subflow runs a congestion control of mpcc; those of new connections show up here"
	}
}
