// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mpcc/mpcc/pkg/exporter"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// read stands for a machine with one subflow. Leave Options.Read empty to read the machine you are on.
func read(context.Context) (*telemetry.Snapshot, error) {
	return &telemetry.Snapshot{Subflows: []telemetry.Subflow{{
		Token: 0xab12cd, SubflowID: 1, CC: "dts", NetnsName: "phone", Interface: "wlan0",
		Cwnd: 42, SRTT: telemetry.Micros(50 * time.Millisecond), Age: telemetry.Seconds(10 * time.Second),
	}}}, nil
}

// A program that has a registry of its own adds the collector to it.
func ExampleNewCollector() {
	collector, err := exporter.NewCollector(exporter.Options{Read: read, MaxSeries: 2000, MinAge: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() == "mpcc_subflow_cwnd_packets" {
			for _, label := range family.Metric[0].Label {
				fmt.Println(label.GetName(), "=", label.GetValue())
			}
			fmt.Println(family.Metric[0].Gauge.GetValue(), "packets")
		}
	}
	// Output:
	// cc = dts
	// iface = wlan0
	// netns = phone
	// subflow = 1
	// token = 00ab12cd
	// 42 packets
}

// A program that wants the whole server listens where it likes, and ends the server by its context.
func ExampleServe() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	served := make(chan error)
	go func() {
		served <- exporter.Serve(ctx, []net.Listener{listener}, exporter.Config{
			Options: exporter.Options{Read: read, MaxSeries: 2000},
		})
	}()

	answer, err := http.Get("http://" + listener.Addr().String() + "/metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	scrape, err := io.ReadAll(answer.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(scrape)) {
		if strings.HasPrefix(line, "mpcc_subflow_srtt_seconds{") {
			fmt.Print(line)
		}
	}

	end()
	fmt.Println("ended with", <-served)
	// Output:
	// mpcc_subflow_srtt_seconds{cc="dts",iface="wlan0",netns="phone",subflow="1",token="00ab12cd"} 0.05
	// ended with <nil>
}
