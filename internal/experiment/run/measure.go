// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
	"github.com/mpcc/mpcc/pkg/energy"
)

// measurement is one run.
type measurement struct {
	run      scenario.Run
	folder   *result.Folder
	index    int
	progress *progress

	plan    *scenario.Network
	net     network
	servers map[scenario.Name]*traffic.Server
	users   []*user // of all classes, in order
	samples *result.SampleWriter
	began   time.Time // of the warm-up
	result  result.Run
}

// do does the run, and removes all it has made.
func (m *measurement) do(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.plan = m.run.Network()
	phases := m.run.Scenario.Phases
	m.result = result.Run{Point: m.run.Point, Repeat: m.run.Repeat, Seed: m.run.Seed, Warmup: phases.Warmup.Std().Seconds()}
	m.progress.say("building")
	l, err := lab.New()
	if err != nil {
		return err
	}
	m.net = network{
		lab: l, hosts: map[scenario.Name]*lab.Host{}, links: map[scenario.LinkName]*lab.Link{},
		shapes: map[scenario.LinkName]*[2]scenario.Shape{}, interfaces: map[scenario.Name][]address{},
	}
	defer func() { err = errors.Join(err, m.net.close()) }()
	if err := m.net.build(m.plan, m.run.Scenario.Events); err != nil {
		return err
	}
	m.progress.say("measuring the links")
	if err := m.links(ctx); err != nil {
		return err
	}
	if err := m.prepareUsers(); err != nil {
		return err
	}
	defer func() {
		for _, s := range m.servers {
			err = errors.Join(err, s.Close())
		}
	}()
	if m.samples, err = m.folder.Samples(&m.result, m.index); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.samples.Close()) }()
	m.began = time.Now()
	if m.run.Scenario.Phases.Warmup == 0 {
		if err := m.begin(); err != nil {
			return err
		}
	}
	traffic, stop := context.WithCancel(ctx)
	ended := m.start(traffic, cancel)
	defer func() {
		stop()
		<-ended
	}()
	if err := m.measure(ctx, ended); err != nil {
		return err
	}
	m.result.Warnings = m.net.warnings
	return nil
}

// mostVerified is how many directions of links are measured: a data centre's
// hundreds are made alike.
const mostVerified = 32

// links verifies the links and notes what they are.
func (m *measurement) links(ctx context.Context) error {
	drawn := m.net.directions
	if len(drawn) > mostVerified {
		random := rand.New(rand.NewPCG(m.run.Seed, 2))
		drawn = nil
		for _, i := range random.Perm(len(m.net.directions))[:mostVerified] {
			drawn = append(drawn, m.net.directions[i])
		}
		m.net.warn("of %d directions of links %d, drawn at random, were measured", len(m.net.directions), mostVerified)
	}
	qualities, err := verify(ctx, drawn)
	if err != nil {
		return err
	}
	measured := map[*direction]result.Quality{}
	for i, d := range drawn {
		measured[d] = qualities[i]
	}
	shown := map[lab.Shape]string{} // a large network has many alike
	for _, d := range m.net.directions {
		key := d.shape
		key.RED = nil
		qdisc, known := shown[key]
		if !known || len(m.net.directions) <= 32 {
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

// phaseCount is what is read at the beginning and the end of the measured phase.
type phaseCount struct {
	at     time.Time
	queues []lab.QueueStats
	late   map[scenario.Name]uint64 // packets in MPTCP's out-of-order queue, by receiving host
	zones  []energy.Zone
	cpus   cpuTime
}

// cpuTime is what the machine's processors have had, in the kernel's ticks.
type cpuTime struct{ idle, all uint64 }

func readCPUTime() (c cpuTime, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(first)[1:] {
		ticks, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return c, fmt.Errorf("/proc/stat: %w", err)
		}
		if i == 3 || i == 4 { // idle, and waiting for a disk
			c.idle += ticks
		}
		c.all += ticks
	}
	return c, nil
}

// mostBusy is the share of the processors' time from which on a run may be
// slower than its links.
const mostBusy = 0.97

// busy warns where the processors had hardly any time to spare.
func (n *network) busy(from, to cpuTime) {
	if all := to.all - from.all; all > 0 {
		if busy := 1 - float64(to.idle-from.idle)/float64(all); busy > mostBusy {
			n.warn("the processors were busy all the time: figures may be the machine's limits instead of the network's")
		}
	}
}

func (m *measurement) count(rapl *energy.RAPL) (c phaseCount, err error) {
	c.at = time.Now()
	c.late = map[scenario.Name]uint64{}
	for _, d := range m.net.directions {
		var q lab.QueueStats
		if d.shape.Rate > 0 {
			if q, err = d.link.Stats(d.dir); err != nil {
				return c, err
			}
		}
		c.queues = append(c.queues, q)
	}
	for name := range m.alone() {
		if c.late[name], err = outOfOrder(m.net.hosts[name]); err != nil {
			return c, err
		}
	}
	if c.cpus, err = readCPUTime(); err != nil {
		return c, err
	}
	c.zones, err = rapl.Read()
	return c, err
}

// alone are the hosts that receive for one MPTCP user only, by that user: there
// the host's counters are the user's.
func (m *measurement) alone() map[scenario.Name]*user {
	found := map[scenario.Name]*user{}
	several := map[scenario.Name]bool{}
	i := 0
	for _, class := range m.plan.Classes {
		for _, member := range class.Members {
			u := m.users[i]
			i++
			if class.Transport != scenario.OverMPTCP {
				continue
			}
			receiver := member.To
			if class.Direction == "down" {
				receiver = member.From
			}
			several[receiver] = found[receiver] != nil || several[receiver]
			found[receiver] = u
		}
	}
	for name := range several {
		if several[name] {
			delete(found, name)
		}
	}
	return found
}

// outOfOrder counts the packets that have waited in MPTCP's out-of-order queues
// of a host.
func outOfOrder(h *lab.Host) (n uint64, err error) {
	err = h.Do(func() error {
		file, err := os.Open("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		defer file.Close()
		// Two lines for each group: names and values.
		var names []string
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			words := strings.Fields(lines.Text())
			if len(words) == 0 || words[0] != "MPTcpExt:" {
				continue
			}
			if names == nil {
				names = words
				continue
			}
			if i := slices.Index(names, "OFOQueue"); i > 0 && i < len(words) {
				n, err = strconv.ParseUint(words[i], 10, 64)
				return err
			}
		}
		return errors.New("this kernel does not count MPTCP's out-of-order packets (MPTcpExtOFOQueue)")
	})
	return n, err
}

// begin begins the measured phase for the users.
func (m *measurement) begin() error {
	if err := m.readMaps(); err != nil {
		return err
	}
	for _, u := range m.users {
		u.begin()
	}
	return nil
}

// measure goes through the phases.
func (m *measurement) measure(ctx context.Context, ended <-chan struct{}) error {
	phases := m.run.Scenario.Phases
	rapl, err := energy.NewRAPL("/sys")
	if err != nil {
		return err
	}
	warm := m.began.Add(phases.Warmup.Std())
	events := m.events()
	defer events.stop()
	sampling := time.NewTicker(m.run.Scenario.Sample.Std())
	defer sampling.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	done := m.progress.now.Done
	warming, over := time.After(time.Until(warm)), make(<-chan time.Time)
	var first phaseCount
	doing := "warming up"
	finite := m.finite()
	for running := true; running; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-warming:
			if phases.Warmup > 0 {
				if err := m.begin(); err != nil {
					return err
				}
			}
			if first, err = m.count(rapl); err != nil {
				return err
			}
			over = time.After(phases.Measure.Std())
			doing = "measuring"
		case <-sampling.C:
			if err := m.readMaps(); err != nil {
				return err
			}
			for _, u := range m.users {
				if err := u.sample(time.Since(warm), m.samples.Write); err != nil {
					return err
				}
			}
			if finite != nil && finite() {
				running = false
			}
		case <-events.next():
			if err := events.happen(&m.net); err != nil {
				return err
			}
		case <-second.C:
			m.progress.now.Done = done + time.Since(m.began)
			m.progress.say(doing)
		case <-over:
			running = false
		}
	}
	if first.at.IsZero() {
		return errors.New("all files were there before the measured phase began: shorten the warm-up, or take larger files")
	}
	if err := m.readMaps(); err != nil {
		return err
	}
	last, err := m.count(rapl)
	if err != nil {
		return err
	}
	m.result.Measured = last.at.Sub(first.at).Seconds()
	m.net.busy(first.cpus, last.cpus)
	for i := range m.result.Links {
		a, b := first.queues[i], last.queues[i]
		m.result.Links[i].Queue = result.Queue{
			Sent: b.Sent - a.Sent, Dropped: b.Dropped - a.Dropped, Marked: b.Marked - a.Marked,
		}
	}
	for i, z := range last.zones {
		if i < len(first.zones) && first.zones[i].ID == z.ID {
			m.result.RAPL = append(m.result.RAPL, result.Zone{
				Name: z.ID + " " + z.Name, Energy: result.Energy{Joules: z.Joules - first.zones[i].Joules, Source: result.SourceRAPL},
			})
		}
	}
	late := map[*user]uint64{}
	for name, u := range m.alone() {
		late[u] = last.late[name] - first.late[name]
	}
	i := 0
	for _, class := range m.plan.Classes {
		c := result.Class{
			Name: string(class.Name), Multipath: class.Transport == scenario.OverMPTCP, CC: class.CC,
		}
		if class.Scheduler != "default" {
			c.Scheduler = class.Scheduler
		}
		for range class.Members {
			u := m.users[i]
			i++
			r := u.result(first.at)
			if n, ok := late[u]; ok {
				r.OutOfOrder = &n
			}
			c.Users = append(c.Users, r)
		}
		m.result.Classes = append(m.result.Classes, c)
	}
	return nil
}

// finite says whether all users that come to an end have done so; nil where
// there are none.
func (m *measurement) finite() func() bool {
	var those []*user
	for _, u := range m.users {
		if finite(u.class) {
			those = append(those, u)
		}
	}
	if those == nil {
		return nil
	}
	return func() bool {
		for _, u := range those {
			if !u.ended() {
				return false
			}
		}
		return true
	}
}
