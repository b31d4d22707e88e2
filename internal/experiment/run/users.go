// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
)

// user is one user of a class.
type user struct {
	class  *scenario.Class
	member scenario.Member
	number int // in its class
	observer

	mu     sync.Mutex
	flow   *traffic.Flow // nil until it starts
	before traffic.Count // what it had done when the measured phase began
}

// newUsers returns the users of all classes, in order.
func (m *measurement) newUsers() (users []*user, err error) {
	for i := range m.plan.Classes {
		class := &m.plan.Classes[i]
		for number, member := range class.Members {
			u := &user{class: class, member: member, number: number}
			if foreign(class.User) {
				u.observer, err = m.maps.observe(&m.net, u)
			} else {
				u.observer = newSocketObserver(&m.net, u)
			}
			if err != nil {
				return nil, err
			}
			users = append(users, u)
		}
	}
	return users, nil
}

// up says whether the user, the side that opens the connections, sends; otherwise it receives.
func (u *user) up() bool { return u.class.Direction == "up" }

func (u *user) sender() scenario.Name {
	if u.up() {
		return u.member.From
	}
	return u.member.To
}

func (u *user) receiver() scenario.Name {
	if u.up() {
		return u.member.To
	}
	return u.member.From
}

// foreign says whether other programs have the sockets of a class's users.
func foreign(class *scenario.User) bool {
	return class.Kind == scenario.TrafficHTTP || class.Kind == scenario.TrafficIperf3
}

// finite says whether the users of a class come to an end.
func finite(class *scenario.User) bool {
	return class.Kind == scenario.TrafficFile || class.Kind == scenario.TrafficHTTP
}

// ccName returns the kernel's name of the class's congestion control.
func ccName(class *scenario.User) string { return strings.TrimPrefix(class.CC, string(catalog.CC)+"/") }

// start lets each user begin at its time. The channel is closed when all users
// have ended; fail is called when one cannot go on.
func (m *measurement) start(ctx context.Context, fail context.CancelCauseFunc) (ended <-chan struct{}) {
	random := rand.New(rand.NewPCG(m.run.Seed, 1))
	var left sync.WaitGroup
	for _, u := range m.users {
		config, err := m.config(u)
		config.Seed = random.Uint64()
		config.Watch = u.watch
		wait := u.class.Start.Std() + time.Duration(random.Float64()*float64(u.class.Within))
		left.Go(func() {
			if err == nil {
				err = u.run(ctx, m.servers[u.member.To], config, wait)
			}
			if err != nil {
				fail(fmt.Errorf("%s user %d: %w", u.class.Name, u.number, err))
			}
		})
	}
	all := make(chan struct{})
	go func() {
		left.Wait()
		close(all)
	}()
	return all
}

// run waits, and then runs the user's traffic until it ends.
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

// watch is traffic.Config.Watch.
func (u *user) watch(f *traffic.Flow) {
	u.mu.Lock()
	u.flow = f
	u.mu.Unlock()
	u.connection(f)
}

// ended says whether the user's traffic has come to its end.
func (u *user) ended() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.flow == nil {
		return false
	}
	select {
	case <-u.flow.Done():
		return true
	default:
		return false
	}
}

// beginMeasured marks the beginning of the measured phase.
func (u *user) beginMeasured() {
	u.begin()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.flow != nil {
		u.before = u.flow.Count()
	}
}

// config returns a user's traffic.
func (m *measurement) config(u *user) (traffic.Config, error) {
	class := u.class
	c := traffic.Config{
		Client: m.net.hosts[u.member.From], Upload: u.up(),
		Multipath: class.Transport == scenario.OverMPTCP, CC: ccName(class.User),
		SendBuffer: int(class.SendBuffer), ReceiveBuffer: int(class.ReceiveBuffer),
		Pattern: pattern(class.User),
	}
	from, err := m.net.interfaceOf(u.member.From, class.Via)
	if err != nil {
		return c, err
	}
	to, err := m.net.interfaceOf(u.member.To, class.Peer)
	if err != nil {
		return c, err
	}
	c.Local, c.Addr = from.addrs[0], to.addrs[0]
	return c, nil
}

func pattern(class *scenario.User) traffic.Pattern {
	udp := class.Transport == scenario.OverUDP
	switch class.Kind {
	case scenario.TrafficFile:
		return traffic.Files{Bytes: uint64(class.Size), Count: class.Files}
	case scenario.TrafficConstant:
		return traffic.Bursts{Rate: uint64(class.Rate), UDP: udp}
	case scenario.TrafficBursts:
		return traffic.Bursts{
			Rate: uint64(class.Rate), On: class.On.Std(), Off: class.Off.Std(), Shape: class.Alpha, UDP: udp,
		}
	case scenario.TrafficHTTP:
		return traffic.HTTP{Bytes: uint64(class.Size), Count: class.Files}
	case scenario.TrafficIperf3:
		return traffic.Iperf3{}
	}
	return traffic.Endless{}
}
