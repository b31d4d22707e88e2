// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"debug/buildinfo"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/config"
	"github.com/mpcc/mpcc/pkg/exporter"
	"github.com/mpcc/mpcc/test/hosts"
	"github.com/mpcc/mpcc/test/said"
)

// buildMpcc builds mpcc as go install does, but for the flags, and returns where it is.
func buildMpcc(t *testing.T, cgo string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "mpcc")
	c := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, flags...), "-o", program, ".")...)
	c.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value != cgo {
			t.Fatalf("built with CGO_ENABLED=%s, want %s", s.Value, cgo)
		}
	}
	return program
}

// Built with cgo and without, the exporter serves, and has dropped its capabilities on every thread for good. It
// shows the version that make build has set or, without one, the version that go build has noted.
func TestExporterOfBothBuilds(t *testing.T) {
	if own := capabilities(t, "/proc/self/status"); own["CapEff"] == none {
		t.Fatal("there are no capabilities to give up: run this test as root")
	}
	host := announcer(t)
	for _, test := range []struct{ cgo, release string }{{"0", "v1.2.3-test"}, {"1", ""}} {
		t.Run("CGO_ENABLED="+test.cgo, func(t *testing.T) {
			program := buildMpcc(t, test.cgo, "-ldflags=-X main.release="+test.release)
			want := test.release
			if want == "" {
				info, err := buildinfo.ReadFile(program)
				if err != nil {
					t.Fatal(err)
				}
				want = versionOf(info)
			}
			out, err := exec.CommandContext(t.Context(), program, "version").Output()
			if err != nil || !strings.HasPrefix(string(out), "mpcc "+want+" (go") {
				t.Errorf("mpcc version: %q, %v; want %s", out, err, want)
			}

			url, pid, stop := startExporter(t, program)
			var scrapes sync.WaitGroup
			for range 5 { // requests make the runtime start threads
				scrapes.Go(func() {
					if scrape := get(t, url+"/metrics"); !strings.Contains(scrape, fmt.Sprintf("version=%q} 1\n", want)) {
						t.Errorf("mpcc_build_info does not tell version %s in\n%s", want, scrape)
					}
				})
			}
			scrapes.Wait()
			scrape := get(t, url+"/metrics")
			for _, line := range []string{
				`mpcc_collector_success{collector="mptcp"} 1`,
				fmt.Sprintf(`mpcc_pm_flagged_endpoints{flag="signal",netns=%q} 1`, host.Namespace()),
			} {
				if !strings.Contains(scrape, line+"\n") {
					t.Errorf("no %s without capabilities in\n%s", line, scrape)
				}
			}
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
			if err != nil || len(threads) < 2 {
				t.Fatalf("threads of %d: %v, %v", pid, threads, err)
			}
			bounding := capabilities(t, "/proc/self/status")["CapBnd"]
			for _, thread := range threads {
				got := capabilities(t, thread)
				for name, want := range map[string]string{
					"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none, "CapBnd": bounding, "NoNewPrivs": "1",
				} {
					if got[name] != want {
						t.Errorf("%s: %s is %s, want %s", thread, name, got[name], want)
					}
				}
			}
			stop()
		})
	}
}

// announcer is a network namespace with an endpoint of MPTCP that is announced.
func announcer(t *testing.T) *lab.Host {
	t.Helper()
	_, all := hosts.New(t, "announcer")
	endpoint := lab.MPTCPEndpoint{Addr: netip.MustParseAddr("127.0.0.1"), Signal: true}
	if err := all[0].MPTCP(lab.MPTCPLimits{Subflows: 2}, endpoint); err != nil {
		t.Fatal(err)
	}
	return all[0]
}

const none = "0000000000000000"

// capabilities returns the fields of a /proc/PID/status that tell a thread's privileges.
func capabilities(t *testing.T, status string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(status)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^(Cap\w+|NoNewPrivs):\t(\w+)$`).FindAllStringSubmatch(string(text), -1) {
		fields[row[1]] = row[2]
	}
	return fields
}

// startExporter starts an exporter on a port of its own choice. stop ends it as systemd does.
func startExporter(t *testing.T, program string) (url string, pid int, stop func()) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, "exporter", "--web.listen-address", "127.0.0.1:0")
	log, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(io.TeeReader(log, t.Output()))
	for url == "" {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("the exporter does not say where it listens: %v, %v", err, c.Wait())
		}
		if match := regexp.MustCompile(`"Listening on" address=(\S+)`).FindStringSubmatch(line); match != nil {
			url = "http://" + match[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	return url, c.Process.Pid, func() {
		t.Helper()
		if err := c.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: status %d: %s, %v", url, resp.StatusCode, body, err)
	}
	return string(body)
}

// The exporter serves on a socket that somebody else listens on, as systemd hands it over, and on no other.
func TestExporterOnInheritedSocket(t *testing.T) {
	program := buildMpcc(t, "0")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, args := range []string{"", "--web.systemd-socket"} {
		c := exec.CommandContext(t.Context(), "sh", "-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec "+program+" exporter --web.listen-address nowhere "+args)
		c.ExtraFiles = []*os.File{socket}
		c.Stderr = t.Output()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// What connects before it serves waits in the socket's queue.
		if scrape := get(t, "http://"+listener.Addr().String()+"/metrics"); !strings.Contains(scrape, "\nmpcc_build_info{") {
			t.Errorf("%s: it serves\n%s", args, scrape)
		}
		if err := c.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("%s: after SIGTERM: %v", args, err)
		}
	}
}

// What no flag says comes from the configuration.
func TestExporterTakesItsPartOfTheConfiguration(t *testing.T) {
	file, err := config.Parse("c.yaml", []byte("exporter: {listen: [':1', ':2'], web_config: web.yaml, max_series: 0, min_age: 2s}"))
	if err != nil {
		t.Fatal(err)
	}
	type taken struct {
		Addresses []string
		WebConfig string
		MaxSeries int
		MinAge    time.Duration
	}
	for _, c := range []struct {
		args []string
		want taken
	}{
		{nil, taken{[]string{":1", ":2"}, "web.yaml", 0, 2 * time.Second}},
		{[]string{"--subflow.max-series=7", "--web.listen-address=:3"}, taken{[]string{":3"}, "web.yaml", 7, 2 * time.Second}},
		{[]string{"--web.config.file=own.yaml", "--subflow.min-age=3s"}, taken{[]string{":1", ":2"}, "own.yaml", 0, 3 * time.Second}},
	} {
		command := newExporterCommand()
		if err := command.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		var got taken
		got.Addresses, _ = command.Flags().GetStringSlice("web.listen-address")
		got.WebConfig, _ = command.Flags().GetString("web.config.file")
		got.MaxSeries, _ = command.Flags().GetInt("subflow.max-series")
		got.MinAge, _ = command.Flags().GetDuration("subflow.min-age")
		settings := exporter.Config{WebConfig: got.WebConfig}
		settings.MaxSeries, settings.MinAge = got.MaxSeries, got.MinAge
		fillIn(command, file.Exporter, &got.Addresses, &settings)
		got.WebConfig, got.MaxSeries, got.MinAge = settings.WebConfig, settings.MaxSeries, settings.MinAge
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.args, diff)
		}
	}
}

// A port that is taken is said with what to do.
func TestExporterPortTaken(t *testing.T) {
	taken, err := listenOn([]string{"127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer taken[0].Close()
	address := taken[0].Addr().String()
	_, err = listenOn([]string{address})
	said.InALine(t, err, "listen tcp "+address+": bind: address already in use; another exporter may be running there, or give another")
}
