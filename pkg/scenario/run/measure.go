// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/pkg/catalog"
	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/netlab"
	"github.com/mpcc/mpcc/pkg/scenario"
	"github.com/mpcc/mpcc/pkg/scenario/result"
	"github.com/mpcc/mpcc/pkg/traffic"
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
func (m *measurement) do(ctx context.Context) (_ *result.Run, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.plan = m.run.Network()
	phases := m.run.Scenario.Phases
	m.result = result.Run{Point: m.run.Point, Repeat: m.run.Repeat, Seed: m.run.Seed, Warmup: phases.Warmup.Std().Seconds()}
	m.progress.say("building")
	lab, err := netlab.New()
	if err != nil {
		return nil, err
	}
	m.net = network{
		lab: lab, hosts: map[scenario.Name]*netlab.Host{}, links: map[scenario.LinkName]*netlab.Link{},
		shapes: map[scenario.LinkName]*[2]scenario.Shape{}, interfaces: map[scenario.Name][]address{},
	}
	defer func() { err = errors.Join(err, m.net.close()) }()
	if err := m.net.build(m.plan, m.run.Scenario.Events); err != nil {
		return nil, err
	}
	m.progress.say("measuring the links")
	if err := m.links(ctx); err != nil {
		return nil, err
	}
	if err := m.prepareUsers(); err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range m.servers {
			err = errors.Join(err, s.Close())
		}
	}()
	if m.samples, err = m.folder.Samples(&m.result, m.index); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.samples.Close()) }()
	m.began = time.Now()
	if m.run.Scenario.Phases.Warmup == 0 {
		if err := m.begin(); err != nil {
			return nil, err
		}
	}
	traffic, stop := context.WithCancel(ctx)
	ended := m.start(traffic, cancel)
	defer func() {
		stop()
		<-ended
	}()
	if err := m.measure(ctx, ended); err != nil {
		return nil, err
	}
	m.result.Warnings = m.net.warnings
	return &m.result, nil
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
	shown := map[netlab.Shape]string{} // a large network has many alike
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

// prepareUsers gets hosts ready for their users.
func (m *measurement) prepareUsers() (err error) {
	m.servers = map[scenario.Name]*traffic.Server{}
	schedulers := map[scenario.Name]string{}
	priced := map[scenario.Name]bool{}
	alone := map[scenario.Name]*scenario.User{} // hosts of other people's programs
	for i := range m.plan.Classes {
		class := &m.plan.Classes[i]
		for number, member := range class.Members {
			sender := member.From
			if class.Direction == "down" {
				sender = member.To
			}
			if other, ok := schedulers[sender]; ok && other != class.Scheduler {
				return fmt.Errorf("host %s is to send by the schedulers %s and %s; a host has one: use two hosts",
					sender, other, class.Scheduler)
			}
			if _, ok := schedulers[sender]; !ok {
				schedulers[sender] = class.Scheduler
				if err := m.net.prepareHost(sender, class.User); err != nil {
					return err
				}
			}
			if foreign(class.User) {
				for _, name := range []scenario.Name{member.From, member.To} {
					if other, ok := alone[name]; ok && other != class.User {
						return fmt.Errorf("host %s serves users of %s, whose programs take everything from it: give %s another host",
							name, class.Kind, class.Name)
					}
					alone[name] = class.User
					if err := m.net.hosts[name].Sysctl("net.ipv4.tcp_congestion_control", ccName(class.User)); err != nil {
						return err
					}
				}
			}
			if !priced[member.From] {
				priced[member.From] = true
				if err := m.net.price(member.From); err != nil {
					return err
				}
			}
			u := &user{
				class: class.User, number: number, interfaces: map[netip.Addr]iface{},
				subflows: map[place]*subflow{}, meters: map[string]*meter{},
			}
			for _, at := range m.net.interfaces[member.From] {
				for _, addr := range at.addrs {
					u.interfaces[addr] = at.iface
				}
			}
			if foreign(class.User) {
				if u.maps, err = newMapped(&m.net, member.From, class.User); err != nil {
					return err
				}
			}
			m.users = append(m.users, u)
		}
	}
	for _, class := range m.plan.Classes {
		for _, member := range class.Members {
			if m.servers[member.To] != nil {
				continue
			}
			s, err := traffic.Listen(m.net.hosts[member.To])
			if err != nil {
				return err
			}
			m.servers[member.To] = s
		}
	}
	return nil
}

// foreign says whether other people's programs have the users' sockets.
func foreign(class *scenario.User) bool {
	return class.Kind == scenario.TrafficHTTP || class.Kind == scenario.TrafficIperf3
}

// ccName is what the kernel calls the class's congestion control.
func ccName(class *scenario.User) string { return strings.TrimPrefix(class.CC, string(catalog.CC)+"/") }

// prepareHost sets what a sending host's sockets take from their namespace.
func (n *network) prepareHost(name scenario.Name, class *scenario.User) error {
	h := n.hosts[name]
	if class.CC == "dctcp" {
		if err := h.Sysctl("net.ipv4.tcp_ecn", "1"); err != nil {
			return err
		}
	}
	if class.Scheduler == "default" {
		return nil
	}
	return h.Sysctl("net.mptcp.scheduler", strings.TrimPrefix(class.Scheduler, string(catalog.Sched)+"/"))
}

// start lets each user begin at its time. The channel is closed when all of
// them have ended; fail is called when one cannot go on.
func (m *measurement) start(ctx context.Context, fail context.CancelCauseFunc) <-chan struct{} {
	random := rand.New(rand.NewPCG(m.run.Seed, 1))
	ended := make(chan struct{})
	left := make(chan struct{}, len(m.users))
	i := 0
	for c := range m.plan.Classes {
		class := &m.plan.Classes[c]
		for _, member := range class.Members {
			u := m.users[i]
			i++
			config, err := m.config(class.User, member)
			config.Seed = random.Uint64()
			config.Watch = func(f *traffic.Flow) { u.watch(f) }
			wait := class.Start.Std() + time.Duration(random.Float64()*float64(class.Within))
			server := m.servers[member.To]
			go func() {
				defer func() { left <- struct{}{} }()
				if err == nil {
					err = u.run(ctx, server, config, wait)
				}
				if err != nil {
					fail(fmt.Errorf("%s user %d: %w", class.Name, u.number, err))
				}
			}()
		}
	}
	go func() {
		for range m.users {
			<-left
		}
		close(ended)
	}()
	return ended
}

// run runs a user's traffic until it ends.
func (u *user) run(ctx context.Context, server *traffic.Server, c traffic.Config, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(wait):
	}
	f, err := server.Start(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	u.watch(f)
	<-f.Done()
	return f.Stop()
}

// config is a user's traffic.
func (m *measurement) config(class *scenario.User, member scenario.Member) (traffic.Config, error) {
	c := traffic.Config{
		Client: m.net.hosts[member.From], Upload: class.Direction == "up",
		Multipath: class.Transport == scenario.OverMPTCP, CC: ccName(class),
		SendBuffer: int(class.SendBuffer), ReceiveBuffer: int(class.ReceiveBuffer),
	}
	from, err := m.net.interfaceOf(member.From, class.Via)
	if err != nil {
		return c, err
	}
	to, err := m.net.interfaceOf(member.To, class.Peer)
	if err != nil {
		return c, err
	}
	c.Local, c.Addr = from.addrs[0], to.addrs[0]
	udp := class.Transport == scenario.OverUDP
	switch class.Kind {
	case scenario.TrafficBulk:
		c.Pattern = traffic.Endless{}
	case scenario.TrafficFile:
		c.Pattern = traffic.Files{Bytes: uint64(class.Size), Count: class.Files}
	case scenario.TrafficConstant:
		c.Pattern = traffic.Bursts{Rate: uint64(class.Rate), UDP: udp}
	case scenario.TrafficBursts:
		c.Pattern = traffic.Bursts{
			Rate: uint64(class.Rate), On: class.On.Std(), Off: class.Off.Std(), Shape: class.Alpha, UDP: udp,
		}
	case scenario.TrafficHTTP:
		c.Pattern = traffic.HTTP{Bytes: uint64(class.Size), Count: class.Files}
	case scenario.TrafficIperf3:
		c.Pattern = traffic.Iperf3{}
	}
	return c, nil
}

// finite says whether the users of a class come to an end.
func finite(class *scenario.User) bool {
	return class.Kind == scenario.TrafficFile || class.Kind == scenario.TrafficHTTP
}

// phaseCount is what is read at the beginning and the end of the measured phase.
type phaseCount struct {
	at     time.Time
	queues []netlab.QueueStats
	late   map[scenario.Name]uint64 // packets in MPTCP's out-of-order queue, by receiving host
	zones  []energy.Zone
}

func (m *measurement) count(rapl *energy.RAPL) (c phaseCount, err error) {
	c.at = time.Now()
	c.late = map[scenario.Name]uint64{}
	for _, d := range m.net.directions {
		var q netlab.QueueStats
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
func outOfOrder(h *netlab.Host) (n uint64, err error) {
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
