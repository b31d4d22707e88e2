// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// More subflows than the live map has room for: no connection is lost, those
// beyond are counted, and when others end there is room again. One namespace
// cannot fill the map: it has three quarters, and another one gets the rest. 300
// and 100 connections on the loopback of one host each are 600 and 200 sockets
// under dts.
func TestOneKernelFullMap(t *testing.T) {
	const (
		room  = 512
		share = room / 4 * 3 // of one namespace
		lost  = (600 - share) + (200 - (room - share))
	)
	load(t, "dts", "--max-subflows", fmt.Sprint(room), "--set", "plain=own")
	n := newLab(t)
	var hosts [2]*lab.Host
	var crowds [2]crowd
	for i, pairs := range []int{300, 100} {
		hosts[i] = addHost(t, n, fmt.Sprintf("crowd%d", i))
		if err := hosts[i].Sysctl("net.ipv4.tcp_congestion_control", "dts"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(crowds[i].disperse)
		if err := hosts[i].Do(func() error { return crowds[i].gather(pairs) }); err != nil {
			t.Fatal(err)
		}
	}
	s := readStatus(t)
	for i, want := range []int{share, room - share} {
		if got := len(s.of(hosts[i])); got != want {
			t.Errorf("%d subflows of namespace %d shown, want %d", got, i, want)
		}
	}
	if s.Lost.Subflows != lost {
		t.Errorf("%d subflows counted as not recorded, want %d", s.Lost.Subflows, lost)
	}
	want := fmt.Sprintf("not recorded: %d subflows", lost)
	if table := string(mpcc(t, "status")); !strings.Contains(table, want) {
		t.Errorf("mpcc status does not say %q", want)
	}
	for i := range crowds {
		if err := crowds[i].talk(); err != nil {
			t.Error(err)
		}
		crowds[i].disperse()
	}

	if !eventually(10*time.Second, func() bool {
		s = readStatus(t)
		return len(s.of(hosts[0]))+len(s.of(hosts[1])) == 0
	}) {
		t.Errorf("still %d and %d live subflows 10 s after the last was closed", len(s.of(hosts[0])), len(s.of(hosts[1])))
	}
	if sum := s.total(hosts[0], "lo", "dts"); sum.Opened != share || sum.Closed != share {
		t.Errorf("the total is %+v, want %d subflows opened and closed", sum, share)
	}
	if err := hosts[0].Do(func() error { return crowds[0].gather(1) }); err != nil {
		t.Fatal(err)
	}
	s = readStatus(t)
	if got := len(s.of(hosts[0])); got != 2 || s.Lost.Subflows != lost {
		t.Errorf("%d subflows shown and %d not recorded after there was room again, want 2 and %d", got, s.Lost.Subflows, lost)
	}
}

// A namespace that has its share of a packet scheduler's states gets no more: its further connections move their data
// all the same, and those of another namespace get theirs.
func TestOneKernelSchedulerShares(t *testing.T) {
	const (
		states = 3 // that a namespace may have
		shown  = 2 // of them, in the live map
	)
	withSchedulers(t)
	spec, name, err := objectOf("sched/minrtt")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	for name, value := range map[string]uint32{"mpcc_namespace_states": states, "mpcc_namespace_shown": shown} {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(coll.Close)
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps[name]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	want := func(when string, wantStates, wantShown int) {
		t.Helper()
		var found [2]int
		if !eventually(10*time.Second, func() bool {
			for i, name := range []string{"mpcc_sched_state", "mpcc_sched_conn"} {
				found[i] = 0
				var key uint64
				value := make([]byte, coll.Maps[name].ValueSize())
				for all := coll.Maps[name].Iterate(); all.Next(&key, &value); {
					found[i]++
				}
			}
			return found == [2]int{wantStates, wantShown}
		}) {
			t.Errorf("%s: %d states and %d of them shown, want %d and %d", when, found[0], found[1], wantStates, wantShown)
		}
	}

	n := newTwoPaths(t, [2]lab.Shape{})
	// connect's listener has the kernel's own scheduler: the other host's is set after its end is there.
	open := func(from, to *lab.Host) pair {
		t.Helper()
		schedule(t, "default", to)
		schedule(t, name, from)
		p := connect(t, from, to, n.paths[0].Addr(to), mptcp.Options{}, "")
		p.transfer(64<<10).within(t, 20*time.Second)
		return p
	}
	var crowd []pair
	for range states + 2 {
		crowd = append(crowd, open(n.client, n.server))
	}
	want("with a crowd in one namespace", states, shown)
	other := open(n.server, n.client)
	want("with another namespace's connection", states+1, shown+1)
	for _, p := range crowd {
		p.close()
	}
	want("after the crowd", 1, 1)
	later := open(n.client, n.server)
	want("with one more", 2, 2)
	later.close()
	other.close()
	want("after all", 0, 0)
}

// crowd is the two ends each of many connections. They are bare file
// descriptors: package net would take longer about them than TCP does.
type crowd struct{ clients, servers []int }

// gather connects n sockets of the host that it is called on to it.
func (c *crowd) gather(n int) error {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(listener)
	addr := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.Bind(listener, addr), unix.Listen(listener, 16)); err != nil {
		return err
	}
	bound, err := unix.Getsockname(listener)
	if err != nil {
		return err
	}
	for i := range n {
		client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("socket %d: %w", i, err)
		}
		c.clients = append(c.clients, client)
		if err := unix.Connect(client, bound); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		server, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		c.servers = append(c.servers, server)
	}
	return nil
}

// talk has each connection carry its number one way and back.
func (c *crowd) talk() error {
	for i := range c.clients {
		for _, way := range [][2]int{{c.clients[i], c.servers[i]}, {c.servers[i], c.clients[i]}} {
			if _, err := unix.Write(way[0], binary.BigEndian.AppendUint32(nil, uint32(i))); err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			number := make([]byte, 4)
			n, err := unix.Read(way[1], number)
			if err != nil || n != 4 || int(binary.BigEndian.Uint32(number)) != i {
				return fmt.Errorf("connection %d: %d bytes %x, %w", i, n, number, err)
			}
		}
	}
	return nil
}

// disperse resets all connections.
func (c *crowd) disperse() {
	for _, fd := range append(c.clients, c.servers...) {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(fd)
	}
	c.clients, c.servers = nil, nil
}
