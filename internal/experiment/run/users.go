// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
)

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
			if class.CC == "dctcp" { // it needs marks, which the client must ask for
				if err := m.net.hosts[member.From].Sysctl("net.ipv4.tcp_ecn", "1"); err != nil {
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
			for _, host := range []scenario.Name{member.From, member.To} {
				if priced[host] {
					continue
				}
				priced[host] = true
				if err := m.net.setPrices(host); err != nil {
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
