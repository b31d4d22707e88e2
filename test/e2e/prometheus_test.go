// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

const (
	exporterAddress   = "127.0.0.1:9956"
	prometheusAddress = "127.0.0.1:9090"
)

// A real Prometheus scrapes the exporter while a connection runs.
func TestOneKernelPrometheus(t *testing.T) {
	load(t, "dts", "minrtt")
	n := newTwoPaths(t, [2]lab.Shape{
		{Rate: 10e6, Delay: 10 * time.Millisecond}, {Rate: 10e6, Delay: 20 * time.Millisecond},
	})
	mpcc(t, "load", "minrtt", "--default", "--netns", n.client.Namespace())
	wlan := n.paths[0].Interface(n.client)
	mpcc(t, "energy", "set", wlan, "wifi-2012", "--netns", n.client.Namespace())
	mpcc(t, "path", "set", wlan, "--rank", "1", "--quota", "1G", "--netns", n.client.Namespace())
	conn := n.connect(t, "dts", "reno")
	conn.stream()
	conn.join(t, 2)
	info, err := mptcp.ReadInfo(conn.client)
	if err != nil {
		t.Fatal(err)
	}
	token := fmt.Sprintf("%08x", info.Token)

	exporter := serve(t, n.client, exporterAddress, "/-/ready",
		os.Getenv("MPCC_BIN"), "exporter", "--web.listen-address", exporterAddress, "--subflow.no-peer-addresses")
	deployed := func(file string) string { return filepath.Join(os.Getenv("MPCC_DEPLOY"), "prometheus", file) }
	rules := []string{deployed("mpcc.rules.yml"), deployed("mpcc.fleet.rules.yml")}
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	err = os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs: [{job_name: mpcc, static_configs: [{targets: ["%s"], labels: {site: here}}]}]
`, strings.Join(rules, ", "), exporterAddress), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	prometheus := serve(t, n.client, prometheusAddress, "/-/ready",
		"prometheus", "--config.file", config, "--storage.tsdb.path", t.TempDir(),
		"--web.listen-address", prometheusAddress, "--enable-feature=native-histograms")

	// Both subflows, by the token that the kernel gave.
	for _, metric := range []string{"mpcc_subflow_cwnd_packets", "mpcc_subflow_srtt_seconds", "mpcc_subflow_info"} {
		var subflows []string
		for _, sample := range prometheus.query(t, metric, 2) {
			if sample.Metric["token"] != token || sample.Metric["cc"] != "dts" || sample.Metric["netns"] != n.client.Namespace() {
				t.Errorf("%s: %v, want token %s", metric, sample.Metric, token)
			}
			subflows = append(subflows, sample.Metric["subflow"])
		}
		slices.Sort(subflows)
		if !slices.Equal(subflows, []string{"1", "2"}) {
			t.Errorf("%s: subflows %v", metric, subflows)
		}
	}
	prometheus.query(t, `up{job="mpcc"} == 1`, 1)
	prometheus.query(t, `rate(mpcc_acked_bytes_total{cc="dts"}[10s]) > 1e5`, 2)
	// As a native histogram, which has no series of buckets.
	prometheus.query(t, `histogram_quantile(0.5, rate(mpcc_srtt_seconds{cc="dts"}[10s])) > 0.01`, 2)
	prometheus.query(t, `mpcc_sched_connections_active{scheduler="minrtt",netns="`+n.client.Namespace()+`"} == 1`, 1)
	prometheus.query(t, `rate(mpcc_sched_decisions_total{scheduler="minrtt"}[10s]) > 1`, 1)
	prometheus.query(t, `rate(mpcc_sched_assigned_bytes_total{scheduler="minrtt"}[10s]) > 1e5`, 1)
	prometheus.query(t, `mpcc_pm_subflows_limit{netns="`+n.client.Namespace()+`"} > 0`, 1)
	prometheus.query(t, `mpcc_mptcp_events_total{netns="`+n.client.Namespace()+`",event="MPJoinSynAckRx"} > 0`, 1)
	prometheus.rules(t)
	t.Run("dashboard", prometheus.dashboard)

	t.Run("promtool", func(t *testing.T) {
		_, scrape := exporter.get(t, "/metrics")
		promtool(t, scrape, "check", "metrics")
		promtool(t, "", "check", "config", deployed("prometheus.yml"))
		for _, file := range rules {
			promtool(t, "", "check", "rules", file)
			promtool(t, "", "test", "rules", strings.TrimSuffix(file, ".yml")+".test.yml")
		}
	})

	t.Run("no-peer-addresses", func(t *testing.T) {
		for _, path := range []string{"/metrics", "/", "/subflows.json"} {
			_, body := exporter.get(t, path)
			for i, link := range n.paths {
				local, remote := link.Addr(n.client).String(), link.Addr(n.server).String()
				if !strings.Contains(body, local) || strings.Contains(body, remote) {
					t.Errorf("%s on path %d: want %s and no %s in\n%s", path, i, local, remote, body)
				}
			}
		}
	})

	t.Run("capabilities", func(t *testing.T) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", exporter.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(status), "\nCapEff:\t0000000000000000\n") {
			t.Errorf("the exporter has kept capabilities:\n%s", status)
		}
	})

	if err := exporter.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := exporter.cmd.Wait(); err != nil {
		t.Errorf("exporter after SIGTERM: %v\n%s", err, exporter.log.String())
	}
}

// promtool runs Debian's promtool, which must have nothing to say against its input.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// server is an HTTP server of its own process on a host of the lab.
type server struct {
	address string
	cmd     *lab.Cmd
	log     bytes.Buffer
	client  http.Client
}

// dialsFrom connects in the host's network namespace.
func dialsFrom(host *lab.Host) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = host.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
	}
}

// serve starts a server and waits until the path answers with success.
func serve(t *testing.T, host *lab.Host, address, ready, program string, args ...string) *server {
	t.Helper()
	s := &server{address: address, cmd: host.Command(t.Context(), program, args...)}
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.client.Timeout = 10 * time.Second
	s.client.Transport = dialsFrom(host)
	up := eventually(time.Minute, func() bool {
		resp, err := s.client.Get("http://" + address + ready)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if !up {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		t.Fatalf("%s does not serve %s:\n%s", program, address, s.log.String())
	}
	return s
}

func (s *server) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	resp, err := s.client.Get("http://" + s.address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

type sample struct{ Metric map[string]string }

// query asks Prometheus until the answer has n samples.
func (s *server) query(t *testing.T, expr string, n int) []sample {
	t.Helper()
	var body string
	var answer struct{ Data struct{ Result []sample } }
	ok := eventually(time.Minute, func() bool {
		_, body = s.get(t, "/api/v1/query?query="+url.QueryEscape(expr))
		answer.Data.Result = nil
		return json.Unmarshal([]byte(body), &answer) == nil && len(answer.Data.Result) == n
	})
	if !ok {
		t.Errorf("%s: want %d samples, got %s", expr, n, body)
	}
	return answer.Data.Result
}

// mayBeEmpty are metrics of the dashboard that no machine of a test need have, or that it shows only when they are 1.
var mayBeEmpty = []string{
	"mpcc_host_energy_joules_total", "mpcc_host_battery_discharge_watts",
	"mpcc_path_quota_used_up", "mpcc_path_excluded", "mpcc_pm_userspace",
}

// dashboard asks all that the dashboard asks: its panels and its variables, with all hosts, namespaces, controls
// and connections chosen.
func (s *server) dashboard(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("MPCC_DEPLOY"), "grafana", "mpcc.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct{ List []struct{ Definition string } }
		Panels     []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$instance", ".*", "$netns", ".*", "$cc", ".*", "$token", ".*", "$__rate_interval", "10s")
	labelValues := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	asked := 0
	ask := func(what, expr string) {
		asked++
		filled := fill.Replace(expr)
		if strings.Contains(filled, "$") {
			t.Errorf("%s: a variable is left in %s", what, filled)
		}
		rare := slices.ContainsFunc(mayBeEmpty, func(metric string) bool { return strings.Contains(expr, metric) })
		var body string
		answered := eventually(time.Minute, func() bool { // a scrape may have failed on a busy machine
			_, body = s.get(t, "/api/v1/query?query="+url.QueryEscape(filled))
			var answer struct {
				Status string
				Data   struct{ Result []sample }
			}
			return json.Unmarshal([]byte(body), &answer) == nil && answer.Status == "success" && (rare || len(answer.Data.Result) > 0)
		})
		if !answered {
			t.Errorf("%s: %s: %s", what, filled, body)
		}
	}
	for _, v := range board.Templating.List {
		if parts := labelValues.FindStringSubmatch(v.Definition); parts != nil {
			ask("variable "+parts[2], fmt.Sprintf("count by (%s) (%s)", parts[2], parts[1]))
		}
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			ask(p.Title, target.Expr)
		}
	}
	if asked < 50 {
		t.Errorf("only %d queries were found in the dashboard", asked)
	}
}

// rules makes sure that Prometheus evaluates the rules of both files.
func (s *server) rules(t *testing.T) {
	t.Helper()
	var body string
	ok := eventually(time.Minute, func() bool {
		_, body = s.get(t, "/api/v1/rules")
		var answer struct {
			Data struct {
				Groups []struct{ Rules []struct{ Health string } }
			}
		}
		if json.Unmarshal([]byte(body), &answer) != nil || len(answer.Data.Groups) != 2 {
			return false
		}
		for _, group := range answer.Data.Groups {
			for _, rule := range group.Rules {
				if rule.Health != "ok" {
					return false
				}
			}
			if len(group.Rules) == 0 {
				return false
			}
		}
		return true
	})
	if !ok {
		t.Errorf("rules: %s", body)
	}
}
