// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/traffic"
)

// The users of an experiment transfer what they are told to, as fast as they are told to.

// trafficRate is that of the link between users, there and back, in bit/s.
const trafficRate = 20e6

// users is a wire whose right end serves.
type users struct {
	wire
	server *traffic.Server
}

func newUsers(t *testing.T) users {
	t.Helper()
	shape := lab.Shape{Rate: trafficRate}
	u := users{wire: newWire(t, lab.LinkOpts{AtoB: shape, BtoA: shape})}
	var err error
	if u.server, err = traffic.Listen(u.right); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.server.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}

func (u users) start(t *testing.T, c traffic.Config) *traffic.Flow {
	t.Helper()
	c.Client, c.Local, c.Addr = u.left, u.link.Addr(u.left), u.link.Addr(u.right)
	f, err := u.server.Start(t.Context(), c)
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

// arrives returns the rate at which content arrives for a while, in bit/s, and the share of it in which the user is
// active.
func arrives(f *traffic.Flow, d time.Duration) (rate, active float64) {
	start, before := time.Now(), f.Count()
	time.Sleep(d)
	took, after := time.Since(start), f.Count()
	return float64(after.Bytes-before.Bytes) * 8 / took.Seconds(), float64(after.Active-before.Active) / float64(took)
}

// directions runs a test of uploads and one of downloads.
func directions(t *testing.T, test func(t *testing.T, u users, upload bool)) {
	for name, upload := range map[string]bool{"upload": true, "download": false} {
		t.Run(name, func(t *testing.T) { test(t, newUsers(t), upload) })
	}
}

// Users of every kind, together, fill the link and no more.
func TestOwnTimeTrafficEndless(t *testing.T) {
	directions(t, func(t *testing.T, u users, upload bool) {
		var flows []*traffic.Flow
		for i := range 4 {
			flows = append(flows, u.start(t, traffic.Config{
				Upload: upload, Multipath: i%2 == 0, CC: []string{"reno", "cubic"}[i/2], Pattern: traffic.Endless{},
			}))
		}
		time.Sleep(time.Second) // until what they have in the queue does not grow
		rates := make(chan float64)
		for _, f := range flows {
			go func() {
				rate, _ := arrives(f, 2*time.Second)
				rates <- rate
			}()
		}
		sum := 0.0
		for range flows {
			sum += <-rates
		}
		t.Logf("%.2f Mbit/s in all", sum/1e6)
		if most := trafficRate * 1460 / 1514; sum < most*0.9 || sum > most*1.02 {
			t.Errorf("%.2f Mbit/s in all over a link of %.0f", sum/1e6, trafficRate/1e6)
		}
	})
}

func TestOwnTimeTrafficFiles(t *testing.T) {
	directions(t, func(t *testing.T, u users, upload bool) {
		const size, count = 100_000, 5
		f := u.start(t, traffic.Config{Upload: upload, Multipath: true, Pattern: traffic.Files{Bytes: size, Count: count}})
		<-f.Done()
		if err := f.Stop(); err != nil {
			t.Fatal(err)
		}
		files := f.Transfers()
		if got := f.Count().Bytes; got != size*count || len(files) != count {
			t.Errorf("%d bytes in %d files", got, len(files))
		}
		sum := time.Duration(0)
		for _, file := range files {
			t.Logf("%d bytes took %v", file.Bytes, file.Took)
			// 100 kB take 40 ms at the link's rate, less the 3 kB that pass at once; the rest is for connecting.
			if file.Bytes != size || file.Took < 39*time.Millisecond || file.Took > 80*time.Millisecond {
				t.Errorf("%d bytes took %v", file.Bytes, file.Took)
			}
			sum += file.Took
		}
		if active := f.Count().Active; active < sum || active > sum+50*time.Millisecond {
			t.Errorf("active for %v, the files took %v", active, sum)
		}
	})
}

func TestOwnTimeTrafficBursts(t *testing.T) {
	directions(t, func(t *testing.T, u users, upload bool) {
		for _, udp := range []bool{false, true} {
			const rate = 5e6
			f := u.start(t, traffic.Config{Upload: upload, Pattern: traffic.Bursts{Rate: rate, UDP: udp}})
			got, _ := arrives(f, time.Second)
			t.Logf("UDP %v: %.2f Mbit/s", udp, got/1e6)
			if got < rate*0.95 || got > rate*1.05 {
				t.Errorf("UDP %v: %.2f Mbit/s at a rate of %.0f", udp, got/1e6, rate/1e6)
			}
			// As long on as off, on average. The lengths vary by 0.6 of their mean (a Pareto distribution of shape 3),
			// so of some 50 of each in two seconds the share has a standard deviation of 0.03: five of them either way.
			// A burst begins with a block at once.
			on := 20 * time.Millisecond
			f = u.start(t, traffic.Config{
				Upload: upload, Pattern: traffic.Bursts{Rate: rate, On: on, Off: on, Shape: 3, UDP: udp}, Seed: 1,
			})
			got, share := arrives(f, 2*time.Second)
			t.Logf("UDP %v: %.2f Mbit/s, active for %.2f of the time", udp, got/1e6, share)
			if share < 0.35 || share > 0.65 || got < rate*share*0.8 || got > rate*share*1.25 {
				t.Errorf("UDP %v: %.2f Mbit/s at bursts of %.0f for %.2f of the time", udp, got/1e6, rate/1e6, share)
			}
		}
	})
}
