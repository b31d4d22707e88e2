// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/mpcc/mpcc/pkg/telemetry"
	"github.com/mpcc/mpcc/test/checked"
	"github.com/mpcc/mpcc/test/hosts"
	"github.com/mpcc/mpcc/test/loaded"
)

// browser is a tab of a headless Chromium.
type browser struct {
	ctx context.Context

	mu       sync.Mutex
	problems []string // errors and warnings on the console
	asked    []string // URLs of all requests
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"),
		chromedp.NoSandbox, // which Chromium as root does not do without
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	b := &browser{ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *log.EventEntryAdded:
		b.problems = append(b.problems, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, fmt.Sprintf("%s: %v", e.Type, e.Args))
	}
}

// quiet fails the test if the console has anything, or a request went anywhere but below base.
func (b *browser) quiet(t *testing.T, base string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		t.Errorf("on the console: %s", p)
	}
	for _, u := range b.asked {
		if !strings.HasPrefix(u, base) && u != "data:," {
			t.Errorf("a request for %s", u)
		}
	}
	if len(b.asked) == 0 {
		t.Error("no request was seen")
	}
}

func (b *browser) open(t *testing.T, url string) {
	t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Navigate(url)); err != nil {
		t.Fatal(err)
	}
}

// shown is what the page has.
type shown struct {
	Note  string `json:"note"`
	Stale bool   `json:"stale"`
	Rows  []struct {
		Cells  []string `json:"cells"`
		Charts []struct {
			Points string `json:"points"`
			Label  string `json:"label"`
		} `json:"charts"`
	} `json:"rows"`
}

// until waits until the page is as it should be.
func (b *browser) until(t *testing.T, what string, good func(shown) bool) (s shown) {
	t.Helper()
	const look = `({
		note: document.getElementById("note").textContent,
		stale: document.body.classList.contains("stale"),
		rows: Array.from(document.querySelectorAll("#subflows tr"), tr => ({
			cells: Array.from(tr.cells, td => td.textContent),
			charts: Array.from(tr.querySelectorAll("svg[role=img]"), svg => ({
				points: svg.querySelector("polyline").getAttribute("points") || "",
				label: svg.getAttribute("aria-label"),
			})),
		})),
	})`
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if s, err = chromedp.Run(b.ctx, chromedp.Evaluate[shown](look)); err != nil {
			t.Fatal(err)
		}
		if good(s) {
			return s
		}
		if time.Now().After(end) {
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Fatalf("%s: not so after 20 s: %+v\n%v", what, s, b.problems)
		}
	}
}

// of is the text of a row's cell.
func (s shown) of(t *testing.T, row int, title string) string {
	t.Helper()
	return pageRow{Cells: s.Rows[row].Cells}.cell(t, title)
}

// below serves the exporter below a path, as a reverse proxy does.
func (r *running) below(t *testing.T, path string) (base string) {
	t.Helper()
	target, err := url.Parse("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = r.client.Transport
	mux := http.NewServeMux()
	mux.Handle(path, http.StripPrefix(strings.TrimSuffix(path, "/"), proxy))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + path
}

// The page in a browser, below a path of a reverse proxy, while a real connection comes, sends and goes.
func TestPageInBrowser(t *testing.T) {
	dts := loaded.DTS(t, nil)
	sender, receiver, links := twoPaths(t)
	exporter := start(t, sender, "")
	b := newBrowser(t)
	base := exporter.below(t, "/some/where/")
	b.open(t, base)
	b.until(t, "a page of nothing", func(s shown) bool { return strings.Contains(s.Note, "no live subflow") && len(s.Rows) == 0 })

	conn := hosts.Connect(t, sender, receiver, links[0].Addr(receiver), dts.Name)
	ended := make(chan struct{})
	end, stop := context.WithCancel(t.Context())
	defer stop()
	context.AfterFunc(end, func() { conn.Close() })
	go func() {
		_, _ = checked.Send(conn, checked.Transfer{Bytes: 1 << 40, Seed: 1}) // until it is closed
		close(ended)
	}()

	drawn := func(s shown) bool {
		if len(s.Rows) != 2 {
			return false
		}
		for _, row := range s.Rows {
			for _, chart := range row.Charts {
				if len(strings.Fields(chart.Points)) < 2 {
					return false
				}
			}
		}
		return true
	}
	first := b.until(t, "two subflows with charts", drawn)
	for i, row := range first.Rows {
		if len(row.Charts) != 3 || first.of(t, i, "Control") != dts.Name || first.of(t, i, "Namespace") != sender.Namespace() ||
			first.of(t, i, "Subflow") != fmt.Sprint(i+1) || first.of(t, i, "Interface") != links[i].Interface(sender) {
			t.Errorf("row %d: %+v", i, row)
		}
		if rate := first.of(t, i, "Rate, both ways"); !strings.HasSuffix(rate, " Mbit/s") {
			t.Errorf("row %d: rate %q of a link of 40 Mbit/s", i, rate)
		}
	}
	b.until(t, "other figures", func(s shown) bool {
		return drawn(s) && s.of(t, 0, "Acknowledged") != first.of(t, 0, "Acknowledged") &&
			s.of(t, 1, "Acknowledged") != first.of(t, 1, "Acknowledged") &&
			len(s.Rows[0].Charts[2].Points) > len(first.Rows[0].Charts[2].Points)
	})
	stop()
	<-ended
	b.until(t, "no row", func(s shown) bool { return len(s.Rows) == 0 && strings.Contains(s.Note, "no live subflow") })
	b.quiet(t, base)

	exporter.stop(t)
	b.until(t, "a page that says that it is old", func(s shown) bool {
		return s.Stale && strings.HasPrefix(s.Note, "No new figures: ")
	})
}

// A crowd of subflows: the page has as many rows as it may, and draws them all.
func TestCrowdInBrowser(t *testing.T) {
	handler := newHandler(collector(t, t.TempDir(), 0, func(context.Context) (*telemetry.Snapshot, error) { return crowd(2000), nil }))
	server := httptest.NewServer(handler)
	defer server.Close()
	b := newBrowser(t)
	b.open(t, server.URL)
	b.until(t, "all rows with charts", func(s shown) bool {
		for _, row := range s.Rows {
			if len(row.Charts) != 3 || row.Charts[0].Points == "" {
				return false
			}
		}
		return len(s.Rows) == pageSubflows
	})
	b.quiet(t, server.URL)
}
