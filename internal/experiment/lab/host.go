// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/netns"
)

// Host is one namespace of a lab: an end host or a router.
type Host struct {
	lab      *Lab
	name     string
	forwards bool // it passes on packets of others
	router   bool // it does nothing else, and has no routing tables for its addresses
	ns       *netns.Handle
	nl       *netlink.Handle
	ends     []*end
	queues   []string // tc lines that Lab.Together runs at its end
}

// Name returns the name given to Lab.Host, Relay or Router.
func (h *Host) Name() string { return h.name }

// Namespace returns the name that "ip netns" has for the host.
func (h *Host) Namespace() string { return namespacePrefix(h.lab.id) + h.name }

func newHost(l *Lab, name string, forwards, router bool) (_ *Host, err error) {
	h := &Host{lab: l, name: name, forwards: forwards, router: router}
	if err := newNamespace(h.Namespace(), len(l.hosts) == 0); err != nil {
		return nil, err
	}
	made, err := netns.Named(h.Namespace())
	if err != nil {
		return nil, err
	}
	if h.ns, err = made.Open(); err != nil {
		return nil, err
	}
	if h.nl, err = netlink.NewHandleAt(vnetns.NsHandle(h.ns.Fd()), unix.NETLINK_ROUTE); err != nil {
		h.ns.Close()
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := h.prepare(); err != nil {
		h.nl.Close()
		h.ns.Close()
		return nil, err
	}
	return h, nil
}

// newNamespace makes a namespace. The first of a lab is left to ip, which makes
// /run/netns a shared mount: without that, names could get stuck below a second
// mount. The others are made here, because a process for each would take long.
func newNamespace(name string, first bool) error {
	if first {
		return runTool("ip", "netns", "add", name)
	}
	return netns.OnOwnThread(func() error {
		ns, err := vnetns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("make the namespace: %w", err)
		}
		return ns.Close()
	})
}

func (h *Host) prepare() error {
	lo, err := h.nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := h.nl.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	sysctls := [][2]string{
		// It would drop replies that come in by another interface than the one
		// that the route back goes out by.
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf.default.rp_filter", "0"},
		{"net.ipv4.tcp_congestion_control", "reno"},
		{"net.ipv4.tcp_no_metrics_save", "1"},
	}
	if h.forwards {
		sysctls = append(sysctls,
			[2]string{"net.ipv4.ip_forward", "1"},
			// A relay may get back, by another interface, what it has sent itself.
			[2]string{"net.ipv4.conf.all.accept_local", "1"})
		if _, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_seed"); err == nil {
			// A seed for each router: with the same everywhere, traffic that came by
			// one of several equal ways would all go on by one. And a fixed one, so
			// that runs can be repeated.
			hash := fnv.New32a()
			hash.Write([]byte(h.name))
			sysctls = append(sysctls, [2]string{"net.ipv4.fib_multipath_hash_seed", fmt.Sprint(hash.Sum32())})
		}
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		// Labs are IPv4. IPv6 would put neighbour discovery on the links.
		sysctls = append(sysctls,
			[2]string{"net.ipv6.conf.all.disable_ipv6", "1"},
			[2]string{"net.ipv6.conf.default.disable_ipv6", "1"})
	}
	return h.Do(func() error {
		for _, s := range sysctls {
			if err := writeSysctl(s[0], s[1]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Do calls f on an OS thread that is inside the host's namespace, and returns
// f's error. Sockets that f opens stay in the namespace and may be used anywhere
// afterwards; goroutines that f starts are outside.
func (h *Host) Do(f func() error) error { return h.ns.Do(f) }

// Sysctl sets a network setting of this host, named with dots, for example
// "net.ipv4.tcp_congestion_control".
func (h *Host) Sysctl(key, value string) error {
	if err := h.Do(func() error { return writeSysctl(key, value) }); err != nil {
		return fmt.Errorf("lab: %s: %w", h.name, err)
	}
	return nil
}

// writeSysctl sets a network setting of the thread's namespace.
func writeSysctl(key, value string) error {
	path := filepath.Join("/proc/sys", filepath.FromSlash(strings.ReplaceAll(key, ".", "/")))
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("set %s=%s: %w", key, value, err)
	}
	return nil
}

// Cmd is an exec.Cmd that runs inside a host's namespace. It sees the
// machine's own files and mounts.
type Cmd struct {
	*exec.Cmd
	host  *Host
	ended context.Context // ends with the command, or with the lab
	end   context.CancelFunc
}

// Command prepares a command to run inside the host. It is killed when ctx
// ends, when the lab closes and when this process dies.
func (h *Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	ctx, kill := context.WithCancel(ctx)
	ended, end := context.WithCancel(h.lab.ctx)
	context.AfterFunc(ended, kill)
	cmd := exec.CommandContext(ctx, toolPath(name), args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return &Cmd{Cmd: cmd, host: h, ended: ended, end: end}
}

// Start is exec.Cmd.Start inside the host. Wait must follow.
func (c *Cmd) Start() error {
	started := make(chan error, 2)
	go func() {
		started <- c.host.Do(func() error {
			err := c.Cmd.Start()
			started <- err
			if err == nil {
				// Stay on this thread: Pdeathsig kills the command when the thread that
				// started it ends, not when the process does.
				<-c.ended.Done()
			}
			return err
		})
	}()
	err := <-started
	if err != nil {
		c.end()
	}
	return err
}

// Wait is exec.Cmd.Wait.
func (c *Cmd) Wait() error {
	defer c.end()
	return c.Cmd.Wait()
}

// Run is exec.Cmd.Run inside the host.
func (c *Cmd) Run() error {
	defer c.end()
	return c.host.Do(c.Cmd.Run)
}

// Output is exec.Cmd.Output inside the host.
func (c *Cmd) Output() (out []byte, err error) {
	defer c.end()
	err = c.host.Do(func() error { out, err = c.Cmd.Output(); return err })
	return out, err
}

// CombinedOutput is exec.Cmd.CombinedOutput inside the host.
func (c *Cmd) CombinedOutput() (out []byte, err error) {
	defer c.end()
	err = c.host.Do(func() error { out, err = c.Cmd.CombinedOutput(); return err })
	return out, err
}

// MPTCPLimits are the bounds of the in-kernel MPTCP path manager, 0 to 8 each.
type MPTCPLimits struct {
	Subflows        int // of a connection, beyond its first
	AddAddrAccepted int // addresses announced by the peer that are connected to
}

// MPTCPEndpoint is an address the in-kernel MPTCP path manager may use.
type MPTCPEndpoint struct {
	Addr     netip.Addr
	Subflow  bool // open subflows from this address
	Signal   bool // announce this address to the peer
	Backup   bool // subflows of this address carry data only when no other can
	Fullmesh bool // open subflows to all of the peer's addresses
}

// MPTCP sets the host's MPTCP limits and replaces its endpoints.
func (h *Host) MPTCP(limits MPTCPLimits, endpoints ...MPTCPEndpoint) error {
	if _, err := os.Stat("/proc/sys/net/mptcp"); errors.Is(err, fs.ErrNotExist) {
		return errors.New("lab: this kernel has no MPTCP (CONFIG_MPTCP)")
	}
	if slices.ContainsFunc(endpoints, func(e MPTCPEndpoint) bool { return e.Signal }) {
		// Seconds after which a lost ADD_ADDR is sent again, 120 by default. The segment that carries it is lost on a healthy link
		// too: where data overtakes it, the peer drops it for its old timestamp.
		if err := h.Sysctl("net.mptcp.add_addr_timeout", "1"); err != nil {
			return err
		}
	}
	script := []string{
		fmt.Sprintf("mptcp limits set subflows %d add_addr_accepted %d", limits.Subflows, limits.AddAddrAccepted),
		"mptcp endpoint flush",
	}
	for _, e := range endpoints {
		line := "mptcp endpoint add " + e.Addr.String()
		for _, flag := range []struct {
			on   bool
			word string
		}{{e.Subflow, "subflow"}, {e.Signal, "signal"}, {e.Backup, "backup"}, {e.Fullmesh, "fullmesh"}} {
			if flag.on {
				line += " " + flag.word
			}
		}
		script = append(script, line)
	}
	return h.batch("ip", script)
}
