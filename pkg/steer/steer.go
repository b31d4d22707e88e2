// SPDX-License-Identifier: Apache-2.0

// Package steer chooses at connection level which subflows carry data, by the objective of ES-MPTCP: the
// others it makes backups through the kernel's path managers, which any kernel with MPTCP lets it do. It
// cannot schedule packets: a subflow is in use or a backup, and an endpoint's flag goes for all
// connections that have its address.
package steer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// The time between two looks at the maps, and where there is no connection to look after. Each one is judged
// at most once per RTT of its slowest subflow.
const (
	interval     = 100 * time.Millisecond
	idleInterval = time.Second
)

// Config says where and how to steer.
type Config struct {
	Objective Objective
	Netns     uint64                   // inode number of the network namespace
	Enter     func(func() error) error // runs a function in it
	// Read gives the namespace's subflows, and the tariffs of its interfaces by index.
	Read   func() ([]telemetry.Subflow, map[uint32]Tariff, error)
	DryRun bool         // change nothing, report what would change
	Report func(Change) // called for each change of a flag
	Log    *slog.Logger
}

// Change is a backup flag that was set or taken back.
type Change struct {
	Time      time.Time  `json:"time"`
	Backup    bool       `json:"backup"`
	Interface string     `json:"interface"`
	Local     netip.Addr `json:"local"`
	Endpoint  uint8      `json:"endpoint,omitempty"` // 0 for a single subflow
	Token     string     `json:"token,omitempty"`    // of the single subflow's connection
	Remote    string     `json:"remote,omitempty"`   // its address there
	// Because is what a connection wants that turned the scale; null where none has a say any more.
	Because *Verdict `json:"because"`
	DryRun  bool     `json:"dry_run,omitempty"`
}

type steerer struct {
	Config
	decider decider
	record  *record
	held    map[Lever]string // to be given back, with the interface
	refused map[Lever]bool   // what the path manager did not take
	warned  map[string]bool
}

func newSteerer(c Config) *steerer {
	return &steerer{
		Config:  c,
		decider: decider{objective: c.Objective, connections: map[telemetry.Token]*connection{}},
		held:    map[Lever]string{}, refused: map[Lever]bool{}, warned: map[string]bool{},
	}
}

// Run gives back what a killed steer may have left, and steers until ctx ends or something fails; then it
// gives back every flag it has set.
func Run(ctx context.Context, c Config) error {
	s := newSteerer(c)
	if !c.DryRun {
		if err := s.open(); err != nil {
			return err
		}
	}
	err := s.run(ctx)
	if !c.DryRun {
		err = errors.Join(err, s.close())
	}
	return err
}

// Restore gives back what a killed steer left, and tells how many flags.
func Restore(c Config) (int, error) {
	s := newSteerer(c)
	if err := s.open(); err != nil {
		return 0, err
	}
	left := len(s.held)
	return left, s.close()
}

// open gives back what is on record.
func (s *steerer) open() (err error) {
	if s.record, err = openRecord(s.Netns); err != nil {
		return fmt.Errorf("note what to give back: %w", err)
	}
	left, err := s.record.read()
	if err != nil {
		return errors.Join(err, s.record.close(false))
	}
	for _, h := range left {
		s.held[h.Lever] = h.Interface
	}
	return nil
}

func (s *steerer) close() error {
	err := s.giveBack()
	return errors.Join(err, s.record.close(err == nil))
}

func (s *steerer) run(ctx context.Context) error {
	if err := s.giveBack(); err != nil {
		return err
	}
	for {
		if err := s.round(time.Now()); err != nil {
			return err
		}
		pause := interval
		if len(s.decider.connections) == 0 {
			pause = idleInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// round looks at everything once and sets the flags that are to be set.
func (s *steerer) round(now time.Time) error {
	subflows, tariffs, err := s.Read()
	if err != nil {
		return err
	}
	return s.Enter(func() error {
		all, err := s.look(subflows)
		if err != nil {
			return err
		}
		verdicts := s.decider.judge(now, all, tariffs)
		s.warn(verdicts)
		return s.apply(wishes(verdicts))
	})
}

// look finds each subflow's lever, and forgets those that are not steer's any more.
func (s *steerer) look(subflows []telemetry.Subflow) ([]seen, error) {
	userspace, err := mptcp.UserspacePM()
	if err != nil {
		return nil, err
	}
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return nil, err
	}
	there := map[Lever]bool{}
	for _, e := range endpoints {
		// What the user made no backup again is his.
		there[endpointLever(e)] = s.DryRun || e.Flags&mptcp.EndpointBackup != 0
	}
	var all []seen
	for _, f := range subflows {
		sub := seen{Subflow: f}
		single := Lever{Token: uint32(f.Token), Local: f.Local, Remote: f.Remote}
		there[single] = true
		at := slices.IndexFunc(endpoints, func(e mptcp.Endpoint) bool {
			return e.Addr == f.Local.Addr() && (e.Port == 0 || e.Port == f.Local.Port())
		})
		backup := f.Backup // as of its last refresh
		switch {
		case userspace && !s.refused[single]:
			sub.lever = single
		case at >= 0:
			sub.lever = endpointLever(endpoints[at])
			backup = backup || endpoints[at].Flags&mptcp.EndpointBackup != 0
		}
		_, sub.held = s.held[sub.lever]
		sub.held = sub.held && there[sub.lever]
		sub.foreign = backup && !sub.held
		if s.refused[sub.lever] {
			sub.lever = Lever{}
		}
		all = append(all, sub)
	}
	for lever := range s.held {
		if !there[lever] {
			delete(s.held, lever)
			if err := s.note(); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func endpointLever(e mptcp.Endpoint) Lever {
	return Lever{Endpoint: e.ID, Local: netip.AddrPortFrom(e.Addr, e.Port)}
}

// apply takes flags back first, so that no connection is left with backups alone.
func (s *steerer) apply(wanted map[Lever]wish) error {
	for lever := range s.held {
		if w := wanted[lever]; !w.backup {
			if err := s.release(lever, w.because); err != nil {
				return err
			}
		}
	}
	for lever, w := range wanted {
		if _, held := s.held[lever]; held || !w.backup {
			continue
		}
		s.held[lever] = w.member.Interface
		if err := s.note(); err != nil {
			return err
		}
		if err := s.set(lever, true); err != nil {
			s.Log.Warn("cannot make it a backup", "error", err)
			s.refused[lever] = true
			delete(s.held, lever)
			if err := s.note(); err != nil {
				return err
			}
			continue
		}
		s.report(lever, true, w.member.Interface, w.because)
	}
	return nil
}

// release takes a flag back. What is gone needs none.
func (s *steerer) release(lever Lever, because *Verdict) error {
	if err := s.set(lever, false); err != nil && !errors.Is(err, mptcp.ErrGone) {
		return fmt.Errorf("take the backup flag back: %w", err)
	}
	s.report(lever, false, s.held[lever], because)
	delete(s.held, lever)
	return s.note()
}

// giveBack takes back all flags, as far as they still are there.
func (s *steerer) giveBack() error {
	if len(s.held) == 0 {
		return nil
	}
	return s.Enter(func() error {
		endpoints, err := mptcp.Endpoints()
		if err != nil {
			return err
		}
		for lever := range s.held {
			flagged := func(e mptcp.Endpoint) bool {
				return endpointLever(e) == lever && e.Flags&mptcp.EndpointBackup != 0
			}
			if lever.Endpoint != 0 && !s.DryRun && !slices.ContainsFunc(endpoints, flagged) {
				delete(s.held, lever)
				err = errors.Join(err, s.note())
				continue
			}
			err = errors.Join(err, s.release(lever, nil))
		}
		return err
	})
}

// set changes a flag. The endpoint's other flags are read anew: the user may have changed them.
func (s *steerer) set(lever Lever, backup bool) error {
	switch {
	case s.DryRun:
		return nil
	case lever.Endpoint == 0:
		return mptcp.SetSubflowBackup(lever.Token, lever.Local, lever.Remote, backup)
	}
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(endpoints, func(e mptcp.Endpoint) bool { return endpointLever(e) == lever })
	if at < 0 {
		return fmt.Errorf("endpoint %d (%v): %w", lever.Endpoint, lever.Local.Addr(), mptcp.ErrGone)
	}
	return mptcp.SetEndpointBackup(endpoints[at], backup)
}

// note writes down what there is to give back.
func (s *steerer) note() error {
	if s.DryRun {
		return nil
	}
	all := []held{}
	for lever, iface := range s.held {
		all = append(all, held{lever, iface})
	}
	if err := s.record.write(all); err != nil {
		return fmt.Errorf("note what to give back: %w", err)
	}
	return nil
}

func (s *steerer) report(lever Lever, backup bool, iface string, because *Verdict) {
	c := Change{
		Time: time.Now(), Backup: backup, Interface: iface, Local: lever.Local.Addr(), Endpoint: lever.Endpoint,
		Because: because, DryRun: s.DryRun,
	}
	if lever.Endpoint == 0 {
		c.Token, c.Remote = telemetry.Token(lever.Token).String(), lever.Remote.Addr().String()
	}
	s.Report(c)
}

// warn says once what stands in the way.
func (s *steerer) warn(verdicts []*Verdict) {
	once := func(text string) {
		if !s.warned[text] {
			s.warned[text] = true
			s.Log.Warn(text)
		}
	}
	for _, v := range verdicts {
		if v.Unpriced != "" {
			once(fmt.Sprintf("no energy profile for %s: its connections are left alone; mpcc energy set %s PROFILE gives one",
				v.Unpriced, v.Unpriced))
		}
		for _, m := range v.stuck {
			once(fmt.Sprintf("%v on %s cannot be made a backup: it is no MPTCP endpoint; ip mptcp endpoint add %v dev %s makes it one",
				m.Local, m.Interface, m.Local, m.Interface))
		}
	}
}
