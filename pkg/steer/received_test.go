// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

// What a socket has received is found by its addresses, at most once a second.
func TestReceived(t *testing.T) {
	for _, loopback := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", loopback)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		var r received
		at := func(when time.Time) uint64 {
			t.Helper()
			if err := r.look(when); err != nil {
				t.Fatal(err)
			}
			return r.of(telemetry.Subflow{
				Local:  netip.MustParseAddrPort(client.LocalAddr().String()),
				Remote: netip.MustParseAddrPort(client.RemoteAddr().String()),
			})
		}
		begin := time.Unix(1, 0)
		before := at(begin)
		if _, err := server.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		soon, later := at(begin.Add(receivedInterval-1)), at(begin.Add(receivedInterval))
		if before != 0 || soon != 0 || later != 1000 {
			t.Errorf("%s: received %d bytes, then %d and %d; want 0, 0 and 1000", loopback, before, soon, later)
		}
	}
}
