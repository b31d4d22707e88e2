// SPDX-License-Identifier: Apache-2.0

package run

import (
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// assemble makes the run's results: of what was counted at the beginning and at the end of the measured phase,
// and of what the observers saw in it.
func (m *measurement) assemble(first, last counts) error {
	r := &m.result
	r.Measured = last.at.Sub(first.at).Seconds()
	for i := range r.Links {
		a, b := first.queues[i], last.queues[i]
		r.Links[i].Queue = result.Queue{
			Sent: b.Sent - a.Sent, Dropped: b.Dropped - a.Dropped, Marked: b.Marked - a.Marked,
		}
	}
	for i, z := range last.zones {
		if i < len(first.zones) && first.zones[i].ID == z.ID {
			r.RAPL = append(r.RAPL, result.Zone{
				Name: z.ID + " " + z.Name, Energy: result.Energy{Joules: z.Joules - first.zones[i].Joules, Source: result.SourceRAPL},
			})
		}
	}
	r.Faults = busy(first.cpus, last.cpus)
	r.Warnings = m.net.warnings
	return addClasses(r, m.run, m.plan, func(class *scenario.Class) (users []result.User) {
		for _, u := range m.users {
			if u.class != class {
				continue
			}
			row := u.result(first.at)
			row.Host = string(u.member.From)
			if late, ok := last.late[u]; ok {
				row.OutOfOrder = pointer(late - first.late[u])
			}
			users = append(users, row)
		}
		return users
	})
}

// filesDone says whether all users that transfer files have ended; false if there are no such users.
func filesDone[U any](users []U, state func(U) (class *scenario.Class, ended bool)) (done bool) {
	for _, u := range users {
		class, ended := state(u)
		if !finite(class.User) {
			continue
		}
		if !ended {
			return false
		}
		done = true
	}
	return done
}

// addClasses adds the plan's classes to a run's results, with what their users did.
func addClasses(r *result.Run, run scenario.Run, plan *scenario.Network, users func(*scenario.Class) []result.User) error {
	for i := range plan.Classes {
		c, err := classOf(run, plan, &plan.Classes[i])
		if err != nil {
			return err
		}
		c.Users = users(&plan.Classes[i])
		r.Classes = append(r.Classes, c)
	}
	return nil
}

// classOf returns a class as results have it, without its users.
func classOf(run scenario.Run, plan *scenario.Network, class *scenario.Class) (result.Class, error) {
	c := result.Class{Name: string(class.Name), Multipath: class.Transport == scenario.OverMPTCP, CC: class.CC}
	if class.Scheduler != "default" {
		c.Scheduler = class.Scheduler
	}
	c.HostPower = plan.HostPower(class)
	for _, e := range class.Algorithms() {
		set, err := run.Scenario.Settings(e)
		if err != nil {
			return c, err
		}
		if e.Kind == catalog.CC {
			c.CCTunables = set
		} else {
			c.SchedulerTunables = set
		}
	}
	return c, nil
}

// result returns what the user did in the measured phase, which began at start.
func (u *user) result(start time.Time) result.User {
	u.mu.Lock()
	defer u.mu.Unlock()
	var r result.User
	if u.flow == nil {
		return r
	}
	count := u.flow.Count()
	r.Bytes = count.Bytes - u.before.Bytes
	r.Active = (count.Active - u.before.Active).Seconds()
	for _, t := range u.flow.Transfers() {
		row := result.Transfer{Start: t.Start.Sub(start).Seconds(), Bytes: t.Bytes}
		if t.Took > 0 {
			row.Seconds = pointer(t.Took.Seconds())
		}
		if row.Start >= 0 {
			r.Transfers = append(r.Transfers, row)
		}
	}
	u.report(&r)
	return r
}
