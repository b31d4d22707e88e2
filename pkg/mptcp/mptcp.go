// SPDX-License-Identifier: Apache-2.0

// Package mptcp opens Multipath TCP connections with a chosen congestion control,
// reads their state from the kernel, and sets the backup flags by which the path
// managers keep subflows out of use.
//
// Sockets and endpoints belong to the network namespace of the calling thread.
// The functions keep nothing between calls, and may be called at the same time.
package mptcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listener accepts MPTCP connections, and plain TCP ones, as every MPTCP
// listener does; the connection's MultipathTCP tells which it is.
type Listener struct {
	tcp *net.TCPListener
	cc  string
}

// Listen returns an MPTCP listener on addr; port 0 takes a free one. Further
// subflows must reach it too: listen on 0.0.0.0 where the peer is to join by
// other addresses. cc is the congestion control of what it accepts, "" the
// namespace's default. It is an error if the kernel has no MPTCP or no such
// congestion control.
func Listen(addr netip.AddrPort, cc string) (*Listener, error) {
	lc := net.ListenConfig{Control: control(Options{CC: cc})}
	lc.SetMultipathTCP(true)
	ln, err := lc.Listen(context.Background(), network(addr), addr.String())
	if err != nil {
		return nil, fmt.Errorf("mptcp: %w", err)
	}
	tcp := ln.(*net.TCPListener)
	if err := speaksMPTCP(tcp); err != nil {
		return nil, errors.Join(fmt.Errorf("mptcp: listen on %v: %w", addr, err), tcp.Close())
	}
	return &Listener{tcp: tcp, cc: cc}, nil
}

// Accept waits for a connection, until ctx ends or the listener is closed, and
// makes sure of its congestion control. Only one Accept may wait at a time.
func (l *Listener) Accept(ctx context.Context) (*net.TCPConn, error) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.tcp.SetDeadline(time.Unix(1, 0)) // long past
		close(ended)
	})
	conn, err := l.tcp.AcceptTCP()
	if !stop() {
		<-ended
		_ = l.tcp.SetDeadline(time.Time{})
		if err != nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("mptcp: %w", err)
	}
	if err := verify(conn, l.cc); err != nil {
		return nil, errors.Join(fmt.Errorf("mptcp: accept %v: %w", conn.RemoteAddr(), err), conn.Close())
	}
	return conn, nil
}

// Addr returns where it listens.
func (l *Listener) Addr() netip.AddrPort { return l.tcp.Addr().(*net.TCPAddr).AddrPort() }

// Close stops listening.
func (l *Listener) Close() error { return l.tcp.Close() }

// Options are what a connection has from its first packet on. Zero values leave
// the namespace's defaults.
type Options struct {
	CC            string     // congestion control
	TCP           bool       // plain TCP rather than MPTCP
	Local         netip.Addr // address of the first subflow
	SendBuffer    int        // bytes of content; takes CAP_NET_ADMIN
	ReceiveBuffer int        // bytes of content; takes CAP_NET_ADMIN
}

// Dial returns a connection to addr. A peer that speaks only TCP is no error: the
// connection's MultipathTCP tells. It is an error if this kernel has no MPTCP and
// the options do not ask for plain TCP, or if it has no such congestion control.
func Dial(ctx context.Context, addr netip.AddrPort, o Options) (*net.TCPConn, error) {
	d := net.Dialer{Control: control(o)}
	if o.Local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Local, 0))
	}
	d.SetMultipathTCP(!o.TCP)
	c, err := d.DialContext(ctx, network(addr), addr.String())
	if err != nil {
		return nil, fmt.Errorf("mptcp: %w", err)
	}
	conn := c.(*net.TCPConn)
	if !o.TCP {
		err = speaksMPTCP(conn)
	}
	if err == nil {
		err = verify(conn, o.CC)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mptcp: dial %v: %w", addr, err), conn.Close())
	}
	return conn, nil
}

// Apply gives a connection that was accepted its congestion control and
// buffers; the rest of the options is for Dial.
func Apply(conn *net.TCPConn, o Options) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = control(o)("", "", raw)
	}
	if err == nil {
		err = verify(conn, o.CC)
	}
	if err != nil {
		return fmt.Errorf("mptcp: %w", err)
	}
	return nil
}

// network keeps an IPv4 address on an IPv4 socket, also the wildcard.
func network(addr netip.AddrPort) string {
	if addr.Addr().Is4() {
		return "tcp4"
	}
	return "tcp6"
}

// control sets options before the socket connects or listens.
func control(o Options) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		return onSocket(raw, func(fd int) error {
			for option, bytes := range map[int]int{
				unix.SO_SNDBUFFORCE: o.SendBuffer, unix.SO_RCVBUFFORCE: o.ReceiveBuffer,
			} {
				if bytes == 0 {
					continue
				}
				if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, bytes); err != nil {
					return fmt.Errorf("set a buffer of %d bytes: %w", bytes, err)
				}
			}
			if o.CC == "" {
				return nil
			}
			return setCC(fd, o.CC)
		})
	}
}

// Available returns an error unless the namespace's sockets can have the
// congestion control. The kernel loads one that it has as a module.
func Available(cc string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setCC(fd, cc)
}

func setCC(fd int, cc string) error {
	err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc)
	if errors.Is(err, unix.ENOENT) {
		return unavailable(cc)
	}
	return err
}

func unavailable(cc string) error {
	return fmt.Errorf("congestion control %q is not available: load it first (net.ipv4.tcp_available_congestion_control lists what is)", cc)
}

// verify makes sure that an MPTCP connection runs cc: there the kernel takes some
// names it does not know without a word, and carries on with the default. A plain
// one may run another: an algorithm of mpcc leaves it to CUBIC (plain=kernel).
func verify(conn *net.TCPConn, cc string) error {
	if cc == "" {
		return nil
	}
	multipath, err := conn.MultipathTCP()
	if err != nil || !multipath {
		return err
	}
	runs, err := CongestionControl(conn)
	if err == nil && runs != cc {
		err = fmt.Errorf("%w; the connection runs %q", unavailable(cc), runs)
	}
	return err
}

// CongestionControl returns the name of what the connection runs; on an MPTCP
// connection, of what its first subflow runs.
func CongestionControl(conn *net.TCPConn) (string, error) {
	var name string
	err := withSocket(conn, func(fd int) (err error) {
		name, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the congestion control: %w", err)
	}
	return name, nil
}

// speaksMPTCP makes sure that the socket is MPTCP's own: package net quietly
// takes TCP instead where the kernel has no MPTCP.
func speaksMPTCP(c syscall.Conn) error {
	return withSocket(c, func(fd int) error {
		protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if err == nil && protocol != unix.IPPROTO_MPTCP {
			err = errors.New("no MPTCP socket to be had: the kernel lacks CONFIG_MPTCP, or net.mptcp.enabled is 0")
		}
		return err
	})
}

func withSocket(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return onSocket(raw, f)
}

func onSocket(raw syscall.RawConn, f func(fd int) error) error {
	var err error
	if ctlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); ctlErr != nil {
		return ctlErr
	}
	return err
}
