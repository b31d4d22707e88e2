// SPDX-License-Identifier: Apache-2.0

package energy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func num(v float64) *float64 { return &v }

func TestBuiltinProfiles(t *testing.T) {
	want := map[string][3]*float64{ // uplink, downlink, base
		"wlan":           {nil, num(137), num(132.9)},
		"3g":             {nil, num(122.1), num(817.9)},
		"wifi-2012":      {num(283.17), num(137.01), num(132.86)},
		"3g-2012":        {num(868.98), num(122.12), num(817.88)},
		"lte-2012":       {num(438.39), num(51.97), num(1288.04)},
		"5g-low-2021":    {num(32.2), num(11.5), nil},
		"5g-mmwave-2021": {num(8.9), num(1.7), nil},
	}
	got := map[string][3]*float64{}
	for _, p := range Builtin() {
		got[p.Name] = [3]*float64{p.Uplink, p.Downlink, p.Base}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Unverified names keys of the profile itself.
func TestUnverifiedKeysExist(t *testing.T) {
	for _, p := range Builtin() {
		has := map[string]bool{"uplink_mw_per_mbps": p.Uplink != nil, "downlink_mw_per_mbps": p.Downlink != nil,
			"base_mw": p.Base != nil, "tail": p.Tail != nil}
		for _, key := range p.Unverified {
			if !has[key] {
				t.Errorf("%s: unverified: there is no %s", p.Name, key)
			}
		}
	}
}

func TestCompleteNamesWhatIsMissing(t *testing.T) {
	p, err := Find(Builtin(), "wlan")
	if err != nil {
		t.Fatal(err)
	}
	const want = "profile wlan has no published uplink_mw_per_mbps (mW/Mbps)"
	var missing *MissingError
	if err := p.Complete(); !errors.As(err, &missing) || missing.Key != "uplink_mw_per_mbps" || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	p.Uplink = num(283.17)
	if err := p.Complete(); err != nil {
		t.Error(err)
	}
	p.Uplink = num(5e6)
	if err := p.Complete(); err == nil || !strings.Contains(err.Error(), "uplink_mw_per_mbps is 5e+06, not 0 to 4294967 mW/Mbps") {
		t.Errorf("error %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	const ok = "profiles: [{name: a, source: me, uplink_mw_per_mbps: 1}"
	if _, err := Parse([]byte(ok + "]")); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                `no profiles`,
		ok + ", {name: a, source: me}]":   "two profiles a",
		ok + ", {source: me}]":            "profile 2 has no name",
		ok + ", {name: b}]":               "profile b: say in source",
		ok + ", {name: b, uplink_mw: 3}]": "field uplink_mw not found",
		ok + ", {name: b, source: x, base_mw: -1}]":   "base_mw is -1",
		ok + ", {name: b, source: x, base_mw: .nan}]": "base_mw is NaN",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRAPLFollowsAWrap(t *testing.T) {
	sys := t.TempDir()
	const pkg, core = "class/powercap/intel-rapl:0/", "class/powercap/intel-rapl:0:0/"
	write(t, sys, map[string]string{
		pkg + "name": "package-0", pkg + "max_energy_range_uj": "10000000", pkg + "energy_uj": "9000000",
		core + "name": "core", core + "max_energy_range_uj": "10000000", core + "energy_uj": "100",
	})
	r, err := NewRAPL(sys)
	if err != nil {
		t.Fatal(err)
	}
	check := func(wantPackage, wantCore float64) {
		t.Helper()
		got, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		want := []Zone{{"intel-rapl:0", "package", wantPackage}, {"intel-rapl:0:0", "core", wantCore}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	check(0, 0)
	write(t, sys, map[string]string{pkg + "energy_uj": "9500000", core + "energy_uj": "600100"})
	check(0.5, 0.6)
	write(t, sys, map[string]string{pkg + "energy_uj": "2500000"})
	check(3.5, 0.6)

	if err := os.Remove(filepath.Join(sys, core, "energy_uj")); err != nil {
		t.Fatal(err)
	}
	zones, err := r.Read()
	if len(zones) != 1 || err == nil || !strings.Contains(err.Error(), "RAPL zone intel-rapl:0:0") {
		t.Errorf("with an unreadable zone: %v, %v", zones, err)
	}
}

func TestBatteries(t *testing.T) {
	sys := t.TempDir()
	const supply = "class/power_supply/"
	write(t, sys, map[string]string{
		supply + "AC/type":          "Mains",
		supply + "BAT0/type":        "Battery",
		supply + "BAT0/status":      "Discharging",
		supply + "BAT0/power_now":   "7500000",
		supply + "BAT0/energy_now":  "20000000",
		supply + "BAT1/type":        "Battery",
		supply + "BAT1/status":      "Discharging",
		supply + "BAT1/current_now": "-500000",
		supply + "BAT1/voltage_now": "8000000",
		supply + "BAT1/charge_now":  "2000000",
		supply + "BAT2/type":        "Battery",
		supply + "BAT2/status":      "Charging",
		supply + "BAT2/power_now":   "30000000",
	})
	list, err := Batteries(sys)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Battery{}
	for _, b := range list {
		got[b.Name] = b
	}
	want := map[string]Battery{
		"BAT0": {"BAT0", num(7.5), num(72000), "Discharging", 1e-6},
		"BAT1": {"BAT1", num(4), num(57600), "Discharging", 8e-6},
		"BAT2": {"BAT2", nil, nil, "Charging", 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// unplugged is a machine with a battery that supplies it, one that does not, and RAPL zones.
func unplugged(t *testing.T) (sys string) {
	t.Helper()
	sys = t.TempDir()
	const supply, cap = "class/power_supply/", "class/powercap/"
	write(t, sys, map[string]string{
		supply + "BAT0/type": "Battery", supply + "BAT0/status": "Discharging", supply + "BAT0/power_now": "7500000",
		supply + "BAT1/type": "Battery", supply + "BAT1/status": "Full", supply + "BAT1/power_now": "0",
		supply + "BAT2/type": "Battery", supply + "BAT2/status": "Discharging", supply + "BAT2/voltage_now": "8000000",
		cap + "intel-rapl:0/name": "package-0", cap + "intel-rapl:0/max_energy_range_uj": "262143328850", cap + "intel-rapl:0/energy_uj": "5",
		cap + "intel-rapl:1/name": "package-1", cap + "intel-rapl:1/max_energy_range_uj": "262143328850", cap + "intel-rapl:1/energy_uj": "5",
		cap + "intel-rapl:2/name": "psys", cap + "intel-rapl:2/max_energy_range_uj": "10000000", cap + "intel-rapl:2/energy_uj": "9000000",
	})
	return sys
}

func TestSources(t *testing.T) {
	sys := unplugged(t)
	got, err := Sources(sys)
	if err != nil {
		t.Fatal(err)
	}
	const onMains = "its status is Full; unplug the machine: on mains it does not supply the load"
	const noPower = "its driver reports neither power_now nor both current_now and voltage_now"
	of, still := "what the battery supplies", num(0)
	want := []Source{
		{Name: "battery:BAT0", Measures: of, Unit: "W", Resolution: 1e-6, Watts: num(7.5)},
		{Name: "battery:BAT1", Measures: of, Unit: "W", Unfit: onMains},
		{Name: "battery:BAT2", Measures: of, Unit: "W", Unfit: noPower},
		{Name: "rapl:intel-rapl:0", Measures: "package", Unit: "J", Resolution: 1e-6, Range: num(262143.32885), Watts: still},
		{Name: "rapl:intel-rapl:1", Measures: "package", Unit: "J", Resolution: 1e-6, Range: num(262143.32885), Watts: still},
		{Name: "rapl:intel-rapl:2", Measures: "psys", Unit: "J", Resolution: 1e-6, Range: num(10), Watts: still},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// A counter that is not there is said to be so, and hides no other.
	if err := os.Remove(filepath.Join(sys, "class/powercap/intel-rapl:1/energy_uj")); err != nil {
		t.Fatal(err)
	}
	got, err = Sources(sys)
	if err != nil {
		t.Fatal(err)
	}
	want[4].Watts = nil
	if want[4].Unfit = got[4].Unfit; !strings.HasSuffix(want[4].Unfit, "intel-rapl:1/energy_uj: no such file or directory") {
		t.Errorf("it is unfit for %q", want[4].Unfit)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOpenRefuses(t *testing.T) {
	sys := unplugged(t)
	for source, want := range map[string]string{
		"battery:BAT1":   "battery:BAT1 tells nothing: its status is Full; unplug the machine",
		"battery:BAT2":   "battery:BAT2 tells nothing: its driver reports neither",
		"battery:BAT3":   `no power source "battery:BAT3"; it has battery:BAT0, battery:BAT1, battery:BAT2, rapl:intel-rapl:0, `,
		"rapl:dram":      `no power source "rapl:dram"`,
		"rapl:package":   "rapl:intel-rapl:0 and rapl:intel-rapl:1 both measure package; name one of them",
		"BAT0":           `no power source "BAT0"`,
		"rapl:../../etc": `no power source`,
	} {
		if _, err := Open(sys, source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", source, err, want)
		}
	}
	if _, err := Open(t.TempDir(), "rapl:psys"); err == nil || !strings.Contains(err.Error(), "it has neither a battery nor RAPL") {
		t.Errorf("a machine without any: %v", err)
	}
}

func TestMeterOfAZone(t *testing.T) {
	sys := unplugged(t)
	const counter = "class/powercap/intel-rapl:2/energy_uj"
	for _, name := range []string{"rapl:psys", "rapl:intel-rapl:2"} {
		write(t, sys, map[string]string{counter: "9000000"})
		m, err := Open(sys, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			counter string
			joules  float64
		}{{"9000000", 0}, {"9500000", 0.5}, {"2500000", 3.5}} { // it wraps at 10 J
			write(t, sys, map[string]string{counter: step.counter})
			if got, err := m.Joules(); err != nil || got != step.joules {
				t.Errorf("%s: %g J, %v; want %g", name, got, err, step.joules)
			}
		}
	}
}

// A battery's energy is the area below its power.
func TestMeterOfABattery(t *testing.T) {
	sys := unplugged(t)
	now := time.Unix(1e9, 0)
	s := &supplied{sys: sys, name: "BAT0", now: func() time.Time { return now }}
	for _, step := range []struct {
		after  time.Duration
		uw     string
		joules float64
	}{
		{0, "7500000", 0},
		{2 * time.Second, "7500000", 15},
		{2 * time.Second, "12500000", 15 + 20}, // 10 W on average
		{time.Second / 2, "12500000", 35 + 6.25},
	} {
		now = now.Add(step.after)
		write(t, sys, map[string]string{"class/power_supply/BAT0/power_now": step.uw})
		if got, err := s.joules(); err != nil || got != step.joules {
			t.Errorf("%g J, %v; want %g", got, err, step.joules)
		}
	}
	write(t, sys, map[string]string{"class/power_supply/BAT0/status": "Charging"})
	if _, err := s.joules(); err == nil || !strings.Contains(err.Error(), "battery BAT0 tells nothing: its status is Charging") {
		t.Errorf("plugged in: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(sys, "class/power_supply/BAT0")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.joules(); err == nil || err.Error() != "battery BAT0 is gone" {
		t.Errorf("taken out: %v", err)
	}
}

func TestNothingToRead(t *testing.T) {
	sys := t.TempDir()
	r, err := NewRAPL(sys)
	if err != nil {
		t.Fatal(err)
	}
	if zones, err := r.Read(); zones != nil || err != nil {
		t.Errorf("RAPL: %v, %v", zones, err)
	}
	if batteries, err := Batteries(sys); batteries != nil || err != nil {
		t.Errorf("batteries: %v, %v", batteries, err)
	}
	if sources, err := Sources(sys); len(sources) != 0 || err != nil {
		t.Errorf("sources: %v, %v", sources, err)
	}
}
