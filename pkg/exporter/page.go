// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"

	buildinfo "github.com/prometheus/common/version"

	"github.com/mpcc/mpcc/internal/figures"
	"github.com/mpcc/mpcc/internal/watch"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

const (
	maxViewers   = 64               // answers on their way at a time, of each kind
	pageSubflows = 200              // the busiest ones
	pageAge      = time.Second      // age at which a page's figures are read anew, however many look at it
	pageMemory   = 10 * time.Second // age at which they are too old to tell rates from
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/index.html"))

// column is one of the page's table.
type column struct {
	Title  string
	Number bool
	Chart  string // the key in subflows.json of what is drawn beside the text; "" for nothing
	text   func(*Collector, *watch.Subflow) string
}

var pageColumns = []column{
	{"Connection", false, "", func(_ *Collector, f *watch.Subflow) string { return figures.Token(f.Token) }},
	{"Subflow", false, "", func(_ *Collector, f *watch.Subflow) string { return figures.SubflowID(f.SubflowID, f.Backup) }},
	{"Control", false, "", func(_ *Collector, f *watch.Subflow) string { return f.CC }},
	{"Interface", false, "", func(_ *Collector, f *watch.Subflow) string { return f.Interface }},
	{"Window, packets", true, "cwnd", func(_ *Collector, f *watch.Subflow) string { return fmt.Sprint(f.Cwnd) }},
	{"Smoothed RTT", true, "srtt", func(_ *Collector, f *watch.Subflow) string { return figures.RTT(f.SRTT) }},
	{"Rate, both ways", true, "rate", func(_ *Collector, f *watch.Subflow) string {
		if moved := bothWays(f); moved != nil {
			return figures.BitRate(*moved)
		}
		return "-"
	}},
	{"Base RTT", true, "", func(_ *Collector, f *watch.Subflow) string { return figures.RTT(f.BaseRTT) }},
	{"Acknowledged", true, "", func(_ *Collector, f *watch.Subflow) string { return figures.Size(f.BytesAcked) }},
	{"Received", true, "", func(_ *Collector, f *watch.Subflow) string { return figures.Size(f.BytesReceived) }},
	{"Segments sent again", true, "", func(_ *Collector, f *watch.Subflow) string { return fmt.Sprint(f.Retrans) }},
	{"Coupling", true, "", func(_ *Collector, f *watch.Subflow) string { return figures.Coupling(f.Coupling) }},
	{"Energy, modelled", true, "", func(_ *Collector, f *watch.Subflow) string { return figures.Joules(f.Energy) }},
	{"Namespace", false, "", func(_ *Collector, f *watch.Subflow) string { return figures.Netns(f.NetnsName, f.Netns) }},
	{"Path", false, "", func(c *Collector, f *watch.Subflow) string {
		if c.options.NoPeerAddresses {
			return f.Local.Addr().String()
		}
		return figures.Path(&f.Subflow)
	}},
}

// bothWays is what the subflow carried, in bytes per second; nil at the first sight of it.
func bothWays(f *watch.Subflow) *float64 {
	if f.Rate == nil || f.Receiving == nil {
		return nil
	}
	return new(*f.Rate + *f.Receiving)
}

// pageState is subflows.json.
type pageState struct {
	Note     string    `json:"note"` // how many there are, or why there are none
	Subflows []pageRow `json:"subflows"`
}

type pageRow struct {
	ID    string   `json:"id"`
	Cells []string `json:"cells"` // of pageColumns
	Cwnd  uint32   `json:"cwnd"`
	SRTT  *float64 `json:"srtt"` // in seconds; null before the first
	Rate  *float64 `json:"rate"` // in bytes per second; null at the first sight
}

// page is what viewers see: all of them the same figures, which are read at most once per pageAge.
type page struct {
	collector *Collector
	turn      chan struct{} // full while one request reads or looks at what follows
	watch     watch.Watch
	read      time.Time
	state     pageState
	json      []byte
	err       error
}

func newPage(c *Collector) *page { return &page{collector: c, turn: make(chan struct{}, 1)} }

// now returns the figures, and as JSON.
func (p *page) now(ctx context.Context) (pageState, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return pageState{}, nil, errBusy
	}
	age := time.Since(p.read)
	if age < pageAge {
		return p.state, p.json, p.err
	}
	if age > pageMemory {
		p.watch = watch.Watch{}
	}
	// Not for this viewer alone, who may leave meanwhile.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	p.err = p.collector.read(ctx, telemetry.Selection{Most: pageSubflows}, func(snap *telemetry.Snapshot) { p.state = p.refresh(snap) })
	if p.err == nil {
		p.json, p.err = json.Marshal(p.state)
	}
	p.read = time.Now()
	return p.state, p.json, p.err
}

func (p *page) refresh(snap *telemetry.Snapshot) pageState {
	if snap == nil {
		p.watch.Refresh(watch.Reading{})
		return pageState{Note: p.watch.Note(), Subflows: []pageRow{}}
	}
	// That maps are there is as good as that something is loaded: it has been, or connections still run it.
	p.watch.Refresh(watch.Reading{Loaded: []string{"mpcc"}, Snapshot: snap})
	state := pageState{Note: p.watch.Note(), Subflows: []pageRow{}}
	if state.Note == "" {
		state.Note = p.watch.Summary()
	}
	if shown := len(snap.Subflows); snap.LeftOut > 0 {
		state.Note = fmt.Sprintf("The busiest %d subflows of %d: %s", shown, shown+snap.LeftOut, state.Note)
	}
	for _, f := range p.watch.Subflows() {
		row := pageRow{ID: strconv.FormatUint(f.ID, 10), Cwnd: f.Cwnd, Rate: bothWays(f)}
		if f.SRTT != 0 {
			row.SRTT = new(time.Duration(f.SRTT).Seconds())
		}
		for _, c := range pageColumns {
			row.Cells = append(row.Cells, c.text(p.collector, f))
		}
		state.Subflows = append(state.Subflows, row)
	}
	return state
}

// pagePolicy allows the page's own files alone.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// handle adds the page to the server. Its links are relative, so that it works below any path.
func (p *page) handle(mux *http.ServeMux) {
	answer := func(pattern, kind string, content func(*http.Request) ([]byte, error)) {
		mux.Handle(pattern, few(maxViewers, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := content(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			h := w.Header()
			h.Set("Content-Type", kind)
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cache-Control", "no-store")
			_, _ = w.Write(body)
		})))
	}
	file := func(name string) func(*http.Request) ([]byte, error) {
		return func(*http.Request) ([]byte, error) { return pageFiles.ReadFile("page/" + name) }
	}
	answer("GET /page.css", "text/css; charset=utf-8", file("page.css"))
	answer("GET /page.js", "text/javascript; charset=utf-8", file("page.js"))
	answer("GET /subflows.json", "application/json", func(r *http.Request) ([]byte, error) {
		_, text, err := p.now(r.Context())
		return text, err
	})
	answer("GET /{$}", "text/html; charset=utf-8", func(r *http.Request) ([]byte, error) {
		state, _, err := p.now(r.Context())
		if err != nil {
			state = pageState{Note: err.Error()}
		}
		var out bytes.Buffer
		err = pageTemplate.Execute(&out, struct {
			Version string
			Columns []column
			State   pageState
		}{buildinfo.Version, pageColumns, state})
		return out.Bytes(), err
	})
}

// few lets so many requests in at a time, until their answers are sent, and turns away those beyond.
func few(most int, h http.Handler) http.Handler {
	under := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case under <- struct{}{}:
			defer func() { <-under }()
			h.ServeHTTP(w, r)
		default:
			http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
		}
	})
}
