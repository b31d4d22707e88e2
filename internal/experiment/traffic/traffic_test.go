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
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	var n net
	if n.client, err = l.Host("client"); err != nil {
		t.Fatal(err)
	}
	if n.server, err = l.Host("server"); err != nil {
		t.Fatal(err)
	}
	shape := lab.Shape{Rate: rate}
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

// mbps returns the rate at which content arrives for a while, in Mbit/s.
func mbps(f *traffic.Flow, d time.Duration) float64 {
	start, before := time.Now(), f.Count()
	time.Sleep(d)
	return float64(f.Count().Bytes-before.Bytes) * 8 / time.Since(start).Seconds() / 1e6
}

// Users of every kind, together, fill the link and no more.
func TestEndless(t *testing.T) {
	for _, upload := range []bool{false, true} {
		n := newNet(t)
		var flows []*traffic.Flow
		for i := range 10 {
			flows = append(flows, n.start(t, traffic.Config{
				Upload: upload, Multipath: i%2 == 0, CC: []string{"reno", "cubic"}[i/5], Pattern: traffic.Endless{},
			}))
		}
		start := time.Now()
		time.Sleep(time.Second)
		sum := 0.0
		for i, f := range flows {
			if is, err := f.Receiver().MultipathTCP(); err != nil || is != (i%2 == 0) {
				t.Errorf("flow %d is MPTCP: %v, %v", i, is, err)
			}
			if cc, err := mptcp.CongestionControl(f.Sender()); err != nil || cc != []string{"reno", "cubic"}[i/5] {
				t.Errorf("flow %d is sent by %q, %v", i, cc, err)
			}
			sum += float64(f.Count().Bytes) * 8
		}
		sum /= time.Since(start).Seconds()
		// What was sent before the start, at most a queue of each user, counts as well.
		if sum < rate/2 || sum > rate*1.5 {
			t.Errorf("upload %v: %.1f Mbit/s in all", upload, sum/1e6)
		}
	}
}

func TestFiles(t *testing.T) {
	for _, upload := range []bool{false, true} {
		n := newNet(t)
		const size, count = 100_000, 5
		f := n.start(t, traffic.Config{Upload: upload, Multipath: true, Pattern: traffic.Files{Bytes: size, Count: count}})
		<-f.Done()
		if err := f.Stop(); err != nil {
			t.Fatal(err)
		}
		files := f.Transfers()
		if got := f.Count().Bytes; got != size*count || len(files) != count {
			t.Errorf("upload %v: %d bytes in %d files", upload, got, len(files))
		}
		sum := time.Duration(0)
		for _, file := range files {
			// 100 kB take 40 ms at the link's rate, less the 3 kB that pass at once.
			if file.Bytes != size || file.Took < 35*time.Millisecond || file.Took > time.Second {
				t.Errorf("upload %v: %d bytes took %v", upload, file.Bytes, file.Took)
			}
			sum += file.Took
		}
		if active := f.Count().Active; active < sum || active > sum+100*time.Millisecond {
			t.Errorf("active for %v, the files took %v", active, sum)
		}
	}
}

func TestBursts(t *testing.T) {
	for _, udp := range []bool{false, true} {
		for _, upload := range []bool{false, true} {
			n := newNet(t)
			f := n.start(t, traffic.Config{Upload: upload, Pattern: traffic.Bursts{Rate: 5e6, UDP: udp}})
			// A busy machine may send less.
			if got := mbps(f, time.Second); got < 2 || got > 5.3 {
				t.Errorf("UDP %v, upload %v: %.2f Mbit/s at a rate of 5", udp, upload, got)
			}
			on := 20 * time.Millisecond
			f = n.start(t, traffic.Config{
				Upload: upload, Pattern: traffic.Bursts{Rate: 5e6, On: on, Off: on, Shape: 3, UDP: udp}, Seed: 1,
			})
			start := time.Now()
			got := mbps(f, 2*time.Second)
			share := f.Count().Active.Seconds() / time.Since(start).Seconds()
			if share < 0.3 || share > 0.7 || got < 5*share*0.4 || got > 5*share*1.3 {
				t.Errorf("UDP %v, upload %v: %.2f Mbit/s at bursts of 5 for %.2f of the time", udp, upload, got, share)
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
