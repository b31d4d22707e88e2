// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
)

// demand is what the users of a host need of it.
type demand struct {
	host      scenario.Name
	accepts   bool           // it is the server of some
	scheduler string         // packet scheduler of what it sends; "" if it sends nothing over MPTCP
	ecn       bool           // its connections ask for ECN, which DCTCP needs
	programs  *scenario.User // the class whose programs have the host to themselves; nil if none does
}

// demands returns the demand on each host that has users. It fails if two users' needs exclude each other.
func demands(users []*user) ([]*demand, error) {
	var all []*demand
	byHost := map[scenario.Name]*demand{}
	of := func(host scenario.Name) *demand {
		d := byHost[host]
		if d == nil {
			d = &demand{host: host}
			byHost[host], all = d, append(all, d)
		}
		return d
	}
	for _, u := range users {
		from, to, sender := of(u.member.From), of(u.member.To), of(u.sender())
		to.accepts = true
		if u.class.Transport == scenario.OverMPTCP {
			if other := sender.scheduler; other != "" && other != u.class.Scheduler {
				return nil, fmt.Errorf("host %s is to send by the schedulers %s and %s; a host has one: use two hosts",
					sender.host, other, u.class.Scheduler)
			}
			sender.scheduler = u.class.Scheduler
		}
		if u.class.CC == "dctcp" {
			from.ecn = true
		}
		if !foreign(u.class.User) {
			continue
		}
		for _, d := range []*demand{from, to} {
			if d.programs != nil && d.programs != u.class.User {
				return nil, fmt.Errorf("host %s runs the %s of users %s, who need it to themselves: give %s another host",
					d.host, d.programs.Kind, d.programs.Name, u.class.Name)
			}
			d.programs = u.class.User
		}
	}
	return all, nil
}

// prepareHosts gets the hosts ready for their users.
func (m *measurement) prepareHosts() error {
	all, err := demands(m.users)
	if err != nil {
		return err
	}
	m.servers = map[scenario.Name]*traffic.Server{}
	for _, d := range all {
		if err := m.net.prepare(d); err != nil {
			return err
		}
		if !d.accepts {
			continue
		}
		s, err := traffic.Listen(m.net.hosts[d.host])
		if err != nil {
			return err
		}
		m.servers[d.host] = s
	}
	return nil
}

// prepare makes the settings that a host's sockets take from their namespace, and tells the algorithms what
// its interfaces cost.
func (n *network) prepare(d *demand) error {
	settings := map[string]string{}
	if d.scheduler != "" && d.scheduler != "default" {
		settings["net.mptcp.scheduler"] = strings.TrimPrefix(d.scheduler, string(catalog.Sched)+"/")
	}
	if d.ecn {
		settings["net.ipv4.tcp_ecn"] = "1"
	}
	if d.programs != nil {
		settings["net.ipv4.tcp_congestion_control"] = ccName(d.programs)
	}
	for key, value := range settings {
		if err := n.hosts[d.host].Sysctl(key, value); err != nil {
			return err
		}
	}
	return n.setPrices(d.host)
}
