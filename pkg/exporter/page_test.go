// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

func stateOf(t *testing.T, h http.Handler) (s pageState) {
	t.Helper()
	status, body := ask(h, "/subflows.json")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// cell is a row's text in the column of this title.
func (r pageRow) cell(t *testing.T, title string) string {
	t.Helper()
	for i, c := range pageColumns {
		if c.Title == title {
			return r.Cells[i]
		}
	}
	t.Fatalf("there is no column %q", title)
	return ""
}

// However many look at the page at once, the maps are read once a second at most, and a rate is what was moved between
// two readings.
func TestPageReadsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, readings := time.Now(), 0
		h := newHandler(collector(t, t.TempDir(), 0, func(context.Context) (*telemetry.Snapshot, error) {
			readings++
			time.Sleep(100 * time.Millisecond)
			age := time.Since(begun)
			return &telemetry.Snapshot{Subflows: []telemetry.Subflow{{
				ID: 1<<63 + 1, Token: 7, CC: "dts", Cwnd: 10, BytesAcked: uint64(age.Milliseconds()) * 1000, Age: telemetry.Seconds(age),
			}}}, nil
		}))
		for second := 1; second <= 3; second++ {
			var viewers sync.WaitGroup
			for range 50 {
				viewers.Go(func() {
					rows := stateOf(t, h).Subflows
					if len(rows) != 1 || rows[0].ID != "9223372036854775809" || rows[0].Cwnd != 10 {
						t.Errorf("rows %+v", rows)
						return
					}
					switch rate := rows[0].Rate; {
					case second == 1 && rate != nil:
						t.Errorf("a rate of %g at the first sight", *rate)
					case second > 1 && (rate == nil || *rate < 999e3 || *rate > 1001e3):
						t.Errorf("second %d: rate %v, want 1e6", second, rate)
					}
				})
			}
			viewers.Wait()
			if readings != second {
				t.Errorf("%d readings after %d s", readings, second)
			}
			time.Sleep(pageAge)
		}
	})
}

// A page of many subflows has the busiest of them, and says so.
func TestPageIsBounded(t *testing.T) {
	h := newHandler(collector(t, t.TempDir(), 0, func(context.Context) (*telemetry.Snapshot, error) { return crowd(2000), nil }))
	s := stateOf(t, h)
	if len(s.Subflows) != pageSubflows || !strings.HasPrefix(s.Note, "The busiest 200 subflows of 2000: ") {
		t.Errorf("%d rows, %q", len(s.Subflows), s.Note)
	}
	for _, row := range s.Subflows {
		if token := row.cell(t, "Connection"); token <= fmt.Sprintf("%08x", 2000-pageSubflows) {
			t.Errorf("%s is none of the busiest", token)
		}
	}
	_, body := ask(h, "/")
	if n := strings.Count(body, "<tr data-id"); n != pageSubflows {
		t.Errorf("%d rows in the page", n)
	}
	if _, text := ask(h, "/subflows.json"); len(text) > pageSubflows*500 {
		t.Errorf("%d bytes", len(text))
	}
}

// Without a script the page is a table with names of its columns, in which no name can become markup.
func TestPageAsTable(t *testing.T) {
	snap := snapshot()
	snap.Subflows[0].Interface = `<i>"&`
	h := newHandler(collector(t, t.TempDir(), 0, func(context.Context) (*telemetry.Snapshot, error) { return snap, nil }))
	status, body := ask(h, "/")
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var heads, cells []string
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (n.Data == "th" || n.Data == "td") {
			text := ""
			if n.FirstChild != nil {
				text = n.FirstChild.Data
			}
			if n.Data == "th" {
				heads = append(heads, text)
			} else {
				cells = append(cells, text)
			}
		}
	}
	if len(heads) != len(pageColumns) || len(cells) != len(pageColumns)*len(snap.Subflows) {
		t.Fatalf("%d heads and %d cells:\n%s", len(heads), len(cells), body)
	}
	row := pageRow{Cells: cells[:len(heads)]}
	for title, want := range map[string]string{
		"Connection": "00ab12cd", "Subflow": "1", "Control": "dts", "Interface": `<i>"&`, "Namespace": "4026531840",
		"Path": "10.0.0.1 > 192.0.2.9", "Window, packets": "42", "Smoothed RTT": "50.5 ms", "Base RTT": "40 ms", "Rate, both ways": "-",
		"Acknowledged": "880 kB", "Received": "1.5 kB", "Segments sent again": "2", "Coupling": "-0.500", "Energy, modelled": "1.25 J",
	} {
		if got := row.cell(t, title); got != want {
			t.Errorf("%s: %q, want %q", title, got, want)
		}
	}
}

func TestPageWithoutPeers(t *testing.T) {
	c := full(t)
	c.options.NoPeerAddresses = true
	h := newHandler(c)
	for _, path := range []string{"/", "/subflows.json"} {
		_, body := ask(h, path)
		if !strings.Contains(body, "10.0.0.1") || strings.Contains(body, "192.0.2.9") || strings.Contains(body, "2001:db8::9") {
			t.Errorf("%s:\n%s", path, body)
		}
	}
}

// Where there is nothing to show, the page says why.
func TestPageOfNothing(t *testing.T) {
	for want, read := range map[string]func(context.Context) (*telemetry.Snapshot, error){
		"nothing is loaded": func(context.Context) (*telemetry.Snapshot, error) { return nil, nil },
		"no live subflow":   func(context.Context) (*telemetry.Snapshot, error) { return &telemetry.Snapshot{}, nil },
		"not permitted":     func(context.Context) (*telemetry.Snapshot, error) { return nil, errors.New("not permitted") },
	} {
		h := newHandler(collector(t, t.TempDir(), 0, read))
		if status, body := ask(h, "/"); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s", want, status, body)
		}
		status, body := ask(h, "/subflows.json")
		if failed := want == "not permitted"; failed != (status == http.StatusServiceUnavailable) || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s", want, status, body)
		}
	}
}

// Whatever is of the page forbids what is not of it.
func TestPagePolicy(t *testing.T) {
	h := newHandler(full(t))
	for _, path := range []string{"/", "/page.js", "/page.css", "/subflows.json"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; ") ||
			strings.Contains(w.Header().Get("Content-Security-Policy"), "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}
