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

	"github.com/mpcc/mpcc/pkg/config"
	"github.com/mpcc/mpcc/pkg/exporter"
)

func newExporterCommand() *cobra.Command {
	var settings exporter.Config
	var addresses []string
	var systemdSockets bool
	c := &cobra.Command{
		Use:   "exporter",
		Short: "Serve what the maps hold to Prometheus",
		Long: `exporter serves at /metrics what mpcc's pinned maps hold, read anew at each scrape. While
nothing is loaded the scrape has no series of connections; that is no error. docs/metrics.md lists the
metrics. The page at / shows the live subflows in a browser.

What is not given as a flag comes from the exporter's part of /etc/mpcc/config.yaml, where there is such a file.

Where a .socket unit of systemd starts it, it listens on the sockets of that unit alone.

It runs as root, which owns the maps, and gives up all of root's capabilities once it listens.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			file, err := declared(c)
			if err != nil {
				return err
			}
			fillIn(c, file.Exporter, &addresses, &settings)
			if settings.MaxSeries < 0 {
				return usageError("--subflow.max-series: %d is below 0", settings.MaxSeries)
			}
			settings.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			buildinfo.Version = version
			listeners, err := activation.Listeners()
			switch {
			case err != nil:
			case len(listeners) > 0:
			case systemdSockets:
				err = errors.New("systemd handed no socket over: --web.systemd-socket needs a .socket unit that starts the exporter")
			default:
				listeners, err = listenOn(addresses)
			}
			if err != nil {
				return err
			}
			namespaces, err := exporter.OpenNamespaces()
			if err != nil {
				return err
			}
			defer namespaces.Close()
			settings.Managers = namespaces.Read
			if err := dropCapabilities(); err != nil {
				return err
			}
			return exporter.Serve(c.Context(), listeners, settings)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&addresses, "web.listen-address", []string{":9956"}, "address to listen on, may be repeated")
	f.BoolVar(&systemdSockets, "web.systemd-socket", false, "fail where systemd hands no sockets over; where it does, it listens on these in any case")
	f.StringVar(&settings.WebConfig, "web.config.file", "", "file that turns on TLS and basic auth, as all Prometheus exporters take it")
	f.IntVar(&settings.MaxSeries, "subflow.max-series", 2000, "most series of single subflows in a scrape, the busiest subflows first; 0 for none")
	f.BoolVar(&settings.NoPeerAddresses, "subflow.no-peer-addresses", false, "leave the peers' addresses out, of metrics and of the page at /")
	f.DurationVar(&settings.MinAge, "subflow.min-age", time.Second, "age at which a subflow gets series of its own")
	configFlag(c)
	return c
}

// fillIn takes from the file what no flag says.
func fillIn(c *cobra.Command, file config.Exporter, addresses *[]string, settings *exporter.Config) {
	given := func(flag string) bool { return c.Flags().Changed(flag) }
	if len(file.Listen) > 0 && !given("web.listen-address") {
		*addresses = file.Listen
	}
	if file.WebConfig != "" && !given("web.config.file") {
		settings.WebConfig = file.WebConfig
	}
	if file.MaxSeries != nil && !given("subflow.max-series") {
		settings.MaxSeries = *file.MaxSeries
	}
	if !given("subflow.no-peer-addresses") {
		settings.NoPeerAddresses = file.NoPeerAddresses
	}
	if file.MinAge != nil && !given("subflow.min-age") {
		settings.MinAge = time.Duration(*file.MinAge)
	}
}

func listenOn(addresses []string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w; another exporter may be running there, or give another --web.listen-address", err)
		}
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
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
