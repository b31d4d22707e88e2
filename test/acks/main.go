// SPDX-License-Identifier: Apache-2.0

// Command acks records what TCP connections of the kernel are told by ACKs, and what windows they have then, for a
// test of the simulator that tells its own sockets the same. make acks runs it in a VM in its own time: it wants a
// clock that only the kernel's work drives, tcpdump and a kernel with netem.
//
//	sender ══path1,path2══ core ── receiver
//
// A connection's file has a line for each subflow when its first ACK comes: its number, when its SYN was answered in
// ns, and the RTT until then in µs. And there is a line for each ACK: the subflow, when it came in ns, the first segment that it
// does not acknowledge, the receiver's window in bytes, the echoed timestamp in ms, the blocks of SACKs as segments, and
// the socket as it was before: window, slow start threshold, next segment and smoothed RTT in µs.
// What is sent for the first time until the next line follows, as subflow:bytes.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
)

const (
	lasts   = 9 * time.Second
	most    = 1200 // ACKs
	tracing = "/sys/kernel/tracing"
)

func main() {
	log.SetFlags(0)
	out := flag.String("out", ".", "the folder to write to")
	keep := flag.Bool("keep", false, "write also what tcpdump and the kernel tell")
	flag.Parse()
	for _, cc := range flag.Args() {
		if err := record(cc, filepath.Join(*out, cc), *keep); err != nil {
			log.Fatalf("acks: %s: %v", cc, err)
		}
	}
}

func record(cc, file string, keep bool) (err error) {
	own := cc != "reno" && cc != "cubic"
	if own {
		if out, err := exec.Command("mpcc", "load", cc, "--set", "couple=always", "--set", "growth=reno", "--set", "response=standard").CombinedOutput(); err != nil {
			return fmt.Errorf("mpcc load: %s", out)
		}
		defer func() { err = errors.Join(err, exec.Command("mpcc", "unload", "--all").Run()) }()
	}
	l, err := lab.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	sender, receiver, addr, err := build(l, own)
	if err != nil {
		return err
	}
	ahead, err := clocks()
	if err != nil {
		return err
	}
	probes, err := watch()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	captured := file + ".pcap"
	defer os.Remove(captured)
	dump := sender.Command(ctx, "tcpdump", "-i", "any", "-n", "--nano", "-s", "128", "-B", "65536", "-Z", "root", "-w", captured, "tcp")
	if err := dump.Start(); err != nil {
		return err
	}
	time.Sleep(time.Second)
	server, err := traffic.Listen(receiver)
	if err != nil {
		return err
	}
	defer server.Close()
	flow, err := server.Start(ctx, traffic.Config{
		Client: sender, Addr: addr, Upload: true, Multipath: own, CC: cc, Pattern: traffic.Endless{},
	})
	if err != nil {
		return err
	}
	time.Sleep(lasts)
	trace, err := probes()
	if err != nil {
		return err
	}
	if err := dump.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	_ = dump.Wait()
	if err := flow.Stop(); err != nil {
		return err
	}
	packets, err := exec.Command("tcpdump", "-r", captured, "-n", "-S", "-tt", "--nano").Output()
	if err != nil {
		return err
	}
	if keep {
		err = errors.Join(os.WriteFile(file+".packets", packets, 0o644), os.WriteFile(file+".probes", []byte(trace), 0o644))
		if err != nil {
			return err
		}
	}
	text, err := join(parsePackets(string(packets), ahead), parseProbes(trace))
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// build makes the network. Of a connection of one subflow the second path is not used.
func build(l *lab.Lab, multipath bool) (sender, receiver *lab.Host, addr netip.Addr, err error) {
	hosts := map[string]*lab.Host{}
	for _, name := range []string{"sender", "receiver"} {
		if hosts[name], err = l.Host(name); err != nil {
			return nil, nil, addr, err
		}
	}
	core, err := l.Router("core")
	if err != nil {
		return nil, nil, addr, err
	}
	sender, receiver = hosts["sender"], hosts["receiver"]
	var second *lab.Link
	for i, name := range []string{"path1", "path2"} {
		back := lab.Shape{Delay: time.Duration(40+20*i) * time.Millisecond}
		if second, err = l.Link(sender, core, lab.LinkOpts{Name: name, BtoA: back}); err != nil {
			return nil, nil, addr, err
		}
	}
	shape := lab.Shape{Rate: 6e6, Loss: 0.3, Queue: 25}
	lan, err := l.Link(core, receiver, lab.LinkOpts{Name: "lan", AtoB: shape})
	if err != nil {
		return nil, nil, addr, err
	}
	if err := l.Route(); err != nil {
		return nil, nil, addr, err
	}
	limits := lab.MPTCPLimits{Subflows: 2, AddAddrAccepted: 2}
	if multipath {
		err = errors.Join(sender.MPTCP(limits, lab.MPTCPEndpoint{Addr: second.Addr(sender), Subflow: true}), receiver.MPTCP(limits))
	}
	return sender, receiver, lan.Addr(receiver), err
}

// clocks returns by how much the clock of packets is ahead of that of the kernel's times.
func clocks() (int64, error) {
	var real, since unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_REALTIME, &real), unix.ClockGettime(unix.CLOCK_MONOTONIC, &since)); err != nil {
		return 0, err
	}
	return real.Nano() - since.Nano(), nil
}

// watch has the kernel write down each ACK that a socket gets.
func watch() (stop func() (string, error), err error) {
	if err := unix.Mount("tracefs", tracing, "tracefs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("mount tracefs: %w", err)
	}
	set := func(values ...[2]string) error {
		for _, v := range values {
			if err := os.WriteFile(filepath.Join(tracing, v[0]), []byte(v[1]), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	const probe = "events/tcp/tcp_probe/enable"
	err = set([2]string{"trace_clock", "mono"}, [2]string{"buffer_size_kb", "16384"}, [2]string{"trace", ""}, [2]string{probe, "1"})
	return func() (string, error) {
		if err := set([2]string{probe, "0"}); err != nil {
			return "", err
		}
		text, err := os.ReadFile(filepath.Join(tracing, "trace"))
		return string(text), err
	}, err
}

// packet is one that the sender has sent or got.
type packet struct {
	at       int64
	in       bool
	ends     string // the sender's end of the connection
	flags    string
	seq      uint32
	length   int
	ack      uint32
	window   int
	scale    int
	val, ecr uint32
	sacks    []block
}

type block struct{ low, high uint32 }

var (
	line  = regexp.MustCompile(`^(\d+)\.(\d{9}) \S+ +(In|Out) +IP (\S+) > (\S+): Flags \[([^\]]*)\], (.*)$`)
	field = regexp.MustCompile(`\b(seq|ack|win|wscale|val|ecr|length) (\d+)`)
	sack  = regexp.MustCompile(`\{(\d+):(\d+)\}`)
)

// parsePackets reads what tcpdump prints.
func parsePackets(text string, ahead int64) (all []packet) {
	for s := range strings.Lines(text) {
		m := line.FindStringSubmatch(strings.TrimSpace(s))
		if m == nil {
			continue
		}
		seconds, nanos := number(m[1]), number(m[2])
		p := packet{at: seconds*1e9 + nanos - ahead, in: m[3] == "In", ends: m[4], flags: m[6]}
		if p.in {
			p.ends = strings.TrimSuffix(m[5], ":")
		}
		for _, f := range field.FindAllStringSubmatch(withoutMPTCP(m[7]), -1) {
			v := number(f[2])
			switch f[1] {
			case "seq":
				p.seq = uint32(v)
			case "ack":
				p.ack = uint32(v)
			case "win":
				p.window = int(v)
			case "wscale":
				p.scale = int(v)
			case "val":
				p.val = uint32(v)
			case "ecr":
				p.ecr = uint32(v)
			case "length":
				p.length = int(v)
			}
		}
		for _, b := range sack.FindAllStringSubmatch(m[7], -1) {
			p.sacks = append(p.sacks, block{uint32(number(b[1])), uint32(number(b[2]))})
		}
		all = append(all, p)
	}
	return all
}

var option = regexp.MustCompile(`mptcp[^,\]]*`)

// withoutMPTCP leaves out MPTCP's options, which have fields of the same names.
func withoutMPTCP(s string) string { return option.ReplaceAllString(s, "") }

func number(s string) int64 {
	base := 10
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		s, base = hex, 16
	}
	v, err := strconv.ParseInt(s, base, 64)
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// probe is what a socket was when it got a packet without data.
type probe struct {
	at                        int64
	ends                      string
	next, una, cwnd, ssthresh uint32
	srtt                      int64 // µs
}

var probed = regexp.MustCompile(`\s(\d+)\.(\d+): tcp_probe: .*src=(\S+) dest=\S+ mark=\S+ data_len=0 snd_nxt=(\S+) snd_una=(\S+) snd_cwnd=(\d+) ssthresh=(\d+) snd_wnd=\d+ srtt=(\d+) `)

func parseProbes(text string) (all []probe) {
	for s := range strings.Lines(text) {
		m := probed.FindStringSubmatch(s)
		if m == nil {
			continue
		}
		micros := number(m[1])*1e6 + number(m[2])
		host, port, _ := strings.Cut(m[3], ":")
		all = append(all, probe{
			at: micros * 1000, ends: host + "." + port, next: uint32(number(m[4])),
			una: uint32(number(m[5])), cwnd: uint32(number(m[6])), ssthresh: uint32(number(m[7])), srtt: number(m[8]),
		})
	}
	return all
}

// join writes what each ACK told its socket, beside what the socket was.
func join(packets []packet, probes []probe) (string, error) {
	var b strings.Builder
	flows := map[string]*flow{}
	of := func(ends string) *flow {
		f := flows[ends]
		if f == nil {
			f = &flow{number: len(flows) + 1}
			flows[ends] = f
		}
		return f
	}
	for i := range packets {
		p := &packets[i]
		f := of(p.ends)
		switch {
		case !p.in && strings.Contains(p.flags, "S"):
			f.first = p.seq + 1
		case p.in && strings.Contains(p.flags, "S"):
			f.scale, f.opened = p.scale, p.at
		case p.in && p.length == 0 && strings.Contains(p.flags, "."):
			f.acks = append(f.acks, p)
		case !p.in && p.length > 0 && (len(f.ends) == 0 || int32(p.seq+uint32(p.length)-f.ends[len(f.ends)-1]) > 0):
			if p.seq != f.end() {
				return "", fmt.Errorf("%s: a segment of %d bytes at %d, after %d", p.ends, p.length, p.seq-f.first, f.end()-f.first)
			}
			f.ends = append(f.ends, p.seq+uint32(p.length))
			f.sends = append(f.sends, p.at)
			f.clock(p)
		}
	}
	for i, p := range probes[:min(most, len(probes))] {
		f := flows[p.ends]
		if f == nil || f.told == len(f.acks) {
			return "", fmt.Errorf("%s: the kernel tells of an ACK that was not captured", p.ends)
		}
		a := f.acks[f.told]
		if f.told > 0 && p.una != f.una {
			return "", fmt.Errorf("%s: before ACK %d, byte %d was the first not acknowledged, not %d", p.ends, f.told+1, p.una-f.first, f.una-f.first)
		}
		f.told++
		if f.told == 1 || int32(a.ack-f.una) > 0 {
			f.una = a.ack
		}
		if f.told == 1 {
			fmt.Fprintf(&b, "subflow %d %d %d", f.number, f.opened, p.srtt)
			f.tell(&b, p.at)
			b.WriteByte('\n')
		}
		ack, err := f.segment(a.ack)
		if err != nil {
			return "", err
		}
		next, err := f.segment(p.next)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%d %d %d %d %d", f.number, p.at, ack, a.window<<f.scale, int64(a.ecr-f.offset))
		for _, s := range a.sacks {
			low, errLow := f.segment(s.low)
			high, errHigh := f.segment(s.high)
			if err := errors.Join(errLow, errHigh); err != nil {
				return "", err
			}
			fmt.Fprintf(&b, " %d-%d", low, high)
		}
		fmt.Fprintf(&b, " | %d %d %d %d", p.cwnd, p.ssthresh, next, p.srtt)
		until := int64(1) << 62
		if i+1 < len(probes) {
			until = probes[i+1].at
		}
		for _, f := range flows {
			f.tell(&b, until)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// flow is a subflow.
type flow struct {
	number int
	first  uint32 // byte
	scale  int
	opened int64
	offset uint32 // of its timestamps, from the kernel's milliseconds
	acks   []*packet
	told   int      // of these
	una    uint32   // the greatest of these
	ends   []uint32 // of its segments
	sends  []int64  // when they went out first
	sent   int
}

func (f *flow) end() uint32 {
	if len(f.ends) == 0 {
		return f.first
	}
	return f.ends[len(f.ends)-1]
}

func (f *flow) size(n int) uint32 {
	if n == 0 {
		return f.ends[0] - f.first
	}
	return f.ends[n] - f.ends[n-1]
}

// tell writes what was sent up to a time.
func (f *flow) tell(b *strings.Builder, until int64) {
	for ; f.sent < len(f.sends) && f.sends[f.sent] < until; f.sent++ {
		fmt.Fprintf(b, " %d:%d", f.number, f.size(f.sent))
	}
}

// clock sets the offset, by the timestamp of a packet: the kernel reads its clock before it sends.
func (f *flow) clock(p *packet) {
	offset := p.val - uint32(p.at/1e6)
	if len(f.ends) == 1 || int32(offset-f.offset) > 0 {
		f.offset = offset
	}
}

// segment returns which segment begins at a byte.
func (f *flow) segment(seq uint32) (int, error) {
	if seq == f.first {
		return 0, nil
	}
	n, ok := slices.BinarySearchFunc(f.ends, seq, func(end, seq uint32) int { return cmp.Compare(int32(end-seq), 0) })
	if !ok {
		return 0, fmt.Errorf("no segment begins at byte %d", seq-f.first)
	}
	return n + 1, nil
}
