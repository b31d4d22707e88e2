// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Config of a server.
type Config struct {
	Options
	// WebConfig is the file that turns on TLS and basic auth, in the format of all Prometheus exporters; ""
	// for neither.
	WebConfig string
}

const (
	maxScrapes   = 8  // at a time; two Prometheus servers and somebody who looks are three
	maxAnswers   = 32 // to scrapes under way at a time, those included that slow clients have not yet taken
	shutdownTime = 10 * time.Second
)

// Serve answers HTTP on the listeners and closes them in the end: /metrics, /-/healthy, /-/ready and a page
// that shows the live subflows. /metrics also has the metrics of the Go runtime and of the process, and mpcc_build_info,
// which is what the main package has put into github.com/prometheus/common/version.
//
// Once ctx ends it lets the requests under way finish, and returns nil, or an error where that takes longer
// than 10 s. It returns an error at once where the maps can't be read, and as soon as it can't serve.
func Serve(ctx context.Context, listeners []net.Listener, c Config) error {
	for _, l := range listeners {
		defer l.Close()
	}
	collector, err := NewCollector(c.Options)
	if err != nil {
		return err
	}
	if err := collector.ready(ctx); err != nil {
		return err
	}
	server := newServer(newHandler(collector))
	stopped := make(chan error, 1)
	forget := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.Background(), shutdownTime)
		defer cancel()
		stopped <- server.Shutdown(end)
	})
	err = web.ServeMultiple(listeners, server, &web.FlagConfig{WebConfigFile: &c.WebConfig}, collector.options.Log)
	if !forget() {
		return <-stopped
	}
	return err
}

// newServer returns a server that slow clients cannot hold.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
}

// ready returns nil where the maps can be read or nothing is loaded.
func (c *Collector) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	return c.read(ctx, telemetry.Selection{}, func(*telemetry.Snapshot) {})
}

func newHandler(c *Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, versioncollector.NewCollector("mpcc"),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	mux := http.NewServeMux()
	p := newPage(c)
	p.handle(mux)
	mux.Handle("GET /metrics", few(maxAnswers, metricsHandler(registry, c.options.Log)))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "healthy")
	})
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := p.now(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}

// metricsHandler serves what can be gathered: a series that fails is left out and logged, and spoils no other.
func metricsHandler(registry *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            registry,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             readTime + time.Second,
	})
}
