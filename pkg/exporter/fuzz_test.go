// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Whatever is asked of the exporter, it answers, changes nothing, and shows nobody's words as its own.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{"/", "/metrics", "/-/healthy", "/-/ready", "/subflows.json", "/page.js", "/../page.css", "//x/%2e%2e/", "/metrics?name[]=<b>"} {
		f.Add("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
		f.Add("POST " + path + " HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc")
	}
	f.Add("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text; version=1.0.0; escaping=values\r\nAccept-Encoding: zstd, gzip\r\n\r\n")
	f.Add("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n\r\n")
	f.Add("GET / HTTP/1.1\r\nHost: \x1b\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	c, err := NewCollector(Options{
		Read:  func(context.Context) (*telemetry.Snapshot, error) { return snapshot(), nil },
		Paths: rules, Managers: managers, Sys: f.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	h := newHandler(c)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		answer := w.Result()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Error(err)
		}
		switch {
		case answer.StatusCode >= 500:
			t.Errorf("status %d", answer.StatusCode)
		case answer.StatusCode == http.StatusOK && r.Method != http.MethodGet && r.Method != http.MethodHead:
			t.Errorf("%s is answered", r.Method)
		}
	})
}
