// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/test/loaded"
)

// A scrape of three connections has as many series as docs/fleet.md counts.
func TestHostSeries(t *testing.T) {
	loaded.Turn(t)
	load(t, "dts")
	n := newTwoPaths(t, [2]lab.Shape{})
	const connections = 3
	for range connections {
		c := n.connect(t, "dts", "reno")
		c.stream()
		c.join(t, 2)
	}
	count := func(maxSeries string) (of map[string]int) {
		t.Helper()
		exporter := serve(t, n.client, exporterAddress, "/-/ready", os.Getenv("MPCC_BIN"), "exporter",
			"--web.listen-address", exporterAddress, "--subflow.min-age", "0s", "--subflow.max-series", maxSeries)
		_, scrape := exporter.get(t, "/metrics")
		if err := exporter.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = exporter.cmd.Wait()
		of = map[string]int{}
		for line := range strings.Lines(scrape) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			of["all"]++
			name := regexp.MustCompile(`^\w+`).FindString(line)
			of[name]++
			switch {
			case regexp.MustCompile(`^(go|process|promhttp)_|^mpcc_build_info`).MatchString(name):
				of["the exporter's process"]++
			case strings.Contains(line, `,token="`):
				of["subflow"]++
			case strings.Contains(line, `{cc="`):
				of["aggregate"]++
			case strings.HasPrefix(name, "mpcc_host_"):
				of["RAPL zone or battery"]++
			case strings.Contains(line, `netns="`):
				of["network namespace"]++
			default:
				of["the exporter"]++
			}
		}
		return of
	}

	text, err := os.ReadFile(filepath.Join(os.Getenv("MPCC_DEPLOY"), "../docs/fleet.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := func(what string) int {
		t.Helper()
		row := regexp.MustCompile(`(?m)^\| ` + what + `[^|]*\| (\d+)`).FindStringSubmatch(string(text))
		if row == nil {
			t.Fatalf("docs/fleet.md does not count the series of %s", what)
		}
		n, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	netstat, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^MPTcpExt: ([A-Z].*)$`).FindStringSubmatch(string(netstat))
	if names == nil {
		t.Fatal("the kernel has no counters of MPTCP")
	}
	counters := len(strings.Fields(names[1])) - 1 // that of connections is a metric of its own

	var got map[string]int
	all := func() bool {
		got = count("1000")
		return got["mpcc_subflow_info"] == 2*connections
	}
	if !eventually(20*time.Second, all) {
		t.Fatalf("%d subflows in the scrape, want %d", got["mpcc_subflow_info"], 2*connections)
	}
	exact := map[string]int{
		"the exporter":      documented("the exporter "),
		"aggregate":         got["mpcc_subflows_opened_total"] * documented("aggregate"),
		"network namespace": got["mpcc_pm_endpoints"] * (documented("network namespace") + counters),
	}
	sum := got["the exporter's process"] + got["subflow"] + got["RAPL zone or battery"]
	for what, want := range exact {
		if sum += want; got[what] != want {
			t.Errorf("%d series of %s, docs/fleet.md counts %d", got[what], what, want)
		}
	}
	if got["all"] != sum {
		t.Errorf("%d series, docs/fleet.md counts %d", got["all"], sum)
	}
	if got["mpcc_subflows_opened_total"] != 2 || got["mpcc_pm_endpoints"] == 0 {
		t.Errorf("%d aggregates, want 2; %d network namespaces", got["mpcc_subflows_opened_total"], got["mpcc_pm_endpoints"])
	}
	if most := documented("the exporter's process"); got["the exporter's process"] > most {
		t.Errorf("%d series of the exporter's process, docs/fleet.md counts %d at most", got["the exporter's process"], most)
	}
	if each := documented("subflow"); got["subflow"] <= 2*connections*each/2 || got["subflow"] > 2*connections*each {
		t.Errorf("%d series of %d subflows, docs/fleet.md counts %d at most for each", got["subflow"], 2*connections, each)
	}
	if without := count("0"); without["subflow"] != 0 || without["aggregate"] != got["aggregate"] {
		t.Errorf("without series of subflows there are %d of them, and %d of aggregates", without["subflow"], without["aggregate"])
	}
}
