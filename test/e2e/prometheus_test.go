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
	conn := n.connect(t, "dts", "reno")
	conn.stream()
	conn.join(t, 2)
	info, err := mptcp.ReadInfo(conn.client)
	if err != nil {
		t.Fatal(err)
	}
	token := fmt.Sprintf("%08x", info.Token)

	exporter := serve(t, n.client, exporterAddress, "/-/ready",
		os.Getenv("MPCC_BIN"), "exporter", "--web.listen-address", exporterAddress)
	rules := filepath.Join(os.Getenv("MPCC_DEPLOY"), "prometheus", "mpcc.rules.yml")
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	err = os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs: [{job_name: mpcc, static_configs: [{targets: ["%s"]}]}]
`, rules, exporterAddress), 0o644)
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
	prometheus.alerts(t)

	t.Run("promtool", func(t *testing.T) {
		_, scrape := exporter.get(t, "/metrics")
		promtool(t, scrape, "check", "metrics")
		promtool(t, "", "check", "rules", rules)
		promtool(t, "", "test", "rules", strings.TrimSuffix(rules, ".yml")+".test.yml")
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

// serve starts a server and waits until the path answers with success.
func serve(t *testing.T, host *lab.Host, address, ready, program string, args ...string) *server {
	t.Helper()
	s := &server{address: address, cmd: host.Command(t.Context(), program, args...)}
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.client.Timeout = 10 * time.Second
	s.client.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = host.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
	}
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

// alerts makes sure that Prometheus evaluates the alert rules.
func (s *server) alerts(t *testing.T) {
	t.Helper()
	var body string
	ok := eventually(time.Minute, func() bool {
		_, body = s.get(t, "/api/v1/rules")
		var answer struct {
			Data struct {
				Groups []struct{ Rules []struct{ Health string } }
			}
		}
		if json.Unmarshal([]byte(body), &answer) != nil || len(answer.Data.Groups) != 1 {
			return false
		}
		rules := answer.Data.Groups[0].Rules
		for _, rule := range rules {
			if rule.Health != "ok" {
				return false
			}
		}
		return len(rules) > 0
	})
	if !ok {
		t.Errorf("alert rules: %s", body)
	}
}
