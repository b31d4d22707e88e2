// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/paths"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Gather looks at a network namespace.
func Gather(ctx context.Context, o Options) (*Evidence, error) {
	ns, err := netns.Current()
	sys := "/sys/class/net" // it shows the caller's namespace only
	if o.Netns != "" {
		ns, err = netns.Named(o.Netns)
		sys = ""
	}
	if err != nil {
		return nil, err
	}
	g := gatherer{Evidence: &Evidence{Netns: o.Netns}, inode: ns.Inode, sys: sys, of: map[netip.Addr]string{}}
	if err := ns.Do(func() error { return g.look() }); err != nil {
		return nil, err
	}
	if err := g.meter(o.Metered); err != nil {
		return nil, err
	}
	g.addMaps(ctx)
	return g.Evidence, nil
}

type gatherer struct {
	*Evidence
	inode uint64
	sys   string
	of    map[netip.Addr]string // the interface that has an address
}

// look is called in the namespace.
func (g *gatherer) look() error {
	enabled, err := os.ReadFile("/proc/sys/net/mptcp/enabled")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	g.MPTCP = err == nil && strings.TrimSpace(string(enabled)) != "0"
	up, err := g.addresses()
	if err != nil {
		return err
	}
	gateways, err := defaultRoutes()
	if err != nil {
		return err
	}
	sockets, err := mptcp.TCPSockets()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for name := range gateways {
		used[name] = true
	}
	if g.MPTCP {
		endpoints, err := mptcp.Endpoints()
		if err != nil {
			return err
		}
		g.Endpoints = len(endpoints)
		for _, e := range endpoints {
			used[g.of[e.Addr]] = true
		}
		connections, err := mptcp.Connections()
		if err != nil {
			return err
		}
		g.Multipath = len(connections)
	}
	for _, s := range sockets {
		if !s.Listens && !s.Local.Addr().IsLoopback() {
			used[g.of[s.Local.Addr()]] = true
		}
	}
	for _, name := range up {
		if !used[name] {
			continue
		}
		w := Way{Interface: name}
		w.Kind, w.KnownBy = kind(name, g.sys)
		if all := gateways[name]; len(all) == 1 {
			w.Gateway = all[0]
		}
		g.Ways = append(g.Ways, w)
	}
	g.sockets(sockets)
	return nil
}

// addresses returns the interfaces that are up and have addresses that can lead out.
func (g *gatherer) addresses() (up []string, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 || i.Flags&net.FlagUp == 0 || i.Flags&net.FlagRunning == 0 {
			continue
		}
		list, err := i.Addrs()
		if err != nil {
			continue // it may have gone
		}
		for _, a := range list {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil || !prefix.Addr().IsGlobalUnicast() {
				continue
			}
			g.of[prefix.Addr()] = i.Name
			if !slices.Contains(up, i.Name) {
				up = append(up, i.Name)
			}
		}
	}
	return up, nil
}

// defaultRoutes returns the gateways of each interface's default routes.
func defaultRoutes() (map[string][]string, error) {
	found := map[string][]string{}
	add := func(name, gateway string) {
		if !slices.Contains(found[name], gateway) {
			found[name] = append(found[name], gateway)
		}
	}
	for _, file := range []string{"route", "ipv6_route"} {
		f, err := os.Open("/proc/thread-self/net/" + file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, gateway, ok := defaultRoute(strings.Fields(lines.Text())); ok {
				add(name, gateway)
			}
		}
	}
	return found, nil
}

// defaultRoute reads a line of /proc/net/route or ipv6_route. A route without a gateway has "" for it.
func defaultRoute(fields []string) (name, gateway string, ok bool) {
	const reject = "00200200" // flags of the kernel's own entry of IPv6
	switch {
	case len(fields) == 11 && fields[1] == "00000000" && fields[7] == "00000000":
		raw, err := hex.DecodeString(fields[2])
		if err != nil || len(raw) != 4 {
			return "", "", false
		}
		slices.Reverse(raw) // as the processor has it: all that mpcc runs on are little-endian
		addr, _ := netip.AddrFromSlice(raw)
		name, gateway = fields[0], addr.String()
	case len(fields) == 10 && strings.Trim(fields[0], "0") == "" && fields[1] == "00" && fields[8] != reject && fields[9] != "lo":
		raw, err := hex.DecodeString(fields[4])
		if err != nil || len(raw) != 16 {
			return "", "", false
		}
		addr, _ := netip.AddrFromSlice(raw)
		name, gateway = fields[9], addr.String()
	default:
		return "", "", false
	}
	if a, err := netip.ParseAddr(gateway); err == nil && a.IsUnspecified() {
		gateway = ""
	}
	return name, gateway, true
}

// Names that interfaces have by custom: of systemd, and of the kernel's drivers.
var named = []struct {
	pattern *regexp.Regexp
	kind    string
}{
	{regexp.MustCompile(`^(wl|wifi|ath)`), WLAN},
	{regexp.MustCompile(`^(ww|lte|umts|rmnet|ppp)`), Mobile},
	{regexp.MustCompile(`^(en|eth|dsl|fibre)`), Wired},
}

// kind tells what an interface is; sys is where sysfs has interfaces, "" where it is another namespace's.
func kind(name, sys string) (kind, by string) {
	if sys != "" {
		at := filepath.Join(sys, name)
		has := func(file string) bool { _, err := os.Stat(filepath.Join(at, file)); return err == nil }
		event, _ := os.ReadFile(filepath.Join(at, "uevent"))
		switch {
		case has("phy80211") || has("wireless"):
			return WLAN, "by its driver"
		case strings.Contains(string(event), "DEVTYPE=wwan"):
			return Mobile, "by its driver"
		}
	}
	for _, n := range named {
		if n.pattern.MatchString(name) {
			return n.kind, "by its name"
		}
	}
	return Unknown, "neither driver nor name tells"
}

// way returns the interface's; nil if it is none.
func (g *gatherer) way(name string) *Way {
	i := slices.IndexFunc(g.Ways, func(w Way) bool { return w.Interface == name })
	if i < 0 {
		return nil
	}
	return &g.Ways[i]
}

// sockets adds what open connections have met.
func (g *gatherer) sockets(all []mptcp.TCPSocket) {
	for i := range all {
		s := &all[i]
		w := g.way(g.of[s.Local.Addr()])
		if w == nil || s.Listens || s.TCP.Rtt == 0 {
			continue
		}
		w.Connections++
		if least := micros(s.TCP.Min_rtt); w.MinRTT == 0 || least < w.MinRTT {
			w.MinRTT = least
		}
		w.RTT = max(w.RTT, micros(s.TCP.Rtt))
		w.Sent += uint64(s.TCP.Data_segs_out)
		w.Again += uint64(s.TCP.Total_retrans)
		w.Rate = max(w.Rate, float64(s.TCP.Delivery_rate))
	}
}

func micros(us uint32) telemetry.Micros {
	return telemetry.Micros(time.Duration(us) * time.Microsecond)
}

// meter marks the interfaces that are paid by the byte: those that the user names, and those with a quota.
func (g *gatherer) meter(named []string) error {
	for _, name := range named {
		w := g.way(name)
		if w == nil {
			var there []string
			for _, w := range g.Ways {
				there = append(there, w.Interface)
			}
			return fmt.Errorf("%s is no way out of this host: there are %s", name, strings.Join(there, ", "))
		}
		w.Metered = "you say"
	}
	rules, err := paths.List()
	if err != nil {
		return nil // nothing is loaded, or this process may not see it
	}
	for _, r := range rules {
		for i := range g.Ways {
			w := &g.Ways[i]
			if r.Inode == g.inode && r.Quota.Bytes > 0 && w.Metered == "" && r.Path.Interface() == w.Interface {
				w.Metered = "mpcc path has a quota for it"
			}
		}
	}
	return nil
}

// addMaps adds what mpcc's maps tell, of connections that have ended too.
func (g *gatherer) addMaps(ctx context.Context) {
	snap, err := telemetry.Take(ctx)
	if err != nil || snap == nil {
		return // nothing is loaded, or this process may not see it
	}
	for _, t := range snap.Totals {
		w := g.way(t.Interface)
		const segment = 1448
		if w == nil || t.Netns != g.inode || t.BytesAcked/segment <= w.Sent {
			continue
		}
		w.Sent, w.Again = (t.BytesAcked+t.BytesRetrans)/segment, t.Retrans
	}
	for _, f := range snap.Subflows {
		if w := g.way(f.Interface); w != nil && f.Netns == g.inode {
			w.Rate = max(w.Rate, float64(f.DeliveryRate))
		}
	}
}
