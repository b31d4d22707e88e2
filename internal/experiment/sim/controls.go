// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/sim/control"
)

// controls are the congestion controls and packet schedulers of a simulation: mpcc's own as the bytecode that the kernel
// runs, and the kernel's reno, cubic and dctcp.
type controls struct {
	sim      *Simulation
	scenario *scenario.Scenario
	plan     *scenario.Network
	loaded   map[string]*control.Algorithm
	// By what classes call them; without the kernel's.
	schedulers map[string]*control.Scheduler
	err        error
}

// Supports returns an error, in one line, if the scenario asks for what the simulator does not have.
func Supports(s *scenario.Scenario) error {
	for i := range s.Links {
		l := &s.Links[i]
		for _, shape := range []*scenario.Shape{&l.Shape, l.Back} {
			if shape != nil && shape.Queue.AQM == "fq_codel" {
				return fmt.Errorf("%s, link %s: --sim has codel and pie, not fq_codel: leave out --sim", s.Name, l.Name)
			}
		}
	}
	for i := range s.Users {
		u := &s.Users[i]
		if _, err := catalog.Find(string(catalog.Sched) + "/" + u.Scheduler); u.Scheduler != defaultScheduler && err != nil {
			return fmt.Errorf("%s, user %s: --sim has mpcc's packet schedulers and default, not %s: leave out --sim", s.Name, u.Name, u.Scheduler)
		}
		if name := ccName(u); !kernelHas(name) {
			if _, err := catalog.Find(string(catalog.CC) + "/" + name); err != nil {
				return fmt.Errorf("%s, user %s: --sim has mpcc's congestion controls, reno, cubic and dctcp, not %s: leave out --sim", s.Name, u.Name, name)
			}
		}
	}
	return nil
}

// defaultScheduler is what classes call the kernel's own.
const defaultScheduler = "default"

func kernelHas(name string) bool { return name == "reno" || name == "cubic" || name == "dctcp" }

// settings returns what the scenario sets of an algorithm.
func (c *controls) settings(kind catalog.Kind, name string) (map[string]string, error) {
	e, err := catalog.Find(string(kind) + "/" + name)
	if err != nil {
		return nil, err
	}
	return c.scenario.Settings(e)
}

// load loads what a class asks for.
func (c *controls) load(class *scenario.User) error {
	if err := c.loadScheduler(class.Scheduler); err != nil {
		return err
	}
	name := ccName(class)
	if class.Transport == scenario.OverUDP || kernelHas(name) || c.loaded[name] != nil {
		return nil
	}
	set, err := c.settings(catalog.CC, name)
	if err != nil {
		return err
	}
	random := c.sim.generator(forAlgorithms, len(c.loaded))
	loaded, err := control.Load(name, set, func() uint64 { return uint64(c.sim.now) }, func() uint32 { return uint32(random.Uint64() >> 32) })
	if err == nil {
		c.loaded[name] = loaded
	}
	return err
}

func (c *controls) loadScheduler(name string) error {
	if name == defaultScheduler || c.schedulers[name] != nil {
		return nil
	}
	set, err := c.settings(catalog.Sched, name)
	if err != nil {
		return err
	}
	s := c.sim
	s.piece = smallPiece
	loaded, err := control.LoadScheduler(name, set, func() uint64 { return uint64(s.now) }, func() uint64 { return uint64(s.jiffies()) })
	if err == nil {
		c.schedulers[name] = loaded
	}
	return err
}

// attach gives a socket that is established its congestion control.
func (c *controls) attach(k *socket) {
	name := ccName(k.conn.user.Class.User)
	a := c.loaded[name]
	if a == nil {
		k.cc = kernelControl(name, k)
		return
	}
	var s *control.Subflow
	var err error
	if k.conn.multipath {
		if k.conn.group == nil {
			k.conn.group = a.Connection()
		}
		s, err = k.conn.group.Subflow(&k.state)
	} else {
		s, err = a.Socket(&k.state)
	}
	c.fail(err)
	if err == nil {
		k.cc = &bytecode{Subflow: s, socket: k, algorithm: a}
		k.takeOver()
	}
}

func (c *controls) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// kernelControl returns one of the kernel's own.
func kernelControl(name string, k *socket) callbacks {
	switch name {
	case "cubic":
		return newCubic(k)
	case "dctcp":
		return newDCTCP(k)
	}
	return reno{&k.state}
}

// bytecode is a congestion control of mpcc.
type bytecode struct {
	*control.Subflow
	socket    *socket
	algorithm *control.Algorithm
}

// CongAvoid is where algorithms hand sockets over that are better off with another one.
func (b *bytecode) CongAvoid(ack, acked uint32) {
	b.Subflow.CongAvoid(ack, acked)
	if err := b.algorithm.Err(); err != nil {
		b.socket.sim.controls.fail(err)
	}
	b.socket.takeOver()
}

// takeOver gives the socket to the congestion control that its algorithm has handed it to, if it has.
func (k *socket) takeOver() {
	b, ok := k.cc.(*bytecode)
	if !ok || b.HandedTo() == "" {
		return
	}
	to := b.HandedTo()
	b.Release()
	k.cc = kernelControl(to, k)
}

// Close frees what the simulation has loaded.
func (s *Simulation) Close() error {
	var err error
	for _, a := range s.controls.loaded {
		err = errors.Join(err, a.Close())
	}
	for _, a := range s.controls.schedulers {
		err = errors.Join(err, a.Close())
	}
	return err
}

// SetEnergy tells the algorithms what a host's interface costs.
func (s *Simulation) SetEnergy(host scenario.Name, iface string, p control.EnergyProfile) error {
	at, err := s.network.interfaceOf(host, scenario.Name(iface))
	if err != nil {
		return err
	}
	for _, a := range s.controls.loaded {
		err = errors.Join(err, a.SetEnergy(s.network.number(at), p))
	}
	for _, a := range s.controls.schedulers {
		err = errors.Join(err, a.SetEnergy(s.network.number(at), p))
	}
	return err
}
