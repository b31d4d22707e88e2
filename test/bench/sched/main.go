// SPDX-License-Identifier: Apache-2.0

// Command sched compares the packet schedulers with the kernel's own: goodput over veth paths without a
// limit, and of each the time of a decision, both taken in turns. It needs the module, and so a VM, and counts
// instructions in one that has its own time: make bench-sched.
//
// Arguments are object files of further schedulers.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
)

const (
	kernelOwn = "default"
	decision  = "mpcc_get_send" // the program of bpf/include/mpcc/sched_kernel.h
)

func main() {
	rounds := flag.Int("rounds", 5, "rounds, in each of which every scheduler has its turn")
	bytes := flag.Int64("bytes", 64<<20, "bytes of a turn")
	subflows := flag.Int("subflows", 2, "paths, and subflows of a connection, up to 9")
	flag.Parse()
	if err := run(*rounds, *bytes, *subflows, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(rounds int, bytes int64, subflows int, others []string) (err error) {
	names := []string{kernelOwn}
	for _, e := range catalog.Entries {
		if e.Kind != catalog.Sched {
			continue
		}
		if _, err := loader.Load(context.Background(), e, loader.Options{}); err != nil {
			return err
		}
		names = append(names, e.Name)
	}
	for _, file := range others {
		o, err := loader.ReadObject(file)
		if err != nil {
			return err
		}
		if _, err := loader.Load(context.Background(), o.Entry, loader.Options{Object: o}); err != nil {
			return err
		}
		names = append(names, o.Name)
	}
	defer func() {
		_, _, unload := loader.UnloadAll(context.Background())
		err = errors.Join(err, unload)
	}()
	n, err := build(subflows)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.lab.Close()) }()

	rates, calls, nanoseconds := map[string][]float64{}, map[string]uint64{}, map[string]uint64{}
	for range rounds {
		for _, name := range names {
			rate, err := n.turn(name, bytes)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			rates[name] = append(rates[name], rate)
		}
	}
	// Apart, since the counting takes time itself.
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return err
	}
	defer stats.Close()
	for _, name := range names {
		calls0, time0, err := spent()
		if err != nil {
			return err
		}
		if _, err := n.turn(name, bytes); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		calls1, time1, err := spent()
		if err != nil {
			return err
		}
		calls[name], nanoseconds[name] = calls1-calls0, time1-time0
	}
	own := median(rates[kernelOwn])
	for _, name := range names {
		fmt.Printf("%-10s %7.0f Mbit/s  %.2f of the kernel's own  %7d decisions", name, median(rates[name])/1e6, median(rates[name])/own, calls[name])
		if calls[name] > 0 {
			fmt.Printf("  %5d ns each", nanoseconds[name]/calls[name])
		}
		fmt.Println()
	}
	return nil
}

// spent sums up the decisions of all schedulers, of which one runs at a time.
func spent() (calls, nanoseconds uint64, err error) {
	for id := ebpf.ProgramID(0); ; {
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, unix.ENOENT) {
			return calls, nanoseconds, nil
		} else if err != nil {
			return 0, 0, err
		}
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return 0, 0, err
		}
		info, err := p.Info()
		if err == nil && info.Name == decision {
			var s *ebpf.ProgramStats
			if s, err = p.Stats(); err == nil {
				calls += s.RunCount
				nanoseconds += uint64(s.Runtime.Nanoseconds())
			}
		}
		p.Close()
		if err != nil {
			return 0, 0, err
		}
	}
}

func median(list []float64) float64 {
	return slices.SortedFunc(slices.Values(list), cmp.Compare[float64])[len(list)/2]
}

type network struct {
	lab              *lab.Lab
	sender, receiver *lab.Host
	at               netip.Addr
	subflows         int
}

// build makes
//
//	       ┌── veth ──┐
//	sender ┤   ...    ├ receiver
//	       └── veth ──┘
func build(subflows int) (_ *network, err error) {
	n := &network{subflows: subflows}
	if n.lab, err = lab.New(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.lab.Close()
		}
	}()
	if n.sender, err = n.lab.Host("sender"); err != nil {
		return nil, err
	}
	if n.receiver, err = n.lab.Host("receiver"); err != nil {
		return nil, err
	}
	var more []lab.MPTCPEndpoint
	for i := range subflows {
		link, err := n.lab.Link(n.sender, n.receiver, lab.LinkOpts{})
		if err != nil {
			return nil, err
		}
		if i == 0 {
			n.at = link.Addr(n.receiver)
		} else {
			more = append(more, lab.MPTCPEndpoint{Addr: link.Addr(n.receiver), Signal: true})
		}
	}
	if err := n.lab.Route(); err != nil {
		return nil, err
	}
	limits := lab.MPTCPLimits{Subflows: subflows - 1, AddAddrAccepted: subflows - 1}
	return n, errors.Join(n.sender.MPTCP(limits), n.receiver.MPTCP(limits, more...))
}

// turn moves content under a scheduler, and gives its goodput in bit/s.
func (n *network) turn(scheduler string, bytes int64) (float64, error) {
	if err := n.sender.Sysctl("net.mptcp.scheduler", scheduler); err != nil {
		return 0, err
	}
	var ln *mptcp.Listener
	err := n.receiver.Do(func() (err error) {
		ln, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "")
		return err
	})
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	received := make(chan error, 1)
	go func() {
		conn, err := ln.Accept(context.Background())
		for range 2 {
			if err == nil {
				_, err = checked.Receive(conn)
			}
		}
		received <- err
	}()
	var conn *net.TCPConn
	err = n.sender.Do(func() (err error) {
		conn, err = mptcp.Dial(context.Background(), netip.AddrPortFrom(n.at, ln.Addr().Port()), mptcp.Options{})
		return err
	})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	// All subflows are there after this: they join once something has been acknowledged.
	if _, err := checked.Send(conn, checked.Transfer{Bytes: 1 << 20, Fast: true}); err != nil {
		return 0, err
	}
	time.Sleep(500 * time.Millisecond)
	if info, err := mptcp.ReadInfo(conn); err != nil {
		return 0, err
	} else if len(info.Subflows) != n.subflows {
		return 0, fmt.Errorf("%d subflows instead of %d", len(info.Subflows), n.subflows)
	}
	r, err := checked.Send(conn, checked.Transfer{Bytes: bytes, Fast: true})
	return r.Rate(), errors.Join(err, <-received)
}
