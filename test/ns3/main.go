// SPDX-License-Identifier: Apache-2.0

// Command ns3 has the simulator and ns-3 carry plain TCP over the same networks, and compares what gets through and
// what it costs. It is given the program that network.cc compiles to; make bench-sim does both.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/sim"
)

// setting is a network, and for how long it is watched.
type setting struct {
	kind            string
	size, mbps      int // flows, or ports of a switch
	delay           time.Duration
	queue           int
	warmup, seconds int
	seeds           int
}

var settings = []setting{
	{"dumbbell", 1, 20, 10 * time.Millisecond, 50, 10, 40, 3},
	{"dumbbell", 8, 50, 20 * time.Millisecond, 100, 10, 20, 3},
	{"fattree", 4, 10, 100 * time.Microsecond, 100, 20, 20, 3},
	{"fattree", 8, 10, 100 * time.Microsecond, 100, 1, 1, 1},
}

// outcome is what came through in Mbit/s, how often packets passed a link, and the processor time in seconds.
type outcome struct {
	goodput float64
	hops    uint64
	took    float64
}

// What content a frame has, and its size: ns-3's have a header of 2 bytes where Ethernet's is 14.
const (
	content    = 1448
	ourFrame   = 1514
	theirFrame = 1502
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: ns3 PROGRAM")
	}
	fmt.Println("network          Mbit/s  utilisation: mpcc  ns-3  million hops a CPU second: mpcc   ns-3  ratio")
	for _, s := range settings {
		var ours, theirs outcome
		for seed := range s.seeds {
			mine, err := s.simulate(uint64(seed))
			if err != nil {
				log.Fatal(err)
			}
			other, err := s.ns3(flag.Arg(0), seed)
			if err != nil {
				log.Fatal(err)
			}
			ours, theirs = ours.plus(mine), theirs.plus(other)
		}
		speed, other := float64(ours.hops)/ours.took/1e6, float64(theirs.hops)/theirs.took/1e6
		fmt.Printf("%-12s %3d %7d %18.3f %5.3f %32.2f %6.4f %6.0f\n", s.kind, s.size, s.mbps,
			s.utilisation(ours, ourFrame), s.utilisation(theirs, theirFrame), speed, other, speed/other)
	}
}

func (o outcome) plus(p outcome) outcome {
	return outcome{o.goodput + p.goodput, o.hops + p.hops, o.took + p.took}
}

// utilisation is the share of what the bottleneck, or the hosts' own links, could carry.
func (s setting) utilisation(o outcome, frame float64) float64 {
	links := 1
	if s.kind == "fattree" {
		links = s.size * s.size * s.size / 4
	}
	return o.goodput / float64(s.seeds) / (float64(links*s.mbps) * content / frame)
}

// ns3 runs the program.
func (s setting) ns3(program string, seed int) (o outcome, err error) {
	words := fmt.Sprintf("%s %d %d %d %d %d %d %d", s.kind, s.size, s.mbps, s.delay.Microseconds(), s.queue, s.warmup, s.seconds, seed)
	cmd := exec.Command(program, strings.Fields(words)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return o, fmt.Errorf("%s %s: %w", program, words, err)
	}
	_, err = fmt.Sscan(string(out), &o.goodput, &o.hops, &o.took)
	return o, err
}

const head = "name: network\ntitle: plain TCP\nsource: none\nphases: {measure: 10 s}\n"

// text is the network as a scenario.
func (s setting) text() string {
	link := fmt.Sprintf("rate: %d Mbit/s, delay: %d us, queue: {packets: %d}", s.mbps, s.delay.Microseconds(), s.queue)
	if s.kind == "fattree" {
		return head + fmt.Sprintf("generate:\n  - {name: host, fat_tree: {ports: %d}, access: {%s}, fabric: {%s}}\n", s.size, link, link) +
			"users:\n  - {name: all, from: host, to: host, transport: tcp, cc: reno, traffic: bulk, within: 100 ms}\n"
	}
	hosts, links, users := "", "", ""
	for i := range s.size {
		hosts += fmt.Sprintf("  - {name: from%d}\n  - {name: to%d}\n", i, i)
		links += fmt.Sprintf("  - {name: a%d, between: [from%d, in]}\n  - {name: b%d, between: [out, to%d]}\n", i, i, i, i)
		users += fmt.Sprintf("  - {name: u%d, from: from%d, to: to%d, transport: tcp, cc: reno, traffic: bulk, within: 100 ms}\n", i, i, i)
	}
	return head + "hosts:\n" + hosts + "routers: [in, out]\nlinks:\n  - {name: middle, between: [in, out], " + link + "}\n" + links + "users:\n" + users
}

// simulate runs the same with the simulator.
func (s setting) simulate(seed uint64) (o outcome, err error) {
	file, err := scenario.Parse("network.yaml", []byte(s.text()))
	if err != nil {
		return o, err
	}
	run := file.Runs(false)[0]
	run.Seed = seed
	simulation, err := sim.New(run)
	if err != nil {
		return o, err
	}
	defer simulation.Close()
	began := processorTime()
	warmup := time.Duration(s.warmup) * time.Second
	if err := simulation.Until(warmup); err != nil {
		return o, err
	}
	before := received(simulation)
	if err := simulation.Until(warmup + time.Duration(s.seconds)*time.Second); err != nil {
		return o, err
	}
	o.goodput = float64(received(simulation)-before) * 8 / float64(s.seconds) / 1e6
	o.hops, o.took = simulation.PacketHops(), processorTime()-began
	return o, simulation.Check()
}

func received(s *sim.Simulation) (bytes uint64) {
	for _, u := range s.Users {
		bytes += u.Bytes()
	}
	return bytes
}

// processorTime is how much of the processors' time this process has had for itself.
func processorTime() float64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano()).Seconds()
}
