// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/hosts"
)

// net is a client and a server with a link of 20 Mbit/s there and back.
type net struct {
	client, server *lab.Host
	link           *lab.Link
	listening      *traffic.Server
}

const rate = 20e6

func newNet(t *testing.T) net {
	t.Helper()
	l, all := hosts.New(t, "client", "server")
	n := net{client: all[0], server: all[1]}
	shape := lab.Shape{Rate: rate}
	var err error
	if n.link, err = l.Link(n.client, n.server, lab.LinkOpts{AtoB: shape, BtoA: shape}); err != nil {
		t.Fatal(err)
	}
	if n.listening, err = traffic.Listen(n.server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.listening.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n net) start(t *testing.T, c traffic.Config) *traffic.Flow {
	t.Helper()
	c.Client, c.Local, c.Addr = n.client, n.link.Addr(n.client), n.link.Addr(n.server)
	f, err := n.listening.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Users of every kind send as what they are told to be, and something of all arrives.
func TestKinds(t *testing.T) {
	n := newNet(t)
	for _, upload := range []bool{false, true} {
		for i := range 4 {
			multipath, cc := i%2 == 0, []string{"reno", "cubic"}[i/2]
			f := n.start(t, traffic.Config{Upload: upload, Multipath: multipath, CC: cc, Pattern: traffic.Endless{}})
			for deadline := time.Now().Add(time.Minute); f.Count().Bytes == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("upload %v, flow %d: nothing arrives in a minute", upload, i)
				}
			}
			if is, err := f.Receiver().MultipathTCP(); err != nil || is != multipath {
				t.Errorf("upload %v, flow %d is MPTCP: %v, %v", upload, i, is, err)
			}
			if got, err := mptcp.CongestionControl(f.Sender()); err != nil || got != cc {
				t.Errorf("upload %v, flow %d is sent by %q, %v", upload, i, got, err)
			}
			if err := f.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A user that never gets a connection has moved nothing in all the time that it has tried.
func TestNoConnection(t *testing.T) {
	n := newNet(t)
	nobody := n.link.Addr(n.server).Next()
	begun := make(chan *traffic.Flow, 1)
	ended := make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, err := n.listening.Start(ctx, traffic.Config{
			Client: n.client, Addr: nobody, Pattern: traffic.Endless{},
			Watch: func(f *traffic.Flow) {
				select {
				case begun <- f:
				default:
				}
			},
		})
		ended <- err
	}()
	f := <-begun
	time.Sleep(300 * time.Millisecond)
	if got := f.Count(); got.Bytes != 0 || got.Active < 200*time.Millisecond {
		t.Errorf("without a connection %d bytes in %v", got.Bytes, got.Active)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("stopped: %v", err)
	}
}

func TestErrorsAreTold(t *testing.T) {
	n := newNet(t)
	_, err := n.listening.Start(t.Context(), traffic.Config{
		Client: n.client, Addr: n.link.Addr(n.server), CC: "nosuch", Pattern: traffic.Endless{},
	})
	want := `traffic: client to ` + n.link.Addr(n.server).String() + `: mptcp: congestion control "nosuch" is not available`
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v", err)
	}
}
