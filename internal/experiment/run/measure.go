// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
	"github.com/mpcc/mpcc/pkg/energy"
)

// measurement is one run while it is done.
type measurement struct {
	run        scenario.Run
	algorithms *algorithms
	folder     *result.Folder
	index      int
	progress   *progress

	plan    *scenario.Network
	net     network
	servers map[scenario.Name]*traffic.Server
	users   []*user // of all classes, in order
	maps    mapReader
	samples *result.SampleWriter
	began   time.Time // of the warm-up
	result  result.Run
}

// do builds the network, lets the users send, measures, and removes all that it has made.
func (m *measurement) do(ctx context.Context) (err error) {
	m.plan = m.run.Network()
	m.result = result.Run{
		Point: m.run.Point, Repeat: m.run.Repeat, Planned: m.run.Planned, Seed: m.run.Seed, Warmup: m.run.Scenario.Phases.Warmup.Std().Seconds(),
	}
	m.progress.say("building")
	wanted, err := wantedBy(m.run)
	if err != nil {
		return err
	}
	if err := m.algorithms.adopt(ctx, wanted); err != nil {
		return err
	}
	l, err := lab.New()
	if err != nil {
		return err
	}
	m.net = newNetwork(l)
	defer func() { err = errors.Join(err, m.net.close()) }()
	if err := m.net.build(ctx, m.plan, m.run.Changes()); err != nil {
		return err
	}
	m.progress.say("measuring the links")
	if err := m.links(ctx); err != nil {
		return err
	}
	if m.users, err = m.newUsers(); err != nil {
		return err
	}
	defer func() {
		for _, s := range m.servers {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := m.prepareHosts(); err != nil {
		return err
	}
	if m.samples, err = m.folder.Samples(&m.result, m.index); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.samples.Close()) }()
	return m.send(ctx)
}

// send lets the users send until the run is over, and makes its results.
func (m *measurement) send(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	m.began = time.Now()
	if m.run.Scenario.Phases.Warmup == 0 {
		if err := m.begin(ctx); err != nil {
			return err
		}
	}
	sending, stop := context.WithCancel(ctx)
	ended := m.start(sending, fail)
	defer func() {
		stop()
		<-ended
	}()
	first, last, err := m.measure(ctx)
	if err != nil {
		return err
	}
	return m.assemble(first, last)
}

// mostVerified is the largest number of links' directions that are measured. A
// data centre has hundreds, all made in the same way.
const mostVerified = 32

// links measures the links, and writes to the results what was asked of them and what they give.
func (m *measurement) links(ctx context.Context) error {
	drawn := m.net.directions
	if len(drawn) > mostVerified {
		random := rand.New(rand.NewPCG(m.run.Seed, 2))
		drawn = nil
		for _, i := range random.Perm(len(m.net.directions))[:mostVerified] {
			drawn = append(drawn, m.net.directions[i])
		}
		m.net.warn("only %d of %d directions of links, drawn at random, were measured", mostVerified, len(m.net.directions))
	}
	qualities, err := verify(ctx, drawn)
	if err != nil {
		return err
	}
	measured := map[*direction]result.Quality{}
	for i, d := range drawn {
		measured[d] = qualities[i]
	}
	shown := map[lab.Shape]string{} // tc is asked once for those that are alike: a large network has many
	for _, d := range m.net.directions {
		key := d.shape
		key.RED = nil
		qdisc, known := shown[key]
		if !known || len(m.net.directions) <= mostVerified {
			if qdisc, err = d.link.Qdiscs(d.dir); err != nil {
				return err
			}
			shown[key] = qdisc
		}
		m.result.Links = append(m.result.Links, result.Link{
			Name: d.name, From: d.from.Name(), To: d.to.Name(), Asked: d.asked(), Measured: measured[d], Qdisc: qdisc,
		})
	}
	return nil
}

// look has all observers read their users' counters.
func (m *measurement) look(ctx context.Context) error {
	if err := m.maps.read(ctx); err != nil {
		return err
	}
	for _, u := range m.users {
		if err := u.look(); err != nil {
			return err
		}
	}
	return nil
}

// begin begins the measured phase for the users.
func (m *measurement) begin(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	for _, u := range m.users {
		u.beginMeasured()
	}
	return nil
}

// sample writes down the state of all subflows. at is the time since the measured phase began.
func (m *measurement) sample(ctx context.Context, at time.Duration) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	for _, u := range m.users {
		for _, s := range u.samples() {
			s.Time, s.Class, s.User = at.Seconds(), string(u.class.Name), u.number
			if err := m.samples.Write(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure goes through the phases while users send, and returns what was counted at the beginning and at the
// end of the measured one.
func (m *measurement) measure(ctx context.Context) (first, last counts, err error) {
	phases := m.run.Scenario.Phases
	rapl, err := energy.NewRAPL("/sys")
	if err != nil {
		return first, last, err
	}
	warm := m.began.Add(phases.Warmup.Std())
	events := m.events()
	defer events.stop()
	sampling := time.NewTicker(m.run.Scenario.Sample.Std())
	defer sampling.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	done, doing := m.progress.now.Done, "warming up"
	warming, over := time.After(time.Until(warm)), make(<-chan time.Time)
	for running := true; running && err == nil; {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-warming:
			if phases.Warmup > 0 {
				err = m.begin(ctx)
			}
			if err == nil {
				first, err = m.count(rapl)
			}
			over, doing = time.After(phases.Measure.Std()), "measuring"
		case <-sampling.C:
			err = m.sample(ctx, time.Since(warm))
			running = !filesDone(m.users, func(u *user) (*scenario.Class, bool) { return u.class, u.ended() })
		case <-events.next():
			err = events.happen(&m.net)
		case <-second.C:
			m.progress.now.Done = done + time.Since(m.began)
			m.progress.say(doing)
		case <-over:
			running = false
		}
	}
	if err == nil && first.at.IsZero() {
		err = errors.New("all files were there before the measured phase began: shorten the warm-up, or take larger files")
	}
	if err == nil {
		err = m.look(ctx)
	}
	if err == nil {
		last, err = m.count(rapl)
	}
	return first, last, err
}
