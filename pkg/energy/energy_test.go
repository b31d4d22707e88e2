// SPDX-License-Identifier: Apache-2.0

package energy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		"BAT0": {"BAT0", num(7.5), num(72000)},
		"BAT1": {"BAT1", num(4), nil},
		"BAT2": {"BAT2", nil, nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
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
}
