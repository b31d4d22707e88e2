// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Energy counters are files that root alone may read, and the exporter has no capabilities: it still is their owner.
func TestExporterReadsRAPLWithoutCapabilities(t *testing.T) {
	class := t.TempDir()
	zone := filepath.Join(class, "powercap/intel-rapl:0")
	if err := os.MkdirAll(zone, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"name": "psys", "max_energy_range_uj": "1000000", "energy_uj": "5"} {
		if err := os.WriteFile(filepath.Join(zone, name), []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	// startExporter takes a program alone.
	program := filepath.Join(t.TempDir(), "mpcc")
	script := "#!/bin/sh\nexec"
	for _, word := range withClass(t, class).Args {
		script += " '" + word + "'"
	}
	if err := os.WriteFile(program, []byte(script+` "$@"`+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	url, pid, stop := startExporter(t, program)
	if got := capabilities(t, fmt.Sprintf("/proc/%d/status", pid))["CapEff"]; got != none {
		t.Errorf("the exporter has capabilities %s", got)
	}
	scrape := get(t, url+"/metrics")
	for _, want := range []string{
		`mpcc_host_energy_joules_total{name="psys",source="rapl",zone="intel-rapl:0"} 0`, `mpcc_collector_success{collector="rapl"} 1`,
	} {
		if !strings.Contains(scrape, want+"\n") {
			t.Errorf("no %s in\n%s", want, scrape)
		}
	}
	stop()
}
