// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/hosts"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/ss"
	"github.com/mpcc/mpcc/test/twopaths"
)

const (
	childEnv = "MPCC_TEST_EXPORTER" // set for a child process that is an exporter: its web configuration
	address  = "127.0.0.1:9956"     // in a namespace of the test's own
)

func TestMain(m *testing.M) {
	if webConfig, ok := os.LookupEnv(childEnv); ok {
		os.Exit(child(webConfig))
	}
	os.Exit(m.Run())
}

func child(webConfig string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", address)
	if err == nil {
		err = Serve(ctx, []net.Listener{l}, Config{
			Options:   Options{MaxSeries: 1000, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))},
			WebConfig: webConfig,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// running is an exporter of its own process and namespace.
type running struct {
	host   *lab.Host
	cmd    *lab.Cmd
	client http.Client
	stderr bytes.Buffer
}

func start(t *testing.T, host *lab.Host, webConfig string) *running {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{host: host, cmd: host.Command(t.Context(), exe)}
	r.cmd.Env = append(os.Environ(), childEnv+"="+webConfig)
	r.cmd.Stderr = &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.client.Transport = &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = host.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
		DisableKeepAlives: true,
	}
	r.client.Timeout = time.Minute
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if resp, err := r.client.Get("http://" + address + "/-/healthy"); err == nil {
			resp.Body.Close()
			return r
		}
		if time.Now().After(end) {
			t.Fatalf("the exporter does not answer: %s", r.stderr.String())
		}
	}
}

// stop ends it as systemd does; it must end well.
func (r *running) stop(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v: %s", err, r.stderr.String())
	}
}

func (r *running) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	resp, err := r.client.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// scrape is the samples of the project's own metrics but for histograms, by name and labels.
type scrape map[string]map[string]*dto.Metric

func (r *running) scrape(t *testing.T) scrape {
	t.Helper()
	status, body := r.get(t, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("scrape: status %d: %s", status, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	s := scrape{}
	for name, f := range families {
		s[name] = map[string]*dto.Metric{}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			s[name][strings.Join(labels, ",")] = m
		}
	}
	return s
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// rising fails where a counter of both scrapes is lower in the later one.
func rising(t *testing.T, before, after scrape) {
	t.Helper()
	for name, series := range after {
		for labels, m := range series {
			old, ok := before[name][labels]
			if !ok || m.Counter == nil {
				continue
			}
			if m.Counter.GetValue() < old.Counter.GetValue() {
				t.Errorf("%s{%s} fell from %g to %g", name, labels, old.Counter.GetValue(), m.Counter.GetValue())
			}
		}
	}
}

// twoPaths is sender ═ receiver, over two links of 40 Mbit/s.
func twoPaths(t *testing.T) (sender, receiver *lab.Host, links [2]*lab.Link) {
	t.Helper()
	n := twopaths.New(t, [2]lab.Shape{{Rate: 40e6}, {Rate: 40e6}})
	return n.Sender, n.Receiver, n.Links
}

// price sets an energy profile on a host's interface.
func price(t *testing.T, host *lab.Host, iface string, p loader.Profile) {
	t.Helper()
	at := loader.Interface{Netns: host.Namespace(), Name: iface}
	if err := loader.SetProfile(t.Context(), at, p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loader.DeleteProfile(context.Background(), at); err != nil {
			t.Error(err)
		}
	})
}

// A real connection under dts, scraped while it runs and after its end.
func TestLiveConnection(t *testing.T) {
	dts := loaded.DTS(t, nil)
	sender, receiver, links := twoPaths(t)
	const uplink = 100 // mW/Mbps: 0.1 J for a Mbit
	price(t, sender, links[0].Interface(sender), loader.Profile{Uplink: uplink})
	exporter := start(t, sender, "")
	if status, body := exporter.get(t, "/-/ready"); status != http.StatusOK {
		t.Errorf("not ready: %d %s", status, body)
	}
	if status, body := exporter.get(t, "/"); status != http.StatusOK || !strings.Contains(body, `href="metrics"`) {
		t.Errorf("landing page: %d %s", status, body)
	}
	if status, _ := exporter.get(t, "/nowhere"); status != http.StatusNotFound {
		t.Errorf("/nowhere: status %d", status)
	}

	conn := hosts.ConnectTo(t, sender, receiver, links[0].Addr(receiver), dts.Name, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	// A sender that goes on until it has been looked at.
	const block = 1 << 20
	var size float64
	enough, sent := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if _, err := conn.Write(make([]byte, block)); err != nil {
				sent <- err
				return
			}
			size += block
			select {
			case <-enough:
				sent <- conn.CloseWrite()
				return
			default:
			}
		}
	}()

	// Both subflows, under the token and the addresses that ss shows, when each has carried content.
	var s scrape
	carry := func() (subflows int) {
		for _, m := range s["mpcc_subflow_acked_bytes_total"] {
			if m.GetCounter().GetValue() > 1e5 {
				subflows++
			}
		}
		return subflows
	}
	for end := time.Now().Add(time.Minute); carry() < 2; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d subflows in the scrape have carried content, want 2", carry(), len(s["mpcc_subflow_info"]))
		}
		before := s
		s = exporter.scrape(t)
		rising(t, before, s)
	}
	sockets, err := ss.Sockets(t.Context(), sender)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]*dto.Metric{} // by local address
	for _, m := range s["mpcc_subflow_info"] {
		shown[label(m, "local")] = m
	}
	subflows := 0
	for _, socket := range sockets {
		if socket.Proto != "tcp" || socket.CC != dts.Name {
			continue
		}
		subflows++
		m := shown[socket.Local.Addr().String()]
		if m == nil {
			t.Errorf("ss has a subflow from %v, the scrape has not", socket.Local)
			continue
		}
		token, err := strconv.ParseUint(label(m, "token"), 16, 32)
		if err != nil || uint32(token) != socket.Token {
			t.Errorf("token %s, ss -M says %x", label(m, "token"), socket.Token)
		}
		if label(m, "remote") != socket.Remote.Addr().String() ||
			label(m, "local_id") != strconv.Itoa(int(socket.LocalID)) ||
			label(m, "remote_id") != strconv.Itoa(int(socket.RemoteID)) ||
			label(m, "cc") != socket.CC || label(m, "netns") != sender.Namespace() {
			t.Errorf("%v in the scrape, %+v in ss", m.Label, socket)
		}
	}
	if subflows != 2 {
		t.Errorf("ss shows %d subflows under dts, want 2", subflows)
	}

	close(enough)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF { // the receiver has it all
		t.Fatalf("%d bytes and %v at the end", n, err)
	}
	info, err := mptcp.ReadInfo(conn)
	if err != nil {
		t.Fatal(err)
	}
	twice := float64(info.BytesRetrans) // a subflow that stalls has its content sent again on the other
	conn.Close()

	// After the end the series are gone and the aggregates stay.
	for end := time.Now().Add(time.Minute); len(s["mpcc_subflow_info"]) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the subflows have ended but are still shown")
		}
		before := s
		s = exporter.scrape(t)
		rising(t, before, s)
	}
	var acked, opened, closed float64
	for i, link := range links {
		where := fmt.Sprintf("cc=dts,iface=%s,netns=%s", link.Interface(sender), sender.Namespace())
		value := func(name string) float64 { return s[name][where].GetCounter().GetValue() }
		opened += value("mpcc_subflows_opened_total")
		closed += value("mpcc_subflows_closed_total")
		acked += value("mpcc_acked_bytes_total")
		if active := s["mpcc_subflows_active"][where].GetGauge().GetValue(); active != 0 {
			t.Errorf("%s: %g active", where, active)
		}
		if n := s["mpcc_srtt_seconds"][where].GetHistogram().GetSampleCount(); n == 0 {
			t.Errorf("%s: no RTT in the histogram", where)
		}
		energy := s["mpcc_energy_joules_total"][where+",source=model"]
		if i > 0 {
			if energy != nil {
				t.Errorf("%s has no profile but %v", where, energy)
			}
			continue
		}
		want := (value("mpcc_acked_bytes_total") + value("mpcc_retransmitted_bytes_total")) * 8 / 1e6 * uplink / 1e3
		if got := energy.GetCounter().GetValue(); got < 0.99*want || got > 1.01*want {
			t.Errorf("%s: %g J, want %g J", where, got, want)
		}
	}
	if opened != 2 || closed != 2 {
		t.Errorf("%g subflows opened and %g closed, want 2", opened, closed)
	}
	// The content, and some bytes of protocol around it.
	if acked < size || acked > size*1.01+twice {
		t.Errorf("%g bytes acknowledged of %g, of which %g were sent again on the other subflow", acked, size, twice)
	}
	exporter.stop(t)
}

// Whoever may make a namespace may give an interface a name that is not UTF-8, and send through it: the
// exporter shows that connection, too.
func TestInterfaceNotUTF8(t *testing.T) {
	dts := loaded.DTS(t, nil)
	host, _, _ := twoPaths(t)
	const name = "\xff\xfe\xfd"
	for _, change := range [][]string{{"lo", "down"}, {"lo", "name", name}, {name, "up"}} {
		ip := host.Command(t.Context(), "ip", append([]string{"link", "set", "dev"}, change...)...)
		if out, err := ip.CombinedOutput(); err != nil {
			t.Fatalf("ip link set dev %q: %v: %s", change, err, out)
		}
	}
	exporter := start(t, host, "")
	var ln *mptcp.Listener
	var conn *net.TCPConn
	err := host.Do(func() (err error) {
		ln, err = mptcp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), "")
		if err != nil {
			return err
		}
		conn, err = mptcp.Dial(t.Context(), ln.Addr(), mptcp.Options{CC: dts.Name})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	defer conn.Close()
	s := exporter.scrape(t)
	for _, metric := range []string{"mpcc_subflow_cwnd_packets", "mpcc_subflows_opened_total"} {
		if !slices.ContainsFunc(slices.Collect(maps.Values(s[metric])), func(m *dto.Metric) bool {
			return label(m, "netns") == host.Namespace() && label(m, "iface") != ""
		}) {
			t.Errorf("%s does not show the connection: %v", metric, s[metric])
		}
	}
	exporter.stop(t)
}

// The exporter goes on while the maps go and come back.
func TestMapsGoAndComeBack(t *testing.T) {
	dts := loaded.DTS(t, nil)
	sender, _, _ := twoPaths(t)
	exporter := start(t, sender, "")
	lost := func() int { return len(exporter.scrape(t)["mpcc_lost_subflows_total"]) }
	if lost() != 1 {
		t.Error("nothing shown while dts is loaded")
	}
	if _, err := loader.Unload(t.Context(), dts); err != nil {
		t.Fatal(err)
	}
	s := exporter.scrape(t)
	if len(s["mpcc_lost_subflows_total"]) != 0 {
		t.Error("series though nothing is loaded")
	}
	if got := s["mpcc_collector_success"]["collector=telemetry"].GetGauge().GetValue(); got != 1 {
		t.Errorf("mpcc_collector_success %g though nothing is loaded", got)
	}
	if status, body := exporter.get(t, "/-/ready"); status != http.StatusOK {
		t.Errorf("not ready though nothing is loaded: %d %s", status, body)
	}
	if _, err := loader.Load(t.Context(), dts, loader.Options{}); err != nil {
		t.Fatal(err)
	}
	if lost() != 1 {
		t.Error("nothing shown after dts was loaded again")
	}
	exporter.stop(t)
}

func TestBasicAuth(t *testing.T) {
	sender, _, _ := twoPaths(t)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(file, []byte("basic_auth_users:\n  scraper: "+string(hash)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	exporter := start(t, sender, file)
	if status, _ := exporter.get(t, "/metrics"); status != http.StatusUnauthorized {
		t.Errorf("without a password: status %d", status)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("scraper", "secret")
	resp, err := exporter.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("with the password: status %d", resp.StatusCode)
	}
	exporter.stop(t)
}
