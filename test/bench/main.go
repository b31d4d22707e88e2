// SPDX-License-Identifier: Apache-2.0

// Command bench compares the catalog's congestion controls with the kernel's own: what they carry, and
// what an ACK costs. Every figure is a ratio within one round, in which all controls take turns. It
// changes nothing on the machine: networks and controls are its own and vanish with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// The references that the catalog's controls are compared with.
const (
	reno      = "reno"  // the kernel's own
	cubic     = "cubic" // the kernel's own
	yardstick = "bpf_cubic"
	empty     = "bpf_empty"
)

func isReference(cc string) bool { return slices.Contains([]string{reno, cubic, yardstick, empty}, cc) }

// queuedRate is the rate of all paths behind queues together, in bit/s: well below what a machine can forward, so
// that the queues end the growth of windows, not the CPU.
const queuedRate = 400e6

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	rounds := flag.Int("rounds", 5, "rounds, in each of which every control runs once")
	seconds := flag.Float64("seconds", 0.6, "length of one measurement")
	only := flag.String("only", "", "measure only these algorithms of the catalog, such as lia,dts")
	jsonFile := flag.String("json", "", "write the figures to this file too")
	instructions := flag.Bool("instructions", false,
		"in a VM in which an instruction takes a nanosecond: no goodputs, and connections that have lived for some seconds")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *seconds <= 0 {
		return errors.New("usage: bench [-rounds N] [-seconds S] [-only NAME,…] [-json FILE] [-instructions]")
	}
	entries, err := choose(*only)
	if err != nil {
		return err
	}

	b := &bench{rounds: *rounds, span: time.Duration(*seconds * float64(time.Second)), counts: *instructions}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.prepare(entries); err != nil {
		return err
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	r, err := b.report()
	if err != nil {
		return err
	}
	if err := printReport(os.Stdout, r); err != nil {
		return err
	}
	if *jsonFile != "" {
		return r.Save(*jsonFile)
	}
	return nil
}

// choose returns all congestion controls of the catalog, or those named.
func choose(only string) ([]catalog.Entry, error) {
	var chosen []catalog.Entry
	if only != "" {
		for name := range strings.SplitSeq(only, ",") {
			e, err := catalog.Find(name)
			if err != nil {
				return nil, err
			}
			chosen = append(chosen, e)
		}
	} else {
		chosen = catalog.Entries
	}
	chosen = slices.DeleteFunc(slices.Clone(chosen), func(e catalog.Entry) bool { return e.Kind != catalog.CC })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-only %s: no congestion control among them", only)
	}
	return chosen, nil
}
