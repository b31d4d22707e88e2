// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func ask(h http.Handler, path string) (status int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// Scrapes beyond the number that the server takes at once are refused immediately. Those that it takes share one
// reading of everything.
func TestScrapesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readings := 0
		let := make(chan struct{})
		c := collector(t, t.TempDir(), 0, func(context.Context) (*telemetry.Snapshot, error) {
			readings++
			<-let
			return snapshot(), nil
		})
		handler := newHandler(c)
		statuses := make(chan int)
		for range 3 * maxScrapes {
			go func() {
				status, body := ask(handler, "/metrics")
				if status == http.StatusOK && !strings.Contains(body, "\nmpcc_lost_subflows_total 7\n") {
					t.Errorf("a scrape without what was read for another:\n%s", body)
				}
				statuses <- status
			}()
		}
		for range 2 * maxScrapes {
			if status := <-statuses; status != http.StatusServiceUnavailable {
				t.Errorf("status %d beyond the limit", status)
			}
		}
		synctest.Wait()
		close(let)
		for range maxScrapes {
			if status := <-statuses; status != http.StatusOK {
				t.Errorf("status %d within the limit", status)
			}
		}
		if readings != 1 {
			t.Errorf("the maps were read %d times for scrapes at one time", readings)
		}
		if status, _ := ask(handler, "/metrics"); status != http.StatusOK || readings != 2 {
			t.Errorf("status %d after %d readings: the next scrape reads anew", status, readings)
		}
	})
}

// A scrape that cannot read the maps in time says so and has the rest; so does the one that waited for it.
func TestSlowMaps(t *testing.T) {
	sys := machine(t)
	synctest.Test(t, func(t *testing.T) {
		c := collector(t, sys, 0, func(ctx context.Context) (*telemetry.Snapshot, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		handler := newHandler(c)
		for range 2 {
			go func() {
				begun := time.Now()
				status, body := ask(handler, "/metrics")
				if took := time.Since(begun); status != http.StatusOK || took != readTime {
					t.Errorf("status %d after %v", status, took)
				}
				for _, line := range []string{
					`mpcc_collector_success{collector="telemetry"} 0`, `mpcc_collector_success{collector="battery"} 1`,
					`mpcc_host_battery_discharge_watts{battery="BAT0",source="battery"} 7.5`,
				} {
					if !strings.Contains(body, line+"\n") {
						t.Errorf("no %s in\n%s", line, body)
					}
				}
			}()
		}
		synctest.Wait()
		if status, body := ask(handler, "/-/ready"); status != http.StatusServiceUnavailable {
			t.Errorf("ready though the maps cannot be read: %d %s", status, body)
		}
	})
}

// A reader that does not even heed its context keeps nobody waiting, and spoils nothing else.
func TestStuckMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collector(t, t.TempDir(), 0, func(context.Context) (*telemetry.Snapshot, error) {
			time.Sleep(time.Hour)
			return nil, nil
		})
		handler := newHandler(c)
		begun := time.Now()
		status, body := ask(handler, "/metrics")
		if took := time.Since(begun); status != http.StatusOK || took > readTime ||
			!strings.Contains(body, `mpcc_collector_success{collector="telemetry"} 0`) || !strings.Contains(body, `mpcc_collector_success{collector="paths"} 1`) {
			t.Errorf("status %d after %v:\n%s", status, took, body)
		}
		begun = time.Now()
		status, _ = ask(handler, "/-/ready")
		if took := time.Since(begun); status != http.StatusServiceUnavailable || took > 10*time.Second {
			t.Errorf("ready: status %d after %v", status, took)
		}
		time.Sleep(time.Hour) // until the reader is done, as a bubble must be
	})
}

// Answers that slow clients have not taken yet count, too.
func TestFewAtATime(t *testing.T) {
	let := make(chan struct{})
	h := few(2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-let }))
	statuses := make(chan int)
	for range 3 {
		go func() {
			status, _ := ask(h, "/")
			statuses <- status
		}()
	}
	if status := <-statuses; status != http.StatusServiceUnavailable {
		t.Errorf("status %d of the third", status)
	}
	close(let)
	for range 2 {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("status %d of one of two", status)
		}
	}
	if status, _ := ask(h, "/"); status != http.StatusOK {
		t.Errorf("status %d afterwards", status)
	}
}

// pipes is a listener whose connections are pipes in this process.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client that does not end its request, or does not take the answer, is cut off, and others are served meanwhile.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes)
		server := newServer(newHandler(full(t)))
		served := make(chan struct{})
		go func() {
			_ = server.Serve(l)
			close(served)
		}()
		for request, most := range map[string]time.Duration{
			"GET /metrics HTTP/1.1\r\nHost":                10 * time.Second,
			"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n":     30 * time.Second,
			"GET / HTTP/1.1\r\nHost: a\r\n\r\n":            30 * time.Second,
			"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length:": 10 * time.Second,
		} {
			client, theirs := net.Pipe()
			l <- theirs
			if _, err := io.WriteString(client, request); err != nil {
				t.Fatal(err)
			}
			time.Sleep(most - time.Second)
			other, theirs := net.Pipe()
			l <- theirs
			if _, err := io.WriteString(other, "GET /-/healthy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(other); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK") {
				t.Errorf("meanwhile: %q, %v", answer, err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if _, err := io.WriteString(client, "x"); err == nil {
				t.Errorf("%q: still connected after %v", request, most)
			}
			client.Close()
		}
		close(l)
		<-served
	})
}

// failing is a collector of a program's own that cannot make its metric.
type failing struct{}

func (failing) Describe(chan<- *prometheus.Desc) {}
func (failing) Collect(out chan<- prometheus.Metric) {
	err := errors.New("broken")
	out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
}

// Only the series that cannot be made is missing, and that is counted.
func TestOneFailingSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(full(t), failing{})
	handler := metricsHandler(registry, logger(t))
	server := httptest.NewServer(handler)
	defer server.Close()
	names := slices.Collect(maps.Keys(gather(t, full(t))))
	if err := testutil.ScrapeAndCompare(server.URL, strings.NewReader(golden(t)), names...); err != nil {
		t.Error(err)
	}
	_, body := ask(handler, "/metrics")
	if want := `promhttp_metric_handler_errors_total{cause="gathering"} 1`; !strings.Contains(body, want+"\n") {
		t.Errorf("no %s in\n%s", want, body)
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// If the maps may not be read, Serve returns that at the start, and closes the listeners.
func TestServeUnreadable(t *testing.T) {
	l := listener(t)
	want := errors.New("not permitted")
	err := Serve(t.Context(), []net.Listener{l}, Config{Options: Options{
		Read: func(context.Context) (*telemetry.Snapshot, error) { return nil, want },
		Sys:  t.TempDir(),
	}})
	if !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

// A scrape under way when the server is told to end still gets its answer.
func TestServeEndsWell(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	started := false
	l := listener(t)
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, []net.Listener{l}, Config{Options: Options{
			Read: func(context.Context) (*telemetry.Snapshot, error) {
				if started { // the first time is at the start
					end()
					time.Sleep(100 * time.Millisecond)
				}
				started = true
				return snapshot(), nil
			},
			Sys: machine(t), Log: logger(t),
		}})
	}()
	resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "\nmpcc_lost_subflows_total 7\n") {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}
