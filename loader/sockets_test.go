// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"net/netip"
	"os"
	"testing"

	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// This process's sockets are in the list, listeners and connections, and those of TCP are not.
func TestSockets(t *testing.T) {
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.AddrPort]bool{} // whether it listens
	for _, addr := range []string{"127.0.0.1", "::1"} {
		ln, err := mptcp.Listen(netip.AddrPortFrom(netip.MustParseAddr(addr), 0), "")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		want[ln.Addr()] = true
		for tcp := range 2 {
			conn, err := mptcp.Dial(t.Context(), ln.Addr(), mptcp.Options{TCP: tcp == 1})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if tcp == 0 {
				want[netip.MustParseAddrPort(conn.LocalAddr().String())] = false
			}
		}
	}
	all, err := loader.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		listens, mine := want[s.Local]
		if s.PID != os.Getpid() {
			continue
		}
		if !mine || s.Listens != listens || s.Netns != here.Inode || s.Scheduler != "default" || s.Process != "loader.test" {
			t.Errorf("socket %+v, want one of %v", s, want)
		}
		delete(want, s.Local)
	}
	if len(want) > 0 {
		t.Errorf("not in the list: %v", want)
	}
}
