// SPDX-License-Identifier: Apache-2.0

package mptcp_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/mpcc/mpcc/pkg/mptcp"
)

// Open a connection under lia, which mpcc has loaded, and see what its subflows do.
func ExampleDial() {
	server := netip.MustParseAddrPort("192.0.2.1:5001")
	conn, err := mptcp.Dial(context.Background(), server, mptcp.Options{CC: "lia"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	info, err := mptcp.ReadInfo(conn)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range info.Subflows {
		fmt.Printf("%v > %v: window of %d packets, RTT %d us\n", s.Local, s.Remote, s.TCP.Snd_cwnd, s.TCP.Rtt)
	}
}

// Keep every connection off an interface's address, as long as another one works.
func ExampleSetEndpointBackup() {
	dear := netip.MustParseAddr("198.51.100.1")
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range endpoints {
		if e.Addr == dear {
			if err := mptcp.SetEndpointBackup(e, true); err != nil {
				log.Fatal(err)
			}
		}
	}
}
