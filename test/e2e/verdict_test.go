// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
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
	"github.com/mpcc/mpcc/test/verified"
)

var (
	verifyCondition = flag.String("verify-condition", "", "the network of TestVerifyVerdict or TestVerifyPrice")
	verifyControl   = flag.String("verify-control", "", "the congestion control of TestVerifyPrice")
)

// condition is a network of package verified, as links.
type condition struct{ verified.Condition }

// bottleneck is a queue's shape, without delay.
func (c condition) bottleneck() lab.Shape {
	mean := 0
	for _, rtt := range c.RTTs {
		mean += rtt
	}
	packets := c.Rate * 1e3 * float64(mean) / float64(len(c.RTTs)) / 8 / 1514
	return lab.Shape{Rate: uint64(c.Rate * 1e6), Queue: max(3, int(math.Round(c.Queue*packets)))}
}

// pass is what a link is that is no bottleneck. A link must not lose its rate on the way.
func (c condition) pass() lab.Shape {
	if !c.Changes {
		return lab.Shape{}
	}
	return lab.Shape{Rate: uint64(c.Rate * 10e6), Queue: 1000}
}

// access is a subflow's own link.
func (c condition) access(i int) (there, back lab.Shape) {
	there = c.pass()
	if c.Apart() {
		there = c.bottleneck()
	}
	delay := time.Duration(c.RTTs[i]) * time.Millisecond
	there.Jitter, there.Loss = time.Duration(c.Jitter)*time.Millisecond, c.Loss
	there.Delay = max(delay/2, there.Jitter)
	if c.Back {
		there.Delay = time.Microsecond
	}
	back.Delay = max(delay-there.Delay, time.Microsecond)
	return there, back
}

// cores is how many links lead to the server.
func (c condition) cores() int {
	if c.Apart() {
		return 1
	}
	return c.Queues
}

// core is a link to the server.
func (c condition) core() lab.Shape {
	if c.Apart() {
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
		for i := range c.RTTs {
			there, back := c.access(i)
			link, err := l.Link(n.client, routers[i*len(routers)/len(c.RTTs)], lab.LinkOpts{AtoB: there, BtoA: back})
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
	more := lab.MPTCPLimits{Subflows: len(c.RTTs) - 1}
	if c.Queues > 1 || len(c.RTTs) > 2 {
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
	if n.Queues == 1 && len(n.RTTs) == 2 {
		// The client joins the address that it hears of by its first interface.
		local = n.accesses[1].Addr(n.client)
	}
	n.pair = connect(t, n.client, n.server, addr, mptcp.Options{CC: cc, Local: local}, "")
	n.stream()
	n.join(t, len(n.RTTs))
	info, err := mptcp.ReadInfo(n.pair.client)
	if err != nil {
		t.Fatal(err)
	}
	n.token = info.Token
	for i := range n.Queues {
		if n.Cross == "" {
			break
		}
		local := n.accesses[i*len(n.RTTs)/n.Queues].Addr(n.client)
		p := connect(t, n.client, n.server, addr, mptcp.Options{CC: "cubic", TCP: true, Local: local}, "cubic")
		n.rivals = append(n.rivals, p)
		if n.Cross == "long" {
			p.stream()
		} else {
			p.drain()
			go p.bursts(int(n.Rate*1e6/8*0.3), rand.New(rand.NewPCG(1, uint64(i))))
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
	n.Queues = 1 + len(n.RTTs) - n.Queues
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
			right := coupling == float64(len(n.RTTs)/n.Queues)
			n.looks = append(n.looks, verdict{time.Since(n.changed), f.SubflowId, right})
		}
	}
}

// right is the share of right looks between two times; NaN without looks.
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
	if len(first) < len(n.RTTs) {
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
func watch(t *testing.T, conditions []verified.Condition, total time.Duration) (nets []*judged) {
	t.Helper()
	shared, err := loader.OpenMaps()
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for _, c := range conditions {
		nets = append(nets, newJudged(t, condition{c}))
	}
	for _, n := range nets {
		n.run(t, verified.VerdictControl)
	}
	changed := false
	for start := time.Now(); time.Since(start) < total; time.Sleep(500 * time.Millisecond) {
		if !changed && time.Since(start) > total/3 {
			changed = true
			for _, n := range nets {
				if n.Changes {
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
	load(t, verified.VerdictControl)
	right := map[bool][]float64{} // by whether the bottleneck is shared
	for _, n := range watch(t, []verified.Condition{
		{Rate: 10, RTTs: []int{10, 100}, Queue: 1, Queues: 1},
		{Rate: 10, RTTs: []int{20, 60}, Queue: 1, Queues: 1, Cross: "bursts"},
		{Rate: 8, RTTs: []int{30, 50}, Queue: 1, Queues: 2},
		{Rate: 6, RTTs: []int{20, 100}, Queue: 1, Queues: 2, Loss: 0.5},
	}, 26*time.Second) {
		part := n.right(10*time.Second, math.MaxInt64)
		t.Logf("%v: %.2f of the looks are right", n, part)
		right[n.Queues == 1] = append(right[n.Queues == 1], part)
	}
	for shared, parts := range right {
		if len(parts) != 2 || !(parts[0]+parts[1] > 1) {
			t.Errorf("shared %v: %.2f of the looks are right, want more than half of all", shared, parts)
		}
	}
}

// TestVerifyVerdict records the looks at one of verified.Conditions in 30 s, without pauses of the CPU and then with.
func TestVerifyVerdict(t *testing.T) {
	c := find(t, verified.Conditions)
	load(t, verified.VerdictControl)
	figures := map[string]float64{}
	t.Run("calm", func(t *testing.T) { note(figures, "", watch(t, []verified.Condition{c}, 30*time.Second)[0]) })
	t.Run("paused", func(t *testing.T) {
		defer pauseCPU(t, newPauser(t))()
		note(figures, verified.Paused, watch(t, []verified.Condition{c}, 30*time.Second)[0])
	})
	record(t, figures)
}

// find returns the condition that make verify asks for.
func find(t *testing.T, conditions []verified.Condition) verified.Condition {
	t.Helper()
	c, err := verified.FindCondition(conditions, *verifyCondition)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// record keeps figures for make verify.
func record(t *testing.T, figures map[string]float64) {
	t.Helper()
	if !t.Failed() {
		keep(t, verified.Table{{Row: *verifyCondition, Column: *verifyControl, State: verified.Passed, Figures: figures}})
	}
}

// note notes what was seen of a connection; what names begin with tells the run.
func note(figures map[string]float64, run string, n *judged) {
	for _, at := range verified.LooksAt {
		around := time.Duration(at) * time.Second
		if right := n.right(around-time.Second, around+time.Second); !math.IsNaN(right) {
			figures[run+verified.RightAt(at)] = 100 * right
		}
	}
	figures[run+verified.RightFrom10s] = 100 * n.right(10*time.Second, math.MaxInt64)
	if last := n.decided(); last < math.MaxInt64 {
		figures[run+verified.LastRight] = last.Seconds()
	}
	figures[run+verified.Carried] = mbits(n.pair, 0, n.start)
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

// TestVerifyPrice records what a connection carries from 5 s to 40 s in one of verified.PriceConditions, and what its rival does.
func TestVerifyPrice(t *testing.T) {
	c := find(t, verified.PriceConditions)
	cc, always := strings.CutSuffix(*verifyControl, verified.Always)
	if args := []string{"cc/" + cc}; cc != "cubic" {
		if always {
			args = append(args, "--set", "couple=always")
		}
		load(t, args...)
	}
	n := newJudged(t, condition{c})
	n.run(t, cc)
	time.Sleep(5 * time.Second)
	pairs := map[string]pair{verified.GoodputOwn: n.pair}
	for _, rival := range n.rivals {
		pairs[verified.GoodputOthers] = rival
	}
	start, before, figures := time.Now(), map[string]int64{}, map[string]float64{}
	for whose, p := range pairs {
		before[whose] = p.received.Load()
	}
	time.Sleep(35 * time.Second)
	for whose, p := range pairs {
		figures[whose] = mbits(p, before[whose], start)
	}
	record(t, figures)
}
