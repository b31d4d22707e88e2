// SPDX-License-Identifier: Apache-2.0

// Package steer chooses for each connection which subflows carry data, by the objective of ES-MPTCP, and makes
// the others backups through the kernel's path manager. It decides by what mpcc's congestion controls measure
// and by the energy profiles that loader.SetProfile sets; one of these congestion controls has to be loaded,
// but no packet scheduler. It cannot schedule packets: a subflow is in use or a backup, and the flag of an
// endpoint holds for all connections that use its address.
package steer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// The time between two readings of the maps, while there are MPTCP connections and while there are none. A
// connection is judged at most once per RTT of its slowest subflow.
const (
	interval     = 100 * time.Millisecond
	idleInterval = time.Second
)

// Config says where and how to steer. Run needs Report and Log.
type Config struct {
	Objective Objective
	// LearnSize takes the mean of what connections have sent that sent more than the one to judge, in place of
	// Objective.Size, while there are any.
	LearnSize bool
	Netns     string       // network namespace, as ip netns names it; "" for the caller's
	DryRun    bool         // change nothing, report what would change
	Report    func(Change) // called for each change of a flag
	Log       *slog.Logger // gets a warning for what keeps a subflow from being judged or flagged
}

// Change is a backup flag that was set or taken back.
type Change struct {
	Time      time.Time  `json:"time"`
	Backup    bool       `json:"backup"`
	Interface string     `json:"interface"`
	Local     netip.Addr `json:"local"`
	Endpoint  uint8      `json:"endpoint,omitempty"` // 0 for a single subflow
	Token     string     `json:"token,omitempty"`    // of the single subflow's connection
	Remote    string     `json:"remote,omitempty"`   // of the single subflow
	// Because is the verdict that decided it; null where no connection has a verdict any more.
	Because *Verdict `json:"because"`
	// Rule is what RunPaths found; "" for a flag that is given back.
	Rule   string `json:"rule,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// ErrNoProfile is wrapped where no interface of the namespace has an energy profile.
var ErrNoProfile = errors.New("no interface has an energy profile")

type steerer struct {
	Config
	ns       netns.NS
	cookie   uint64 // of ns
	decider  decider
	received received
	record   *record
	held     map[lever]string // flags to clear, with the interface
	refused  map[lever]bool   // flags that the path manager refused to set, with the endpoints as they are
	before   []mptcp.Endpoint // the endpoints at the last look
	warned   map[string]bool
}

func newSteerer(c Config) (*steerer, error) {
	s := &steerer{
		Config:  c,
		decider: decider{objective: c.Objective, learn: c.LearnSize, connections: map[telemetry.Token]*connection{}},
		held:    map[lever]string{}, refused: map[lever]bool{}, warned: map[string]bool{},
	}
	var err error
	if s.ns, err = netns.Current(); c.Netns != "" {
		s.ns, err = netns.Named(c.Netns)
	}
	if err != nil {
		return nil, err
	}
	return s, s.ns.Do(func() (err error) {
		s.cookie, err = netns.Cookie()
		return err
	})
}

// Run clears the flags that a killed steer may have left, and steers until ctx ends, which is no error, or
// something fails. Then it clears every flag that it has set. The error wraps loader.ErrNotLoaded if the maps
// are not there or are removed meanwhile, and ErrNoProfile if no interface has an energy profile at the start.
// It takes root, and another Run in the same namespace is an error.
func Run(ctx context.Context, c Config) error {
	s, err := newSteerer(c)
	if err != nil {
		return err
	}
	if _, tariffs, err := s.read(ctx); err != nil {
		return err
	} else if len(tariffs) == 0 {
		return fmt.Errorf("%s: %w", s.ns, ErrNoProfile)
	}
	return s.guarded(ctx, func(now time.Time) (time.Duration, error) {
		err := s.round(ctx, now)
		if len(s.decider.connections) == 0 {
			return idleInterval, err
		}
		return interval, err
	})
}

// guarded steers, a round after the other, and clears every flag that it has set at the end. A round returns the pause
// until the next one.
func (s *steerer) guarded(ctx context.Context, round func(time.Time) (time.Duration, error)) error {
	if s.DryRun {
		return s.run(ctx, round)
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	return errors.Join(s.run(ctx, round), s.close())
}

// Restore clears the flags that a killed steer has left in the namespace, and returns how many those are. It
// takes root, and a Run in the same namespace is an error.
func Restore(ctx context.Context, c Config) (int, error) {
	s, err := newSteerer(c)
	if err != nil {
		return 0, err
	}
	if err := s.open(ctx); err != nil {
		return 0, err
	}
	left := len(s.held)
	return left, s.close()
}

// open locks the namespace's record, and reads from it the flags to clear.
func (s *steerer) open(ctx context.Context) (err error) {
	if s.record, err = openRecord(ctx, s.ns.Inode); err != nil {
		return fmt.Errorf("note the backup flags to clear: %w", err)
	}
	left, err := s.record.read()
	if err != nil {
		return errors.Join(err, s.record.close(false))
	}
	for _, h := range left {
		s.held[h.lever] = h.Interface
	}
	return nil
}

func (s *steerer) close() error {
	err := s.giveBack()
	return errors.Join(err, s.record.close(err == nil))
}

func (s *steerer) run(ctx context.Context, round func(time.Time) (time.Duration, error)) error {
	if err := s.giveBack(); err != nil {
		return err
	}
	for {
		pause, err := round(time.Now())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// read returns the namespace's subflows, and the tariffs of its interfaces by index. It opens the maps anew
// each time: they may be removed and made again in between.
func (s *steerer) read(ctx context.Context) (subflows []telemetry.Subflow, tariffs map[uint32]tariff, err error) {
	source, err := telemetry.Open()
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	snap, err := source.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range snap.Subflows {
		if f.NetnsCookie == s.cookie {
			subflows = append(subflows, f)
		}
	}
	profiles, err := source.Profiles(ctx)
	tariffs = map[uint32]tariff{}
	for _, p := range profiles {
		if p.NetnsCookie == s.cookie {
			tariffs[p.Ifindex] = tariff{p.Uplink, p.Base}
		}
	}
	return subflows, tariffs, err
}

// round reads the maps once, judges the connections, and sets and clears flags by the verdicts.
func (s *steerer) round(ctx context.Context, now time.Time) error {
	subflows, tariffs, err := s.read(ctx)
	if err != nil {
		return err
	}
	return s.ns.Do(func() error {
		all, err := s.look(now, subflows)
		if err != nil {
			return err
		}
		verdicts := s.decider.judge(now, all, tariffs)
		s.warn(verdicts)
		return s.apply(wishes(verdicts))
	})
}

// look returns each subflow with its lever, and drops flags from held that others have cleared.
func (s *steerer) look(now time.Time, subflows []telemetry.Subflow) ([]seen, error) {
	userspace, err := mptcp.UserspacePM()
	if err != nil {
		return nil, err
	}
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return nil, err
	}
	s.forgive(endpoints)
	if len(subflows) > 0 {
		if err := s.received.look(now); err != nil {
			return nil, err
		}
	}
	there := map[lever]bool{}
	for _, e := range endpoints {
		// A flag that the user has cleared is the user's from then on.
		there[endpointLever(e)] = s.DryRun || e.Flags&mptcp.EndpointBackup != 0
	}
	var all []seen
	for _, f := range subflows {
		sub := seen{Subflow: f}
		sub.BytesReceived = s.received.of(f)
		single := lever{Token: uint32(f.Token), Local: f.Local, Remote: f.Remote}
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
			sub.lever = lever{}
		}
		all = append(all, sub)
	}
	return all, s.keep(there)
}

// keep drops from held the flags that are not there any more.
func (s *steerer) keep(there map[lever]bool) error {
	for l := range s.held {
		if there[l] {
			continue
		}
		delete(s.held, l)
		if err := s.note(); err != nil {
			return err
		}
	}
	return nil
}

// forgive forgets what the path manager has refused once its endpoints are others, but for their backup flags: it may
// accept it now.
func (s *steerer) forgive(endpoints []mptcp.Endpoint) {
	now := slices.Clone(endpoints)
	for i := range now {
		now[i].Flags &^= mptcp.EndpointBackup
	}
	if !slices.Equal(now, s.before) {
		clear(s.refused)
	}
	s.before = now
}

func endpointLever(e mptcp.Endpoint) lever {
	return lever{Endpoint: e.ID, Local: netip.AddrPortFrom(e.Addr, e.Port)}
}

// apply clears flags first, then sets others, so that no connection has only backups in between.
func (s *steerer) apply(wanted map[lever]wish) error {
	for l := range s.held {
		if w := wanted[l]; !w.backup {
			if err := s.release(l, w); err != nil {
				return err
			}
		}
	}
	for l, w := range wanted {
		if _, held := s.held[l]; held || !w.backup {
			continue
		}
		s.held[l] = w.member.Interface
		if err := s.note(); err != nil {
			return err
		}
		if err := s.set(l, true); err != nil {
			s.Log.Warn("cannot make a subflow a backup", "error", err)
			s.refused[l] = true
			delete(s.held, l)
			if err := s.note(); err != nil {
				return err
			}
			continue
		}
		s.report(l, true, w.member.Interface, w)
	}
	return nil
}

// release clears a flag, which it need not do where the endpoint or subflow is gone.
func (s *steerer) release(l lever, w wish) error {
	if err := s.set(l, false); err != nil && !errors.Is(err, mptcp.ErrGone) {
		return fmt.Errorf("clear the backup flag: %w", err)
	}
	s.report(l, false, s.held[l], w)
	delete(s.held, l)
	return s.note()
}

// giveBack clears all held flags that are still set.
func (s *steerer) giveBack() error {
	if len(s.held) == 0 {
		return nil
	}
	return s.ns.Do(func() error {
		endpoints, err := mptcp.Endpoints()
		if err != nil {
			return err
		}
		for l := range s.held {
			flagged := func(e mptcp.Endpoint) bool {
				return endpointLever(e) == l && e.Flags&mptcp.EndpointBackup != 0
			}
			if l.Endpoint != 0 && !s.DryRun && !slices.ContainsFunc(endpoints, flagged) {
				delete(s.held, l)
				err = errors.Join(err, s.note())
				continue
			}
			err = errors.Join(err, s.release(l, wish{}))
		}
		return err
	})
}

// set sets or clears a flag. It reads the endpoint's other flags anew: the user may have changed them.
func (s *steerer) set(l lever, backup bool) error {
	switch {
	case s.DryRun:
		return nil
	case l.Endpoint == 0:
		return mptcp.SetSubflowBackup(l.Token, l.Local, l.Remote, backup)
	}
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(endpoints, func(e mptcp.Endpoint) bool { return endpointLever(e) == l })
	if at < 0 {
		return fmt.Errorf("endpoint %d (%v): %w", l.Endpoint, l.Local.Addr(), mptcp.ErrGone)
	}
	return mptcp.SetEndpointBackup(endpoints[at], backup)
}

// note writes the held flags to the record.
func (s *steerer) note() error {
	if s.DryRun {
		return nil
	}
	all := []held{}
	for l, iface := range s.held {
		all = append(all, held{l, iface})
	}
	if err := s.record.write(all); err != nil {
		return fmt.Errorf("note the backup flags to clear: %w", err)
	}
	return nil
}

func (s *steerer) report(l lever, backup bool, iface string, w wish) {
	c := Change{
		Time: time.Now(), Backup: backup, Interface: iface, Local: l.Local.Addr(), Endpoint: l.Endpoint,
		Because: w.because, Rule: w.rule, DryRun: s.DryRun,
	}
	if l.Endpoint == 0 {
		c.Token, c.Remote = telemetry.Token(l.Token).String(), l.Remote.Addr().String()
	}
	s.Report(c)
}

// once logs a warning the first time.
func (s *steerer) once(text string) {
	if !s.warned[text] {
		s.warned[text] = true
		s.Log.Warn(text)
	}
}

// warn logs, once each, what keeps connections from being steered.
func (s *steerer) warn(verdicts []*Verdict) {
	for _, v := range verdicts {
		if v.Unpriced != "" {
			s.once(fmt.Sprintf("no energy profile for %s: its connections are left alone; mpcc energy set %s PROFILE gives one",
				v.Unpriced, v.Unpriced))
		}
		for _, m := range v.stuck {
			s.once(fmt.Sprintf("%v on %s cannot be made a backup: it is no MPTCP endpoint; ip mptcp endpoint add %v dev %s makes it one",
				m.Local, m.Interface, m.Local, m.Interface))
		}
	}
}
