// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	buildinfo "github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
)

// Config of the exporter as a program.
type Config struct {
	Options
	Listen        []string // addresses, such as :9956
	SystemdSocket bool     // listen on what systemd hands over instead
	WebConfig     string   // file for TLS and basic auth, "" without
	Version       string
}

const shutdownTime = 10 * time.Second

// Run serves until ctx ends, then lets the scrapes under way finish. Once it listens it gives up all
// capabilities of the process, for good.
func Run(ctx context.Context, c Config) error {
	listeners, err := c.listen()
	if err != nil {
		return err
	}
	for _, l := range listeners {
		defer l.Close()
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if _, err := c.Read(); err != nil {
		return err
	}
	handler, err := c.handler()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}

	stopped := make(chan error, 1)
	forget := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.Background(), shutdownTime)
		defer cancel()
		stopped <- server.Shutdown(end)
	})
	err = web.ServeMultiple(listeners, server, &web.FlagConfig{WebConfigFile: &c.WebConfig}, c.Log)
	if !forget() {
		return <-stopped
	}
	return err
}

func (c Config) listen() ([]net.Listener, error) {
	if c.SystemdSocket {
		listeners, err := activation.Listeners()
		if err == nil && len(listeners) == 0 {
			err = errors.New("systemd handed no socket over: --web.systemd-socket needs a .socket unit that starts the exporter")
		}
		return listeners, err
	}
	var listeners []net.Listener
	for _, address := range c.Listen {
		l, err := net.Listen("tcp", address)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func (c Config) handler() (http.Handler, error) {
	collector, err := NewCollector(c.Options)
	if err != nil {
		return nil, err
	}
	buildinfo.Version = c.Version
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, versioncollector.NewCollector("mpcc"),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	landing, err := web.NewLandingPage(web.LandingConfig{
		Name:        "mpcc exporter",
		Description: "Multipath TCP congestion controls and packet schedulers: subflows, totals, modelled energy",
		Version:     c.Version,
		Profiling:   "false",
		Links: []web.LandingLinks{
			{Address: "metrics", Text: "Metrics"},
			{Address: "-/healthy", Text: "Healthy", Description: "the exporter runs"},
			{Address: "-/ready", Text: "Ready", Description: "the maps can be read, or nothing is loaded"},
		},
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", landing)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelError),
	}))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "healthy")
	})
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := c.Read(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux, nil
}
