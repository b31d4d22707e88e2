// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
)

const (
	algorithm = "dts"
	bpffs     = "/sys/fs/bpf"
	interval  = 2 * time.Second // between two tables
	content   = 50e6            // bytes
	port      = 5001
	scrapeAt  = "127.0.0.1:9917"
	seriesOf  = `cc="` + algorithm + `"`
)

// The two paths, as a sender with Wi-Fi and LTE has them.
var (
	wlan = lab.Shape{Rate: 30e6, Delay: 10 * time.Millisecond, Queue: 60}
	lte  = lab.Shape{Rate: 15e6, Delay: 30 * time.Millisecond, Queue: 90}
)

// The interfaces' energy profiles, as mpcc energy show lists them.
var profiles = []struct{ iface, name string }{{"wlan0", "wifi-2012"}, {"lte0", "lte-2012"}}

// stage runs the demo's commands, and puts everything back at the end, whatever happens.
type stage struct {
	mpcc  string
	lab   string         // what its namespaces' names begin with
	clear []func() error // run in reverse
}

func (s *stage) later(f func() error) { s.clear = append(s.clear, f) }

func (s *stage) close() (err error) {
	for i := len(s.clear) - 1; i >= 0; i-- {
		err = errors.Join(err, s.clear[i]())
	}
	s.clear = nil
	return err
}

// say runs mpcc, and shows the command as a user would type it, with its output.
func (s *stage) say(args ...string) error {
	fmt.Printf("$ mpcc %s\n", strings.Join(args, " "))
	cmd := exec.Command(s.mpcc, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mpcc %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func show(ctx context.Context, mpcc string) (err error) {
	s := &stage{mpcc: mpcc}
	defer func() { err = errors.Join(err, s.close()) }()
	before, err := s.traces()
	if err != nil {
		return err
	}
	if err := s.say("version"); err != nil {
		return err
	}
	if err := s.mountBPF(); err != nil {
		return err
	}
	phone, server, to, err := s.network()
	if err != nil {
		return err
	}
	if err := s.say("load", algorithm); err != nil {
		return err
	}
	s.later(func() error { return s.say("unload", algorithm) })
	for _, p := range profiles {
		iface := p.iface
		set := []string{"energy", "set", iface, p.name, "--netns", phone.Namespace()}
		if err := s.say(set...); err != nil {
			return err
		}
		s.later(func() error { return s.say("energy", "unset", iface, "--netns", phone.Namespace()) })
	}
	if err := s.transfer(ctx, phone, server, to); err != nil {
		return err
	}
	if err := s.scrape(ctx); err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	after, err := s.traces()
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("not everything was put back.\nbefore:\n%s\nafter:\n%s", before, after)
	}
	fmt.Println("\nEverything was put back: namespaces, pins, defaults.")
	return nil
}

// mountBPF mounts the BPF file system where it is missing, for as long as the demo runs.
func (s *stage) mountBPF() error {
	var st unix.Statfs_t
	if err := unix.Statfs(bpffs, &st); err != nil {
		return err
	}
	if st.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	fmt.Printf("$ mount -t bpf bpf %s\n", bpffs)
	if err := unix.Mount("bpf", bpffs, "bpf", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", bpffs, err)
	}
	s.later(func() error { return unix.Unmount(bpffs, 0) })
	return nil
}

// network joins a phone to a server by two paths:
//
//	        wlan0 30 Mbit/s, 10 ms
//	phone ══════════════════════════ server
//	        lte0  15 Mbit/s, 30 ms
func (s *stage) network() (phone, server *lab.Host, to netip.Addr, err error) {
	l, err := lab.New()
	if err != nil {
		return nil, nil, to, err
	}
	s.later(l.Close)
	if phone, err = l.Host("phone"); err != nil {
		return nil, nil, to, err
	}
	s.lab = strings.TrimSuffix(phone.Namespace(), "phone")
	if server, err = l.Host("server"); err != nil {
		return nil, nil, to, err
	}
	paths := []struct {
		name  string
		shape lab.Shape
	}{{"wlan0", wlan}, {"lte0", lte}}
	netem := lab.Has("netem")
	var addrs, peers []netip.Addr
	for _, p := range paths {
		if netem != nil {
			p.shape.Delay = 0
		}
		k, err := l.Link(phone, server, lab.LinkOpts{Name: p.name, AtoB: p.shape, BtoA: p.shape})
		if err != nil {
			return nil, nil, to, err
		}
		fmt.Printf("path %-5s  %s > %s  %d Mbit/s, %v each way\n", p.name, k.Addr(phone), k.Addr(server), p.shape.Rate/1e6, p.shape.Delay)
		addrs, peers = append(addrs, k.Addr(phone)), append(peers, k.Addr(server))
	}
	if netem != nil {
		fmt.Printf("the paths have their rates but no delay: %v\n", netem)
	}
	if err := l.Route(); err != nil {
		return nil, nil, to, err
	}
	limits := lab.MPTCPLimits{Subflows: 1}
	if err := phone.MPTCP(limits, lab.MPTCPEndpoint{Addr: addrs[1], Subflow: true}); err != nil {
		return nil, nil, to, err
	}
	if err := server.MPTCP(limits); err != nil {
		return nil, nil, to, err
	}
	return phone, server, peers[0], nil
}

// outcome is what one end of the transfer has to tell.
type outcome struct {
	checked.Result
	err error
}

// transfer moves the content from phone to server and shows the subflows meanwhile.
func (s *stage) transfer(ctx context.Context, phone, server *lab.Host, to netip.Addr) error {
	fmt.Printf("\nphone sends %d MB to server, congestion control %s\n", int(content/1e6), algorithm)
	received, closeListener, err := receive(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = closeListener() }()
	sent := send(ctx, phone, to)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := s.say("status"); err != nil {
				return err
			}
			fmt.Println()
		case o := <-sent:
			if o.err != nil {
				return fmt.Errorf("transfer: %w", o.err)
			}
			r := <-received
			if r.err != nil {
				return fmt.Errorf("transfer: %w", r.err)
			}
			fmt.Printf("sent %.1f MB in %.2f s: %.1f Mbit/s over both paths; SHA-256 %x… on both sides\n\n",
				float64(o.Bytes)/1e6, o.Duration.Seconds(), o.Rate()/1e6, o.SHA256[:8])
			return s.say("status")
		}
	}
}

// receive has a host accept one transfer.
func receive(ctx context.Context, server *lab.Host) (received <-chan outcome, closeListener func() error, err error) {
	var ln *mptcp.Listener
	err = server.Do(func() (err error) {
		ln, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), port), "")
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan outcome, 1)
	go func() {
		conn, err := ln.Accept(ctx)
		if err != nil {
			ended <- outcome{err: err}
			return
		}
		defer conn.Close()
		r, err := checked.Receive(conn)
		ended <- outcome{r, err}
	}()
	return ended, ln.Close, nil
}

// send sends the content from a host. It stops when ctx ends.
func send(ctx context.Context, phone *lab.Host, to netip.Addr) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		var r checked.Result
		err := phone.Do(func() error {
			conn, err := mptcp.Dial(ctx, netip.AddrPortFrom(to, port), mptcp.Options{CC: algorithm})
			if err != nil {
				return err
			}
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			r, err = checked.Send(conn, checked.Transfer{Bytes: content, Seed: 1})
			return err
		})
		ended <- outcome{r, err}
	}()
	return ended
}

// scrape runs the exporter, and shows a part of what Prometheus would read.
func (s *stage) scrape(ctx context.Context) (err error) {
	fmt.Printf("\n$ mpcc exporter --web.listen-address %s &\n$ curl -s http://%s/metrics | grep '^mpcc_.*%s' | grep -v _bucket\n",
		scrapeAt, scrapeAt, seriesOf)
	cmd := exec.CommandContext(ctx, s.mpcc, "exporter", "--web.listen-address", scrapeAt)
	// Stay on this thread: Pdeathsig kills the exporter when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Signal(unix.SIGTERM), cmd.Wait())
	}()
	var last error
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		if last = printScrape("http://" + scrapeAt + "/metrics"); last == nil {
			fmt.Println()
			return nil
		}
	}
	return fmt.Errorf("scrape: %w", last)
}

// printScrape shows the series of the algorithm, without the histograms' buckets.
func printScrape(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "mpcc_") && strings.Contains(line, seriesOf) && !strings.Contains(line, "_bucket{") {
			fmt.Println(line)
		}
	}
	return lines.Err()
}

// traces lists what the demo could leave behind. What others make meanwhile does not count.
func (s *stage) traces() (string, error) {
	var b strings.Builder
	namespaces, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	for _, n := range namespaces {
		if s.lab != "" && strings.HasPrefix(n.Name(), s.lab) {
			fmt.Fprintln(&b, "namespace", n.Name())
		}
	}
	if _, err := os.Stat(bpffs + "/mpcc/cc/" + algorithm); err == nil {
		fmt.Fprintln(&b, "the pin of", algorithm)
	}
	const settings = "/proc/sys/net/ipv4/tcp_"
	offered, err := os.ReadFile(settings + "available_congestion_control")
	if err != nil {
		return "", err
	}
	if slices.Contains(strings.Fields(string(offered)), algorithm) {
		fmt.Fprintln(&b, "the congestion control", algorithm)
	}
	standard, err := os.ReadFile(settings + "congestion_control")
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "default congestion control %s", standard)
	return b.String(), nil
}
