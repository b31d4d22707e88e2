// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/sim"
	"github.com/mpcc/mpcc/internal/experiment/sim/control"
	"github.com/mpcc/mpcc/loader"
)

// Simulate is All with the simulator in place of the kernel. The runs share the processors.
func Simulate(ctx context.Context, file *scenario.File, folder *result.Folder, o Options) (*result.Result, error) {
	runs := o.Runs(file)
	for _, one := range runs {
		if err := sim.Supports(one.Scenario); err != nil {
			return nil, err
		}
	}
	r := o.result(file, result.Simulated)
	done := make([]*result.Run, len(runs))
	failed := make([]error, len(runs))
	p := &sharedProgress{progress: progress{tell: o.Progress, now: Progress{Runs: len(runs)}}}
	for _, one := range runs {
		p.now.All += Phases(one)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	next := make(chan int, len(runs))
	for i := range runs {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(runs)) {
		workers.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					return
				}
				m := &simulation{run: runs[i], folder: folder, index: i, progress: p}
				if err := m.do(ctx); err != nil {
					failed[i] = fmt.Errorf("run %d of %d (%s): %w", i+1, len(runs), describe(runs[i]), errors.Join(err, folder.Drop(&m.result)))
					stop()
					return
				}
				done[i] = new(m.result) // a copy: a pointer to m.result would keep all of m
			}
		})
	}
	workers.Wait()
	for i, one := range done {
		if one != nil {
			r.Runs = append(r.Runs, *one)
		}
		if failed[i] != nil && !errors.Is(failed[i], context.Canceled) {
			failed[0] = failed[i] // what has stopped the others
		}
	}
	err := failed[0]
	if err == nil {
		err = context.Cause(ctx)
	}
	if len(r.Runs) == 0 {
		return nil, err
	}
	r.Seconds = time.Since(r.Started).Seconds()
	if written := folder.Write(r); written != nil {
		return nil, errors.Join(err, written)
	}
	return r, err
}

// Phases returns how long a run's phases take: at most so much time is simulated.
func Phases(r scenario.Run) time.Duration { return Length(r) - overhead }

// sharedProgress tells how far runs are that go on side by side.
type sharedProgress struct {
	mu sync.Mutex
	progress
	told time.Time
}

// went tells that a run has gone on for a while of its own time.
func (p *sharedProgress) went(on time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Done += on
	if now := time.Now(); now.Sub(p.told) > time.Second/5 {
		p.told = now
		p.say("simulating")
	}
}

// began tells that a run has begun, or another one is complete.
func (p *sharedProgress) began(index int, point result.Point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Run, p.now.Point = index, point
	p.say("simulating")
}

// simulation is one run while it is done in virtual time.
type simulation struct {
	run      scenario.Run
	folder   *result.Folder
	index    int
	progress *sharedProgress

	sim     *sim.Simulation
	plan    *scenario.Network
	net     network // of which only the costs and the warnings are used
	users   []*simulatedUser
	samples *result.SampleWriter
	begun   time.Duration // when the measured phase began; -1 before
	queues  []result.Queue
	result  result.Run
}

// simulatedUser observes a user of the simulator, as a socketObserver does one of the kernel.
type simulatedUser struct {
	*sim.User
	subflows []*simulatedSubflow
	meters   map[string]*meter
	before   struct {
		bytes, again, outOfOrder uint64
		active                   time.Duration
	}
}

type simulatedSubflow struct {
	*sim.Subflow
	last, began sim.Tally
	means
}

func (m *simulation) do(ctx context.Context) (err error) {
	m.progress.began(m.index, m.run.Point)
	phases := m.run.Scenario.Phases
	m.plan, m.net, m.begun = m.run.Network(), newNetwork(nil), -1
	m.result = result.Run{
		Point: m.run.Point, Repeat: m.run.Repeat, Planned: m.run.Planned, Seed: m.run.Seed, Warmup: phases.Warmup.Std().Seconds(),
	}
	if m.sim, err = sim.New(m.run); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.sim.Close()) }()
	if err := m.prepare(); err != nil {
		return err
	}
	if m.samples, err = m.folder.Samples(&m.result, m.index); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.samples.Close()) }()
	if err := m.measure(ctx); err != nil {
		return err
	}
	return m.assemble()
}

// prepare makes observers of the users, and tells the algorithms what interfaces cost.
func (m *simulation) prepare() error {
	metered := map[scenario.Name][]iface{}
	for i := range m.plan.Links {
		l := &m.plan.Links[i]
		own, price, err := profiles(l)
		if err != nil {
			return err
		}
		if own == nil && price == nil {
			continue
		}
		for _, host := range l.Between {
			at := address{iface: iface{name: l.Interface, profile: own}, price: price}
			metered[host] = append(metered[host], at.iface)
			if slices.Contains(m.plan.Routers, host) {
				continue
			}
			if err := m.sim.SetEnergy(host, l.Interface, microwatts(m.net.costs(at))); err != nil {
				return err
			}
		}
	}
	for _, u := range m.sim.Users {
		user := &simulatedUser{User: u, meters: map[string]*meter{}}
		for _, i := range metered[u.Member.From] {
			if i.profile != nil {
				user.meters[i.name] = &meter{profile: i.profile}
			}
		}
		m.users = append(m.users, user)
	}
	return nil
}

// microwatts brings a profile into the units of the algorithms.
func microwatts(p loader.Profile) control.EnergyProfile {
	micro := func(milli float64) uint32 { return uint32(math.Round(1000 * milli)) }
	return control.EnergyProfile{UpUwPerMbps: micro(p.Uplink), DownUwPerMbps: micro(p.Downlink), BaseUw: micro(p.Base)}
}

// measure goes through the phases.
func (m *simulation) measure(ctx context.Context) error {
	phases := m.run.Scenario.Phases
	warm, end := phases.Warmup.Std(), phases.Warmup.Std()+phases.Measure.Std()
	events := m.run.Changes()
	every := m.run.Scenario.Sample.Std()
	sample, last := every, time.Duration(0)
	if warm == 0 {
		m.begin()
	}
	for running := true; running; {
		stop := min(sample, end)
		if m.begun < 0 {
			stop = min(stop, warm)
		}
		if len(events) > 0 {
			stop = min(stop, events[0].At.Std())
		}
		if err := m.sim.Until(stop); err != nil {
			return err
		}
		for len(events) > 0 && events[0].At.Std() <= stop {
			if err := m.sim.Change(events[0]); err != nil {
				return fmt.Errorf("event at %v: %w", events[0].At, err)
			}
			events = events[1:]
		}
		if m.begun < 0 && stop == warm {
			m.look(stop - last)
			last = stop
			m.begin()
		}
		if stop == sample || stop == end {
			m.look(stop - last)
			m.progress.went(stop - last)
			last = stop
			if stop == sample {
				sample += every
				if err := m.sample(stop - warm); err != nil {
					return err
				}
			}
			running = stop < end && !filesDone(m.users, func(u *simulatedUser) (*scenario.Class, bool) { return u.Class, u.Done() })
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if m.begun < 0 {
		return errors.New("all files were there before the measured phase began: shorten the warm-up, or take larger files")
	}
	m.progress.went(end - last)
	return m.sim.Check()
}

// begin begins the measured phase.
func (m *simulation) begin() {
	m.begun = m.sim.Now()
	for i := range m.sim.Directions {
		sent, dropped, marked := m.sim.Queue(&m.sim.Directions[i])
		m.queues = append(m.queues, result.Queue{Sent: sent, Dropped: dropped, Marked: marked})
	}
	for _, u := range m.users {
		u.before.bytes, u.before.active, u.before.again, u.before.outOfOrder = u.Bytes(), u.Active(), u.Again(), u.OutOfOrder()
		for _, s := range u.subflows {
			s.began = s.Tally()
		}
	}
}

// look reads the subflows' counters, some time after the last look.
func (m *simulation) look(since time.Duration) {
	for _, u := range m.users {
		for _, s := range u.Subflows()[len(u.subflows):] {
			u.subflows = append(u.subflows, &simulatedSubflow{Subflow: s})
		}
		moved := map[string]uint64{}
		for _, s := range u.subflows {
			now := s.Tally()
			if u.Class.Direction == "up" {
				moved[s.Interface] += now.Sent - s.last.Sent
			} else {
				moved[s.Interface] += now.Acked - s.last.Acked
			}
			s.last = now
		}
		for name, bytes := range moved {
			if meter := u.meters[name]; meter != nil && m.begun >= 0 {
				meter.add(bytes, since)
			}
		}
	}
}

// sample writes down the state of all subflows, at a time since the measured phase began.
func (m *simulation) sample(at time.Duration) error {
	for _, u := range m.users {
		for _, s := range u.subflows {
			state, live := s.State()
			if !live {
				continue
			}
			row := result.Sample{
				Time: at.Seconds(), Class: string(u.Class.Name), User: u.Number, Subflow: s.ID, Interface: s.Interface,
				Cwnd: state.Cwnd, SRTT: milliseconds(state.SRTT), Rate: state.Rate, Bytes: s.last.Acked, Retrans: s.last.Retransmitted,
			}
			if state.Ssthresh < infinite {
				row.Ssthresh = pointer(state.Ssthresh)
			}
			if m.begun >= 0 {
				s.add(row)
			}
			if err := m.samples.Write(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// assemble makes the run's results.
func (m *simulation) assemble() error {
	r := &m.result
	r.Measured = (m.sim.Now() - m.begun).Seconds()
	for i := range m.sim.Directions {
		d := &m.sim.Directions[i]
		sent, dropped, marked := m.sim.Queue(d)
		before := m.queues[i]
		asked := (&direction{shape: shape(d.Shape)}).asked()
		r.Links = append(r.Links, result.Link{
			Name: d.Name, From: string(d.From), To: string(d.To), Asked: asked, Qdisc: result.Simulated,
			Queue: result.Queue{Sent: sent - before.Sent, Dropped: dropped - before.Dropped, Marked: marked - before.Marked},
		})
	}
	r.Warnings = m.net.warnings
	return addClasses(r, m.run, m.plan, func(class *scenario.Class) (users []result.User) {
		for _, u := range m.users {
			if u.Class.Name == class.Name {
				row := u.result(m.begun)
				row.Host = string(u.Member.From)
				users = append(users, row)
			}
		}
		return users
	})
}

// result returns what the user did in the measured phase, which began at start.
func (u *simulatedUser) result(start time.Duration) result.User {
	r := result.User{Bytes: u.Bytes() - u.before.bytes, Active: (u.Active() - u.before.active).Seconds()}
	for _, t := range u.Transfers() {
		row := result.Transfer{Start: (t.Start - start).Seconds(), Bytes: t.Bytes}
		if t.Took > 0 {
			row.Seconds = pointer(t.Took.Seconds())
		}
		if row.Start >= 0 {
			r.Transfers = append(r.Transfers, row)
		}
	}
	if u.Class.Transport == scenario.OverUDP {
		return r
	}
	received := uint64(0)
	for _, s := range u.subflows {
		delivered := s.last.Delivered - s.began.Delivered
		received += delivered
		row := result.Subflow{
			ID: s.ID, Interface: s.Interface, Bytes: s.last.Acked - s.began.Acked, Retrans: s.last.Retransmitted - s.began.Retransmitted,
		}
		s.fill(&row)
		r.Subflows = append(r.Subflows, row)
	}
	if received > 0 {
		r.Received = &received
		if u.Class.Transport == scenario.OverMPTCP {
			r.Reinjected = pointer((u.Again() - u.before.again + sim.SubflowMSS - 1) / sim.SubflowMSS)
			r.OutOfOrder = pointer(u.OutOfOrder() - u.before.outOfOrder)
		}
	}
	r.Energy = spent(slices.Collect(maps.Values(u.meters)), u.Class.Direction == "up")
	return r
}
