// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/pkg/exporter"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

func newExporterCommand() *cobra.Command {
	config := exporter.Config{Version: version, Options: exporter.Options{Sys: "/sys"}}
	c := &cobra.Command{
		Use:   "exporter",
		Short: "Serve what the maps hold to Prometheus",
		Long: `exporter serves the maps at /metrics, read anew at each scrape; nothing loaded is nothing
to show, and no failure. docs/metrics.md lists the metrics.

It gives up all its capabilities once it listens. It has to stay root: the maps are root's.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if config.MaxSeries < 0 {
				return usageError("--subflow.max-series: %d is below 0", config.MaxSeries)
			}
			config.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, unix.SIGTERM)
			defer stop()
			config.Read = func() (*telemetry.Snapshot, error) { return telemetry.Take(ctx) }
			return exporter.Run(ctx, config)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&config.Listen, "web.listen-address", []string{":9956"}, "address to listen on, may be repeated")
	f.BoolVar(&config.SystemdSocket, "web.systemd-socket", false, "listen on the sockets that systemd hands over")
	f.StringVar(&config.WebConfig, "web.config.file", "", "file that turns on TLS and basic auth, as all Prometheus exporters take it")
	f.IntVar(&config.MaxSeries, "subflow.max-series", 2000, "at most so many series of single subflows, the busiest first; 0 for none")
	f.DurationVar(&config.MinAge, "subflow.min-age", time.Second, "age from which on a subflow has series")
	return c
}
