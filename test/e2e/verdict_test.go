// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

var allConditions = flag.Bool("verdicts", false, "TestOwnTimeVerdicts: try all conditions, and print a table")

// condition is a network in which a connection has a subflow for each RTT. They share one queue,
//
//	client ══ router ── queue ── server
//
// or two, half of them each, or have one each:
//
//	client ═ queues ═ router ── server
//
// Each subflow has an interface of its own, so that without a verdict none is coupled: where a queue is shared no verdict is
// no right one.
type condition struct {
	rate   float64 // of each queue, Mbit/s
	rtts   []int   // ms, without queues
	queue  float64 // in bandwidth-delay products of the mean RTT
	loss   float64 // percent, at random, of each subflow's packets
	jitter int     // ± ms, of each subflow's packets by themselves; they keep their order
	cross  string  // TCP connections under cubic, one through each queue: "long", or "bursts" with pauses of about 1 s
	back   bool    // all delay is on the ways back, which is where subflows see a queue at the most different times

	queues  int  // how many queues
	changes bool // from that to the other of one queue and a queue each, after a third of the time
}

func (c condition) String() string {
	var rtts []string
	for _, rtt := range c.rtts {
		rtts = append(rtts, fmt.Sprint(rtt))
	}
	s := fmt.Sprintf("%g Mbit/s, %s ms, %g BDP", c.rate, strings.Join(rtts, "/"), c.queue)
	if c.loss > 0 {
		s += fmt.Sprintf(", %g %% lost", c.loss)
	}
	if c.jitter > 0 {
		s += fmt.Sprintf(", ± %d ms", c.jitter)
	}
	if c.cross != "" {
		s += ", cross: " + c.cross
	}
	if c.back {
		s += ", queue near"
	}
	names := map[bool]string{true: "shared", false: "apart"}
	switch {
	case c.changes: // seen after the change
		return s + ", " + names[c.queues != 1] + " changing to " + names[c.queues == 1]
	case c.queues == 1 || c.queues == len(c.rtts):
		return s + ", " + names[c.queues == 1]
	}
	return s + fmt.Sprintf(", %d queues", c.queues)
}

func (c condition) apart() bool { return c.queues == len(c.rtts) }

// bottleneck is a queue's shape, without delay.
func (c condition) bottleneck() lab.Shape {
	mean := 0
	for _, rtt := range c.rtts {
		mean += rtt
	}
	packets := c.rate * 1e3 * float64(mean) / float64(len(c.rtts)) / 8 / 1514
	return lab.Shape{Rate: uint64(c.rate * 1e6), Queue: max(3, int(math.Round(c.queue*packets)))}
}

// pass is what a link is that is no bottleneck. A link must not lose its rate on the way.
func (c condition) pass() lab.Shape {
	if !c.changes {
		return lab.Shape{}
	}
	return lab.Shape{Rate: uint64(c.rate * 10e6), Queue: 1000}
}

// access is a subflow's own link.
func (c condition) access(i int) (there, back lab.Shape) {
	there = c.pass()
	if c.apart() {
		there = c.bottleneck()
	}
	delay := time.Duration(c.rtts[i]) * time.Millisecond
	there.Jitter, there.Loss = time.Duration(c.jitter)*time.Millisecond, c.loss
	there.Delay = max(delay/2, there.Jitter)
	if c.back {
		there.Delay = time.Microsecond
	}
	back.Delay = max(delay-there.Delay, time.Microsecond)
	return there, back
}

// cores is how many links lead to the server.
func (c condition) cores() int {
	if c.apart() {
		return 1
	}
	return c.queues
}

// core is a link to the server.
func (c condition) core() lab.Shape {
	if c.apart() {
		return c.pass()
	}
	return c.bottleneck()
}

// judged is a connection in a condition, and what was seen of it.
type judged struct {
	condition
	client, server *lab.Host
	accesses       []*lab.Link
	links          []*lab.Link // to the server
	pair
	rivals  []pair
	token   uint32
	start   time.Time
	changed time.Time // the time from which the looks count
	looks   []verdict
}

// verdict is what one look at one subflow showed.
type verdict struct {
	after   time.Duration
	subflow uint32
	right   bool
}

func newJudged(t *testing.T, c condition) *judged {
	t.Helper()
	l := newLab(t)
	n := &judged{condition: c, client: addHost(t, l, "client"), server: addHost(t, l, "server")}
	var own []lab.MPTCPEndpoint
	err := l.Together(func() error {
		var routers []*lab.Host
		for i := range c.cores() {
			routers = append(routers, addRouter(t, l, fmt.Sprintf("router-%d", i)))
			n.links = append(n.links, addLink(t, l, routers[i], n.server, c.core()))
		}
		for i := range c.rtts {
			there, back := c.access(i)
			link, err := l.Link(n.client, routers[i*len(routers)/len(c.rtts)], lab.LinkOpts{AtoB: there, BtoA: back})
			if err != nil {
				return err
			}
			n.accesses = append(n.accesses, link)
			if i > 0 {
				own = append(own, lab.MPTCPEndpoint{Addr: link.Addr(n.client), Subflow: true})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	more := lab.MPTCPLimits{Subflows: len(c.rtts) - 1}
	if c.queues > 1 || len(c.rtts) > 2 {
		route(t, l)
		if err := n.client.MPTCP(more, own...); err != nil {
			t.Fatal(err)
		}
		if err := n.server.MPTCP(more); err != nil {
			t.Fatal(err)
		}
		return n
	}
	second, err := n.links[0].AddAddrs(n.server, 1)
	if err != nil {
		t.Fatal(err)
	}
	route(t, l)
	accept(t, n.client)
	announce(t, n.server, second[0])
	return n
}

// run opens the connection, and what competes with it.
func (n *judged) run(t *testing.T, cc string) {
	t.Helper()
	addr := n.links[0].Addr(n.server)
	local := n.accesses[0].Addr(n.client)
	if n.queues == 1 && len(n.rtts) == 2 {
		// The client joins the address that it hears of by its first interface.
		local = n.accesses[1].Addr(n.client)
	}
	n.pair = connect(t, n.client, n.server, addr, mptcp.Options{CC: cc, Local: local}, "")
	n.stream()
	n.join(t, len(n.rtts))
	info, err := mptcp.ReadInfo(n.pair.client)
	if err != nil {
		t.Fatal(err)
	}
	n.token = info.Token
	for i := range n.queues {
		if n.cross == "" {
			break
		}
		local := n.accesses[i*len(n.rtts)/n.queues].Addr(n.client)
		p := connect(t, n.client, n.server, addr, mptcp.Options{CC: "cubic", TCP: true, Local: local}, "cubic")
		n.rivals = append(n.rivals, p)
		if n.cross == "long" {
			p.stream()
		} else {
			p.drain()
			go p.bursts(int(n.rate*1e6/8*0.3), rand.New(rand.NewPCG(1, uint64(i))))
		}
	}
	n.start = time.Now()
	n.changed = n.start
}

// bursts sends so many bytes at a time, with pauses of 0.5 to 1.5 s, until close.
func (p pair) bursts(bytes int, random *rand.Rand) {
	for content := make([]byte, bytes); ; time.Sleep(500*time.Millisecond + time.Duration(random.Int64N(1e9))) {
		if _, err := p.client.Write(content); err != nil {
			return
		}
	}
}

// change makes one queue of a queue each, or the other way round.
func (n *judged) change(t *testing.T) {
	t.Helper()
	n.queues = 1 + len(n.rtts) - n.queues
	for i, link := range n.accesses {
		there, _ := n.access(i)
		if err := link.Set(lab.AtoB, there); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.links[0].Set(lab.AtoB, n.core()); err != nil {
		t.Fatal(err)
	}
	n.changed = time.Now()
	n.looks = nil
}

// look notes each subflow's verdict: under dwc the coupling that mpcc shows is how many subflows share its queue.
func (n *judged) look(subflows map[uint64]obj.MapsMpccSubflow) {
	for _, f := range subflows {
		if f.Token == n.token {
			coupling := math.Ldexp(float64(f.Coupling.Value.M), int(f.Coupling.Value.E))
			right := coupling == float64(len(n.rtts)/n.queues)
			n.looks = append(n.looks, verdict{time.Since(n.changed), f.SubflowId, right})
		}
	}
}

// right is the share of right looks between two times.
func (n *judged) right(from, to time.Duration) float64 {
	right, all := 0., 0.
	for _, v := range n.looks {
		if v.after >= from && v.after < to {
			all++
			if v.right {
				right++
			}
		}
	}
	return right / all
}

// decided is when the last subflow was first right.
func (n *judged) decided() time.Duration {
	first := map[uint32]time.Duration{}
	for _, v := range n.looks {
		if _, ok := first[v.subflow]; v.right && !ok {
			first[v.subflow] = v.after
		}
	}
	if len(first) < len(n.rtts) {
		return math.MaxInt64
	}
	last := time.Duration(0)
	for _, at := range first {
		last = max(last, at)
	}
	return last
}

// watch runs conditions side by side for some time, and looks at them twice a second. It reads the map that `mpcc
// status` reads: what takes the VM's only CPU for 20 ms, as mpcc or package telemetry would, is a delay that all subflows
// see at the same time, as if they shared a queue.
func watch(t *testing.T, conditions []condition, total time.Duration) (nets []*judged) {
	t.Helper()
	shared, err := loader.OpenMaps()
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for _, c := range conditions {
		nets = append(nets, newJudged(t, c))
	}
	for _, n := range nets {
		n.run(t, "dwc")
	}
	changed := false
	for start := time.Now(); time.Since(start) < total; time.Sleep(500 * time.Millisecond) {
		if !changed && time.Since(start) > total/3 {
			changed = true
			for _, n := range nets {
				if n.changes {
					n.change(t)
				}
			}
		}
		subflows, err := loader.Read[uint64, obj.MapsMpccSubflow](shared, loader.MapSubflows)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nets {
			n.look(subflows)
		}
	}
	return nets
}

// Which subflows share a bottleneck, as `couple=shared` finds out from their RTTs (bpf/include/mpcc/bottleneck.h). From
// 10 s on most looks have to be right, of those at shared bottlenecks and of those at others: with one condition alone
// it may well be wrong (docs/couple.md).
func TestOwnTimeVerdicts(t *testing.T) {
	load(t, "dwc")
	if *allConditions {
		verdictTable(t)
		return
	}
	right := map[bool][]float64{} // by whether the bottleneck is shared
	for _, n := range watch(t, []condition{
		{rate: 10, rtts: []int{10, 100}, queue: 1, queues: 1},
		{rate: 10, rtts: []int{20, 60}, queue: 1, queues: 1, cross: "bursts"},
		{rate: 8, rtts: []int{30, 50}, queue: 1, queues: 2},
		{rate: 6, rtts: []int{20, 100}, queue: 1, queues: 2, loss: 0.5},
	}, 26*time.Second) {
		part := n.right(10*time.Second, math.MaxInt64)
		t.Logf("%v: %.2f of the looks are right", n, part)
		right[n.queues == 1] = append(right[n.queues == 1], part)
	}
	for shared, parts := range right {
		if len(parts) != 2 || !(parts[0]+parts[1] > 1) {
			t.Errorf("shared %v: %.2f of the looks are right, want more than half of all", shared, parts)
		}
	}
}

// say prints a line of a table.
func say(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

// tally is what was seen of a connection in a condition.
type tally struct {
	name, early string        // the condition, and the columns of 2 to 20 s
	shared      bool          // one queue
	late        float64       // share of right looks from 10 s on
	decided     time.Duration // when the last subflow was first right
	mbits       float64
}

func tallies(nets []*judged) (all []tally) {
	for _, n := range nets {
		o := tally{
			name: n.String(), shared: n.queues == 1,
			late: n.right(10*time.Second, math.MaxInt64), decided: n.decided(), mbits: mbits(n.pair, 0, n.start),
		}
		for _, at := range []time.Duration{2, 5, 10, 20} {
			o.early += fmt.Sprintf(" %.0f |", 100*n.right((at-1)*time.Second, (at+1)*time.Second))
		}
		all = append(all, o)
	}
	return all
}

// seconds is a time in a table.
func seconds(d time.Duration) string {
	if d == math.MaxInt64 {
		return "never"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// sum says in how many of the looks from 10 s on connections were right, and the median of the times until they were.
func sum(all []tally, shared bool) string {
	var late float64
	var decided []time.Duration
	for _, o := range all {
		if o.shared == shared {
			late += o.late
			decided = append(decided, o.decided)
		}
	}
	slices.Sort(decided)
	return fmt.Sprintf("%.1f %% of the looks right from 10 s on, last subflow right after %s s (median)",
		100*late/float64(len(decided)), seconds(decided[len(decided)/2]))
}

// verdictTable prints what comes of many conditions, 30 s each without pauses of the CPU and 30 s with, and what the errors
// cost.
func verdictTable(t *testing.T) {
	pauser := newPauser(t)
	say("| condition | 2 s | 5 s | 10 s | 20 s | from 10 s on | with pauses | last subflow right, s | with pauses | Mbit/s |\n" +
		"|---|---|---|---|---|---|---|---|---|---|")
	var calm, paused []tally
	for _, batch := range conditionTable {
		t.Run("conditions", func(t *testing.T) { calm = append(calm, tallies(watch(t, batch, 30*time.Second))...) })
		t.Run("pauses", func(t *testing.T) {
			defer pauseCPU(t, pauser)()
			paused = append(paused, tallies(watch(t, batch, 30*time.Second))...)
		})
		if t.Failed() {
			return
		}
		for i := len(calm) - len(batch); i < len(calm); i++ {
			a, b := calm[i], paused[i]
			say("| %s |%s %.0f | %.0f | %s | %s | %.1f |", a.name, a.early, 100*a.late, 100*b.late, seconds(a.decided),
				seconds(b.decided), a.mbits)
		}
	}
	say("")
	for _, s := range []struct {
		name string
		all  []tally
	}{{"without pauses", calm}, {"with pauses", paused}} {
		say("%s, where one queue is shared: %s", s.name, sum(s.all, true))
		say("%s, elsewhere: %s", s.name, sum(s.all, false))
	}
	say("")

	say("| condition | control | couple | Mbit/s | of cubic's | of the rival's |\n|---|---|---|---|---|---|")
	loaded := map[string]bool{"dwc": true, "cubic": true}
	for _, batch := range priceTable {
		t.Run("prices", func(t *testing.T) { prices(t, batch, loaded) })
	}
}

// pausesPerSecond is how often the CPU pauses, for 1 to 20 ms each time.
const pausesPerSecond = 4

// newPauser loads a BPF program that runs for as many nanoseconds as the first eight bytes of its packet say. The kernel runs
// programs of packets with softirqs off, so that no packet comes or goes on the VM's only CPU meanwhile, and no other process
// runs.
func newPauser(t *testing.T) *ebpf.Program {
	t.Helper()
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	pointer := &btf.Pointer{Target: &btf.Void{}}
	main := &btf.Func{Name: "pause", Linkage: btf.GlobalFunc, Type: &btf.FuncProto{
		Return: number, Params: []btf.FuncParam{{Name: "packet", Type: pointer}},
	}}
	// The verifier takes nothing but a static function of known type for a loop's body.
	body := &btf.Func{Name: "is_over", Linkage: btf.StaticFunc, Type: &btf.FuncProto{
		Return: number, Params: []btf.FuncParam{{Name: "turn", Type: number}, {Name: "end", Type: pointer}},
	}}
	loadBody := asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		btf.WithFuncMetadata(asm.LoadMem(asm.R6, asm.R1, 0, asm.Word).WithSymbol(main.Name), main), // xdp_md.data
		asm.LoadMem(asm.R7, asm.R1, 4, asm.Word),                                                   // xdp_md.data_end
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Add.Imm(asm.R2, 8),
		asm.JGT.Reg(asm.R2, asm.R7, "done"),
		asm.LoadMem(asm.R8, asm.R6, 0, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.Add.Reg(asm.R0, asm.R8),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R1, 1<<23), // the most turns that the kernel allows
		loadBody.WithReference(body.Name),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnLoop.Call(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("done"), // XDP_PASS
		asm.Return(),
		btf.WithFuncMetadata(asm.LoadMem(asm.R6, asm.R2, 0, asm.DWord).WithSymbol(body.Name), body),
		asm.FnKtimeGetNs.Call(),
		asm.JGE.Reg(asm.R0, asm.R6, "over"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("over"), // ends the loop
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("the program that takes the CPU: %+v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// pauseCPU has the CPU pause until stop, which tells how often it did. Each run pauses at the same times for as long.
func pauseCPU(t *testing.T, pauser *ebpf.Program) (stop func()) {
	var count atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		random := rand.New(rand.NewPCG(1, 2))
		packet := make([]byte, 64)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(random.Int64N(2 * int64(time.Second) / pausesPerSecond))):
			}
			binary.NativeEndian.PutUint64(packet, uint64(time.Millisecond)+random.Uint64N(uint64(19*time.Millisecond)))
			if _, err := pauser.Run(&ebpf.RunOptions{Data: packet}); err != nil {
				t.Errorf("a pause of the CPU: %v", err)
				return
			}
			count.Add(1)
		}
	}()
	return func() {
		close(done)
		<-ended
		t.Logf("%d pauses", count.Load())
	}
}

// mbits is what a connection has received since a time at which it had received so much.
func mbits(p pair, before int64, since time.Time) float64 {
	return float64(p.received.Load()-before) * 8 / 1e6 / time.Since(since).Seconds()
}

// priced is a connection of which the goodput is of interest.
type priced struct {
	condition
	cc, couple string
}

// prices prints what connections side by side carry from 5 s to 40 s, and what that is of the first one's.
func prices(t *testing.T, batch []priced, loaded map[string]bool) {
	var nets []*judged
	for _, p := range batch {
		nets = append(nets, newJudged(t, p.condition))
	}
	for i, p := range batch {
		if p.couple != "" {
			verb := map[bool]string{true: "switch", false: "load"}[loaded[p.cc]]
			mpcc(t, verb, "cc/"+p.cc, "--set", "couple="+p.couple)
			loaded[p.cc] = true
		}
		nets[i].run(t, p.cc)
	}
	time.Sleep(5 * time.Second)
	start := time.Now()
	var before, rivals []int64
	for _, n := range nets {
		before = append(before, n.received.Load())
		for _, rival := range n.rivals {
			rivals = append(rivals, rival.received.Load())
		}
	}
	time.Sleep(35 * time.Second)
	first := mbits(nets[0].pair, before[0], start)
	for i, p := range batch {
		got := mbits(nets[i].pair, before[i], start)
		row := fmt.Sprintf("| %v | %s | %s | %.2f |", p.condition, p.cc, p.couple, got)
		if p.cross == "" {
			say("%s %.2f | |", row, got/first)
		} else {
			say("%s | %.2f |", row, got/mbits(nets[i].rivals[0], rivals[i], start))
		}
	}
}

// conditionTable has in each batch about as much traffic as a VM in its own time carries.
var conditionTable = [][]condition{
	{
		{rate: 10, rtts: []int{20, 20}, queue: 1, queues: 1},
		{rate: 10, rtts: []int{20, 20}, queue: 1, queues: 2},
		{rate: 10, rtts: []int{40, 60}, queue: 5, queues: 1},
		{rate: 10, rtts: []int{40, 60}, queue: 5, queues: 2},
	}, {
		{rate: 10, rtts: []int{10, 100}, queue: 1, queues: 1},
		{rate: 10, rtts: []int{10, 100}, queue: 1, queues: 2},
		{rate: 10, rtts: []int{20, 20}, queue: 0.2, queues: 1},
		{rate: 10, rtts: []int{20, 20}, queue: 0.2, queues: 2},
	}, {
		{rate: 10, rtts: []int{40, 60}, queue: 1, queues: 1, loss: 0.5},
		{rate: 10, rtts: []int{40, 60}, queue: 1, queues: 2, loss: 0.5},
		{rate: 6, rtts: []int{20, 30}, queue: 1, queues: 1, loss: 2},
		{rate: 6, rtts: []int{20, 30}, queue: 1, queues: 2, loss: 2},
	}, {
		{rate: 10, rtts: []int{60, 60}, queue: 1, queues: 1, jitter: 30},
		{rate: 10, rtts: []int{60, 60}, queue: 1, queues: 2, jitter: 30},
		{rate: 10, rtts: []int{50, 100}, queue: 1, queues: 1, jitter: 5},
		{rate: 10, rtts: []int{50, 100}, queue: 1, queues: 2, jitter: 5},
	}, {
		{rate: 10, rtts: []int{20, 60}, queue: 1, queues: 1, cross: "long"},
		{rate: 10, rtts: []int{20, 60}, queue: 1, queues: 2, cross: "long"},
		{rate: 10, rtts: []int{20, 60}, queue: 1, queues: 1, cross: "bursts"},
		{rate: 10, rtts: []int{20, 60}, queue: 1, queues: 2, cross: "bursts"},
	}, {
		{rate: 10, rtts: []int{5, 300}, queue: 0.5, queues: 1},
		{rate: 10, rtts: []int{5, 300}, queue: 0.5, queues: 2},
		{rate: 5, rtts: []int{300, 300}, queue: 1, queues: 1},
		{rate: 5, rtts: []int{300, 300}, queue: 1, queues: 2},
		{rate: 10, rtts: []int{10, 250}, queue: 0.5, queues: 1, back: true},
	}, {
		{rate: 10, rtts: []int{20, 40}, queue: 1, queues: 2, changes: true},
		{rate: 10, rtts: []int{20, 40}, queue: 1, queues: 1, changes: true},
		{rate: 10, rtts: []int{20, 30, 40, 50}, queue: 1, queues: 2},
	}, {
		{rate: 10, rtts: []int{20, 30, 40, 50}, queue: 1, queues: 1},
		{rate: 8, rtts: []int{20, 30, 40, 50}, queue: 1, queues: 4},
		{rate: 10, rtts: []int{20, 40, 60}, queue: 1, queues: 1},
	}, {
		{rate: 50, rtts: []int{20, 80}, queue: 1, queues: 1},
	}, {
		{rate: 40, rtts: []int{20, 80}, queue: 1, queues: 2},
	}, {
		{rate: 100, rtts: []int{20, 40}, queue: 1, queues: 1},
	}, {
		{rate: 50, rtts: []int{5, 5}, queue: 2, queues: 1},
	}, {
		{rate: 50, rtts: []int{5, 5}, queue: 2, queues: 2},
	},
}

var (
	apart6   = condition{rate: 6, rtts: []int{20, 40}, queue: 1, queues: 2}
	lossy    = condition{rate: 6, rtts: []int{40, 60}, queue: 1, queues: 2, loss: 0.5}
	besideIt = condition{rate: 10, rtts: []int{40, 40}, queue: 1, queues: 1, cross: "long"}
)

// priceTable has the yardstick first where there is no rival.
var priceTable = [][]priced{
	{{apart6, "cubic", ""}, {apart6, "dwc", "shared"}, {apart6, "lia", "shared"}, {apart6, "lia", "always"}},
	{{besideIt, "cubic", ""}, {besideIt, "dwc", "shared"}, {besideIt, "lia", "shared"}, {besideIt, "lia", "always"}},
	{{besideIt, "dwc", "always"}, {besideIt, "olia", "shared"}, {besideIt, "olia", "always"}, {besideIt, "balia", "shared"}},
	{{apart6, "cubic", ""}, {apart6, "olia", "shared"}, {apart6, "olia", "always"}, {apart6, "balia", "shared"}},
	{{besideIt, "coupled", "shared"}, {besideIt, "ewtcp", "shared"}, {besideIt, "dts", "shared"}, {besideIt, "mpcubic", "shared"}},
	{{apart6, "cubic", ""}, {apart6, "coupled", "shared"}, {apart6, "ewtcp", "shared"}, {apart6, "dts", "shared"}},
	{{besideIt, "dtsx", "shared"}, {besideIt, "ecmtcp", "shared"}, {besideIt, "wvegas", "shared"}, {besideIt, "cdd", "shared"}},
	{{apart6, "cubic", ""}, {apart6, "mpcubic", "shared"}, {apart6, "ecmtcp", "shared"}, {apart6, "wvegas", "shared"}},
	{{lossy, "cubic", ""}, {lossy, "dwc", "shared"}, {lossy, "lia", "shared"}, {lossy, "lia", "always"}},
}
