// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/choose"
	"github.com/mpcc/mpcc/pkg/telemetry"
	"github.com/mpcc/mpcc/test/keydoc"
)

func TestReportDoc(t *testing.T) {
	keydoc.Check(t, "../../docs/advise.md", reflect.TypeFor[Report](), nil, "What it looks at", "Which row", "How far to trust it")
}

// ways makes ways out of interface names, whose kinds their names tell, each with a gateway of its own.
func ways(names ...string) (all []Way) {
	for _, n := range names {
		w := Way{Interface: n, Gateway: "gateway of " + n}
		w.Kind, w.KnownBy = kind(n, "")
		all = append(all, w)
	}
	return all
}

func TestRows(t *testing.T) {
	for _, c := range []struct {
		name   string
		ways   []Way
		change func(*Evidence)
		row    string
		why    string
	}{
		{name: "nothing", row: "line", why: "no way out"},
		{name: "one", ways: ways("eth0"), row: "line", why: "one way out"},
		{name: "off", ways: ways("eth0", "lte0"), change: func(e *Evidence) { e.MPTCP = false }, row: "line", why: "MPTCP is off"},
		{name: "household", ways: ways("eth0", "wwan0"), row: "home", why: "a wire, and something without"},
		{name: "phone", ways: ways("wlan0", "wwan0"), row: "phone", why: "WLAN, and no wire"},
		{name: "train", ways: ways("wwan0", "wwan1"), row: "train", why: "all mobile"},
		{name: "office", ways: ways("enp1s0", "enp2s0"), row: "own", why: "all wired"},
		{name: "laptop", ways: ways("enp1s0", "wlp2s0"), row: "home", why: "a wire"},
		{name: "one gateway", ways: ways("enp1s0", "wlp2s0"), change: func(e *Evidence) { e.Ways[1].Gateway = e.Ways[0].Gateway }, row: "shared", why: "the same gateway"},
		{name: "paid", ways: ways("eth0", "wwan0"), change: func(e *Evidence) { e.Ways[1].Metered = "you say" }, row: "metered", why: "wwan0 is paid by the byte"},
		{name: "strange", ways: ways("eth0", "tun0"), row: "home", why: "nothing tells all their kinds"},
		{name: "strange and lossy", ways: ways("eth0", "tun0"), change: func(e *Evidence) { e.Ways[1].Sent, e.Ways[1].Again = 10000, 50 }, row: "phone", why: "get lost"},
		{name: "no endpoint", ways: ways("eth0", "wwan0"), change: func(e *Evidence) { e.Endpoints = 0 }, row: "home", why: "no MPTCP endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &Evidence{MPTCP: true, Endpoints: 1, Ways: c.ways}
			if c.change != nil {
				c.change(e)
			}
			r := Judge(e)
			if r.Row != c.row || !strings.Contains(strings.Join(r.Why, "\n"), c.why) {
				t.Errorf("row %s, because %q", r.Row, r.Why)
			}
			if len(r.Measured) == 0 {
				t.Error("the advice rests on nothing")
			}
		})
	}
}

// The page has every row, and the command is one that mpcc takes.
func TestCommand(t *testing.T) {
	for c, want := range map[choose.Contestant]string{
		{CC: "lia", Scheduler: "default", Tuning: "default"}: "mpcc load cc/lia --default --netns phone",
		{CC: "cubic", Scheduler: "ecf", Tuning: "default"}:   "mpcc load sched/ecf --default --small-pieces --netns phone",
		{CC: "lia", Scheduler: "ecf", Tuning: "default"}:     "mpcc load cc/lia sched/ecf --default --small-pieces --netns phone",
	} {
		if got := command(c, "phone"); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestSays(t *testing.T) {
	w := Way{Interface: "lte0", Kind: Mobile, KnownBy: "by its name", Metered: "you say", Connections: 2,
		MinRTT: telemetry.Micros(20 * time.Millisecond), RTT: telemetry.Micros(75 * time.Millisecond), Sent: 2000, Again: 30, Rate: 1.25e6}
	if got, want := w.says(), "lte0: mobile, by its name, metered, you say, RTT from 20 ms to 75 ms, up to 10 Mbit/s, 1.5 % of segments sent again"; got != want {
		t.Errorf("%s\nnot %s", got, want)
	}
	w = Way{Interface: "tun0", Kind: Unknown, KnownBy: "neither driver nor name tells", Gateway: "10.0.0.1", Sent: 999, Again: 30}
	if got, want := w.says(), "tun0: unknown, neither driver nor name tells, by 10.0.0.1, nothing seen on it yet"; got != want {
		t.Errorf("%s\nnot %s", got, want)
	}
}

func TestKindByDriver(t *testing.T) {
	sys := t.TempDir()
	for file, text := range map[string]string{
		"eth0/uevent": "INTERFACE=eth0\n", "eth1/phy80211/name": "phy0", "usb0/uevent": "DEVTYPE=wwan\nINTERFACE=usb0\n",
	} {
		path := filepath.Join(sys, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][2]string{
		"eth0": {Wired, "by its name"}, "eth1": {WLAN, "by its driver"}, "usb0": {Mobile, "by its driver"},
		"wlp3s0": {WLAN, "by its name"}, "br0": {Unknown, "neither driver nor name tells"},
	} {
		if k, by := kind(name, sys); k != want[0] || by != want[1] {
			t.Errorf("%s: %s, %s", name, k, by)
		}
	}
}

func TestDefaultRoutes(t *testing.T) {
	const zeros = "00000000000000000000000000000000"
	for line, want := range map[string]string{
		"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT":                  "- ",
		"wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0":                                        "wlan0 192.168.1.1",
		"ppp0\t00000000\t00000000\t0001\t0\t0\t600\t00000000\t0\t0\t0":                                         "ppp0 ",
		"wlan0\t0001A8C0\t00000000\t0001\t0\t0\t600\t00FFFFFF\t0\t0\t0":                                        "- ",
		"eth0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000080\t0\t0\t0":                                         "- ",
		zeros + " 00 " + zeros + " 00 fe800000000000000000000000000001 00000400 00000001 0 00450003 eth0":      "eth0 fe80::1",
		zeros + " 00 " + zeros + " 00 " + zeros + " ffffffff 00000001 00000000 00200200 lo":                    "- ",
		"fd000000000000000000000000000000 40 " + zeros + " 00 " + zeros + " 00000100 00000001 0 00000001 eth0": "- ",
	} {
		name, gateway, ok := defaultRoute(strings.Fields(line))
		if !ok {
			name = "-"
		}
		if got := name + " " + gateway; got != want {
			t.Errorf("%q: %q, not %q", line, got, want)
		}
	}
}
