// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	buildinfo "github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/mpcc/mpcc/pkg/exporter"
)

func newExporterCommand() *cobra.Command {
	var config exporter.Config
	var addresses []string
	var systemdSockets bool
	c := &cobra.Command{
		Use:   "exporter",
		Short: "Serve what the maps hold to Prometheus",
		Long: `exporter serves at /metrics what mpcc's pinned maps hold, read anew at each scrape. While
nothing is loaded the scrape has no series of connections; that is no error. docs/metrics.md lists the
metrics.

It runs as root, which owns the maps, and gives up all of root's capabilities once it listens.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if config.MaxSeries < 0 {
				return usageError("--subflow.max-series: %d is below 0", config.MaxSeries)
			}
			config.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			buildinfo.Version = version
			listen := func() ([]net.Listener, error) { return listenOn(addresses) }
			if systemdSockets {
				listen = systemdListeners
			}
			listeners, err := listen()
			if err != nil {
				return err
			}
			if err := dropCapabilities(); err != nil {
				return err
			}
			return exporter.Serve(c.Context(), listeners, config)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&addresses, "web.listen-address", []string{":9956"}, "address to listen on, may be repeated")
	f.BoolVar(&systemdSockets, "web.systemd-socket", false, "listen on the sockets that systemd hands over instead")
	f.StringVar(&config.WebConfig, "web.config.file", "", "file that turns on TLS and basic auth, as all Prometheus exporters take it")
	f.IntVar(&config.MaxSeries, "subflow.max-series", 2000, "most series of single subflows in a scrape, the busiest subflows first; 0 for none")
	f.DurationVar(&config.MinAge, "subflow.min-age", time.Second, "age at which a subflow gets series of its own")
	return c
}

func listenOn(addresses []string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func systemdListeners() ([]net.Listener, error) {
	listeners, err := activation.Listeners()
	if err == nil && len(listeners) == 0 {
		err = errors.New("systemd handed no socket over: --web.systemd-socket needs a .socket unit that starts the exporter")
	}
	return listeners, err
}

// dropCapabilities drops the capabilities of every thread for good: no program that it executes gets them
// back. Reading the maps takes none: the kernel asks for CAP_BPF only to make maps and programs. To open a
// pin and read the map takes the permissions of the pin's file, which root still has as its owner.
func dropCapabilities() error {
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	if err := cap.NewSet().SetProc(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
