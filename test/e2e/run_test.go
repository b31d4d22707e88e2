// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/loaded"
)

// leftovers is what a run may have on the machine while it lasts.
func leftovers(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, pattern := range []string{
		"/sys/fs/bpf/mpcc/cc/*", "/sys/fs/bpf/mpcc/sched/*", "/sys/fs/bpf/mpcc", "/run/netns/*",
		"/run/mpcc/lab/*", "/run/mpcc/files/*", "/run/mpcc/run/*", "/run/mpcc/pieces", "/sys/class/net/*",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			found[path] = true
		}
	}
	delete(found, "/run/mpcc/run/lock")
	pieces, err := os.ReadFile("/proc/sys/net/core/high_order_alloc_disable")
	if err != nil {
		t.Fatal(err)
	}
	found["net.core.high_order_alloc_disable = "+string(pieces)] = true
	return found
}

// leavesNothing makes the test fail if mpcc run leaves anything behind.
func leavesNothing(t *testing.T) {
	t.Helper()
	before := leftovers(t)
	t.Cleanup(func() {
		if after := leftovers(t); !maps.Equal(before, after) {
			t.Errorf("left behind: before %v, after %v", before, after)
			mpcc(t, "run", "--clean") // for the tests to come
		}
	})
}

// experiment runs a scenario in its short form, and wants it to leave nothing.
func experiment(t *testing.T, args ...string) *result.Result {
	t.Helper()
	leavesNothing(t)
	return runQuick(t, args...)
}

func runQuick(t *testing.T, args ...string) *result.Result {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "results")
	start := time.Now()
	out := mpcc(t, append([]string{"run", "--quick", "--out", folder}, args...)...)
	t.Logf("%v\n%s", time.Since(start), out)
	r, err := result.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile(filepath.Join(folder, "report.html")); err != nil || !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("the report has no plot: %d bytes, %v", len(page), err)
	}
	for _, one := range r.Runs {
		rows := 0
		err := one.ReadSamples(func(result.Sample) { rows++ })
		if err != nil || rows == 0 {
			t.Errorf("%v: %d samples, %v", one.Point, rows, err)
		}
	}
	return r
}

// shortened writes a scenario that mpcc brings to a file, with these phases for its short form.
func shortened(t *testing.T, file *scenario.File, phases string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "scenario.yaml")
	text := regexp.MustCompile(`(?m)^quick: .*$`).ReplaceAllString(file.YAML(), "quick: {"+phases+"}")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every scenario that mpcc brings comes to its end, at the first point of its
// sweep: all users get something through, multipath ones on more than one
// interface where they have several. As nothing is compared, 4 s have to do, in which
// a SYN is sent twice where thirty users overload a link as they begin, but where the
// users' files are to end the run, or pauses come before their bursts.
func TestOwnTimeRunEveryScenario(t *testing.T) {
	withSchedulers(t)
	for _, name := range scenario.Names() {
		if strings.HasPrefix(name, "choose-") && name != "choose-train" {
			continue // they are made of what others have; the train has traces
		}
		t.Run(name, func(t *testing.T) {
			file, err := scenario.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{name, "--repeats", "1"}
			brief := regexp.MustCompile(`(?m)^quick: .*measure: (\d|10) s`).MatchString(file.YAML())
			if brief && !strings.Contains(file.YAML(), "traffic: bursts") {
				args[0] = shortened(t, file, "warmup: 500 ms, measure: 3500 ms")
			}
			for _, axis := range file.Axes(true) {
				args = append(args, "--set", axis.Name+"="+axis.Values[0])
			}
			r := experiment(t, args...)
			if !r.Quick || r.Scenario.Name != name {
				t.Errorf("the results are of %s, quick %v", r.Scenario.Name, r.Quick)
			}
			if len(r.Runs) != 1 {
				t.Errorf("%d runs at one point", len(r.Runs))
			}
			used := map[string]map[string]bool{} // interfaces, by class
			for _, one := range r.Runs {
				if len(one.Links) == 0 || one.Measured <= 0 {
					t.Errorf("%v: %d links, measured for %v s", one.Point, len(one.Links), one.Measured)
				}
				for _, class := range one.Classes {
					bytes := uint64(0)
					for _, u := range class.Users {
						bytes += u.Bytes
						for _, s := range u.Subflows {
							if used[class.Name] == nil {
								used[class.Name] = map[string]bool{}
							}
							if s.Bytes > 0 && class.Multipath {
								used[class.Name][s.Interface] = true
							}
						}
					}
					if bytes == 0 {
						t.Errorf("%v: the users of %s got nothing through", one.Point, class.Name)
					}
				}
			}
			for class, host := range severalLinks(file) {
				if len(used[class]) < 2 {
					t.Errorf("%s on %s used %v alone", class, host, slices.Collect(maps.Keys(used[class])))
				}
			}
		})
	}
}

// severalLinks are the multipath classes whose host has several links, at the
// scenario's first point.
func severalLinks(file *scenario.File) map[string]scenario.Name {
	network := file.Runs(true)[0].Network()
	links := map[scenario.Name]int{}
	for _, l := range network.Links {
		for _, h := range l.Between {
			links[h]++
		}
	}
	several := map[string]scenario.Name{}
	for _, class := range network.Classes {
		if from := class.Members[0].From; class.Transport == scenario.OverMPTCP && links[from] > 1 {
			several[string(class.Name)] = from
		}
	}
	return several
}

// OLIA leaves more than LIA does to those who have the shared access point
// alone: 0.72 against 0.38 of their share, by the paper. It takes windows some
// ten seconds to get there, longer than the short form lasts.
func TestOwnTimeRunOrdersLIAAndOLIA(t *testing.T) {
	file, err := scenario.Load("scenario-c")
	if err != nil {
		t.Fatal(err)
	}
	path := shortened(t, file, "warmup: 10 s, measure: 10 s")
	r := experiment(t, path, "--cc", "lia,olia", "--set", "n1=30", "--repeats", "1")
	metric, err := result.FindMetric("goodput")
	if err != nil {
		t.Fatal(err)
	}
	single := map[string]float64{}
	for i := range r.Runs {
		if r.Runs[i].Measured < 9 {
			t.Errorf("measured for %v s instead of 10", r.Runs[i].Measured)
		}
		single[r.Runs[i].Point["cc"]], _ = metric.Value(&r.Runs[i], "single")
	}
	if single["olia"] <= single["lia"] {
		t.Errorf("single-path users get %.3f Mbit/s beside LIA and %.3f beside OLIA", single["lia"], single["olia"])
	}
}

// short is a scenario of some seconds.
const short = `
name: short
title: A short run
source: none
phases: {measure: 3 s}
hosts: [{name: a}, {name: b}]
links:
  - {name: one, between: [a, b], rate: 10 Mbit/s, delay: 5 ms}
  - {name: two, between: [a, b], rate: 10 Mbit/s, delay: 5 ms}
users: [{name: user, from: a, to: b, cc: lia, traffic: bulk}]
`

// Other people's programs as users: what arrives is theirs to count, and what
// their subflows do is in the maps.
func TestOwnTimeRunPrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "programs.yaml")
	text := `
name: programs
title: iperf3, curl and nginx
source: none
phases: {warmup: 500 ms, measure: 20 s}
hosts: [{name: a}, {name: b}, {name: c}, {name: up}, {name: down}, {name: web}]
routers: [mid] # its answers come by either link
links:
  - {name: one, between: [a, up], rate: 10 Mbit/s}
  - {name: two, between: [a, up], rate: 10 Mbit/s}
  - {name: three, between: [b, down], rate: 10 Mbit/s}
  - {name: four, between: [c, mid], rate: 10 Mbit/s, energy: wlan}
  - {name: five, between: [c, mid], rate: 10 Mbit/s, energy: wlan}
  - {name: six, between: [mid, web]}
users:
  - {name: up, from: a, to: up, cc: lia, traffic: iperf3}
  - {name: down, from: b, to: down, transport: tcp, cc: cubic, direction: down, traffic: iperf3}
  - {name: web, from: c, to: web, cc: olia, direction: down, traffic: http, size: 300 KB, files: 3, start: 600 ms}
  - {name: endless, from: b, to: down, transport: tcp, cc: cubic, traffic: constant, rate: 100 kbit/s}
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r := experiment(t, path)
	for _, class := range r.Runs[0].Classes {
		u := class.Users[0]
		mbps := float64(u.Bytes) * 8 / 1e6 / r.Runs[0].Measured
		// At most what the links carry, and what passed before the measure and was counted in it.
		most := 10 * 1.05
		if class.Multipath {
			most *= 2
		}
		if mbps < 0.05 || mbps > most {
			t.Errorf("%s: %.2f Mbit/s", class.Name, mbps)
		}
		if class.Multipath && (len(u.Subflows) != 2 || u.Subflows[0].Bytes == 0 || u.Subflows[1].Bytes == 0) {
			t.Errorf("%s: subflows %+v", class.Name, u.Subflows)
		}
	}
	web := r.Runs[0].Classes[2].Users[0]
	if len(web.Transfers) != 3 || web.Transfers[2].Seconds == nil || web.Energy == nil {
		t.Fatalf("web: %+v", web)
	}
	// 137 mJ/Mbit for the payload alone, and 132.9 mW for each interface while it moves anything.
	least := 0.137 * 8 * float64(web.Bytes) / 1e6
	if j := web.Energy.Joules; j < least || j > 1.1*least+2*0.1329*r.Runs[0].Measured {
		t.Errorf("web: %.3f J for a payload of %.3f J", j, least)
	}
}

// The sender's algorithms know what its interfaces cost, and the price of a path that costs its receiver.
func TestOneKernelRunPrices(t *testing.T) {
	withSchedulers(t)
	path := filepath.Join(t.TempDir(), "prices.yaml")
	text := `
name: prices
title: The fast path is dear
source: none
sweep:
  - {name: scheduler, values: [minrtt, emtcp]}
phases: {warmup: 2 s, measure: 4 s}
hosts:
  - name: client
    mptcp: {subflows: 1, add_addr_accepted: 1}
  - name: server
    mptcp: {subflows: 1, endpoints: [{link: lan2, flags: [signal]}]}
routers: [r1, r2]
links:
  - {name: lan1, between: [server, r1], price: wlan} # 137 mW and more for each Mbit/s
  - {name: lan2, between: [server, r2], price: 5g-mmwave-2021} # 1.7
  - {name: fast, between: [r1, client], rate: 10 Mbit/s, delay: 5 ms}
  - {name: slow, between: [r2, client], rate: 10 Mbit/s, delay: 20 ms}
users:
  - {name: user, from: client, to: server, via: fast, cc: lia, scheduler: $(scheduler), direction: down, traffic: constant, rate: 2 Mbit/s}
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	runs := experiment(t, path).Runs
	if len(runs) != 2 {
		t.Fatalf("%d runs of two schedulers", len(runs))
	}
	for _, run := range runs {
		bytes := map[string]uint64{}
		for _, s := range run.Classes[0].Users[0].Subflows {
			bytes[s.Interface] += s.Bytes
		}
		if cheap := run.Point["scheduler"] == "emtcp"; cheap != (bytes["slow"] > bytes["fast"]) {
			t.Errorf("%v: %v bytes", run.Point, bytes)
		}
	}
}

// Whatever way a run ends, nothing stays: on its own, by an error, by Ctrl-C,
// and after a kill with the next run or --clean.
func TestHostRunLeavesNothing(t *testing.T) {
	loaded.Turn(t)
	path := filepath.Join(t.TempDir(), "short.yaml")
	// The machine's kernel may have nothing for a delay, and nothing is measured.
	short := strings.NewReplacer(", delay: 5 ms", "", "3 s", "1 s").Replace(short)
	write := func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// start returns when users send.
	start := func(t *testing.T) *exec.Cmd {
		t.Helper()
		cmd := exec.Command(os.Getenv("MPCC_BIN"), "run", path, "--out", filepath.Join(t.TempDir(), "results"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sending := func() bool {
			names, _ := filepath.Glob("/run/netns/mpcc-*-a")
			if len(names) == 0 {
				return false
			}
			out, _ := exec.Command("ip", "netns", "exec", filepath.Base(names[0]), "ss", "-tnH").Output()
			return len(out) > 0
		}
		if !eventually(60*time.Second, sending) {
			t.Fatal("nobody sends a minute after the start")
		}
		return cmd
	}
	t.Run("end", func(t *testing.T) {
		write(t, short)
		r := experiment(t, path)
		for _, s := range r.Runs[0].Classes[0].Users[0].Subflows {
			if s.Bytes == 0 {
				t.Errorf("nothing went by %s", s.Interface)
			}
		}
	})
	t.Run("error", func(t *testing.T) {
		leavesNothing(t)
		write(t, strings.Replace(short, "cc: lia", "cc: nosuch", 1))
		out, err := exec.Command(os.Getenv("MPCC_BIN"), "run", path, "--out", filepath.Join(t.TempDir(), "results")).CombinedOutput()
		if err == nil || !strings.Contains(string(out), `congestion control "nosuch" is not available`) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("interrupt", func(t *testing.T) {
		leavesNothing(t)
		write(t, strings.Replace(short, "1 s", "10 min", 1))
		cmd := start(t)
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("an interrupted run ended as if it were complete")
		}
	})
	kill := func(t *testing.T) {
		t.Helper()
		write(t, strings.Replace(short, "1 s", "10 min", 1))
		cmd := start(t)
		before := leftovers(t)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // "signal: killed"
		if after := leftovers(t); !maps.Equal(before, after) {
			t.Errorf("a killed run had %v and left %v: nothing to clean", before, after)
		}
	}
	t.Run("kill and clean", func(t *testing.T) {
		leavesNothing(t)
		kill(t)
		mpcc(t, "run", "--clean")
	})
	t.Run("kill and run", func(t *testing.T) {
		leavesNothing(t)
		kill(t)
		write(t, short)
		runQuick(t, path)
	})
	// A run beside a killed one's leftovers, and one that the user has loaded
	// something for, leaves the user's.
	t.Run("loaded before", func(t *testing.T) {
		load(t, "lia")
		write(t, short)
		experiment(t, path)
	})
}

// Programs of dts run with what a scenario sets, also where its points set different things, and with nothing else.
func TestOneKernelRunTunables(t *testing.T) {
	dir := t.TempDir()
	write := func(name, tunables, measure string) string {
		path := filepath.Join(dir, name)
		// Nothing of these links is measured, in which a busy host would end a run.
		text := strings.ReplaceAll(short, ", rate: 10 Mbit/s, delay: 5 ms", "")
		text = strings.Replace(text, "cc: lia, traffic: bulk", "cc: dts, traffic: constant, rate: 100 kbit/s", 1) + `
sweep: [{name: tuning, values: [default, paper, cap=on]}]
tunables: ` + tunables + "\n"
		if err := os.WriteFile(path, []byte(strings.Replace(text, "3 s", measure, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want := map[string]map[string]string{"default": {}, "paper": paperOf(t, "dts"), "cap=on": {"cap": "on"}}
	var paper []string
	for name, value := range want["paper"] {
		paper = append(paper, name+"="+value)
	}
	slices.Sort(paper)
	differs := fmt.Sprintf("another run has loaded dts with %s, this one wants cap=on: wait until it has ended", strings.Join(paper, " "))
	constants := map[string][]byte{}
	for tuning, set := range want {
		constants[tuning] = constantsOf(t, "dts", set)
	}
	fails := func(t *testing.T, text string, args ...string) {
		t.Helper()
		args = append([]string{"run", "--out", filepath.Join(t.TempDir(), "results")}, args...)
		out, err := exec.Command(os.Getenv("MPCC_BIN"), args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), text) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: %s", err, out)
		}
	}

	t.Run("by points", func(t *testing.T) {
		leavesNothing(t)
		// dts with these constants may stay in the kernel for a while after an earlier test that loaded it has ended.
		for tuning, c := range constants {
			if !eventually(untilFreed, func() bool { return !loadedWith(t, c) }) {
				t.Fatalf("%v after the last test the kernel still has dts with %s", untilFreed, tuning)
			}
		}
		folder := filepath.Join(t.TempDir(), "results")
		cmd := exec.Command(os.Getenv("MPCC_BIN"), "run", write("points.yaml", "[$(tuning)]", "1 s"), "--out", folder)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		var seen []string // in the order of the points
		for ended := false; !ended; {
			for _, tuning := range []string{"default", "paper", "cap=on"} {
				if loadedWith(t, constants[tuning]) && !slices.Contains(seen, tuning) {
					seen = append(seen, tuning)
				}
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				ended = true
			case <-time.After(50 * time.Millisecond):
			}
		}
		if order := []string{"default", "paper", "cap=on"}; !slices.Equal(seen, order) {
			t.Errorf("the kernel had %v, the points have %v", seen, order)
		}
		r, err := result.Read(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range r.Runs {
			if got := one.Classes[0].CCTunables; !maps.Equal(got, want[one.Point["tuning"]]) {
				t.Errorf("the results of %v have %v", one.Point, got)
			}
		}
	})
	t.Run("beside another", func(t *testing.T) {
		leavesNothing(t)
		long := write("long.yaml", "[paper]", "10 min")
		cmd := exec.Command(os.Getenv("MPCC_BIN"), "run", long, "--set", "tuning=default", "--out", filepath.Join(t.TempDir(), "results"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !eventually(60*time.Second, func() bool { return loadedWith(t, constants["paper"]) }) {
			t.Error("dts is not loaded a minute after the start")
		}
		fails(t, differs, write("other.yaml", "[cap=on]", "1 s"))
		// The same tunables are shared, until they should change.
		fails(t, differs, write("points.yaml", "[$(tuning)]", "1 s"), "--set", "tuning=paper,cap=on")
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // "exit status 1"
	})
	t.Run("loaded before", func(t *testing.T) {
		load(t, "dts")
		leavesNothing(t)
		fails(t, "dts is loaded already, with ", write("paper.yaml", "[paper]", "1 s"))
	})
}

// tunablesOf returns a congestion control of mpcc and its tunables.
func tunablesOf(t *testing.T, cc string) (catalog.Entry, []loader.Tunable) {
	t.Helper()
	e, err := catalog.Find("cc/" + cc)
	if err != nil {
		t.Fatal(err)
	}
	tunables, err := loader.Tunables(e)
	if err != nil {
		t.Fatal(err)
	}
	return e, tunables
}

// paperOf returns the paper's values of a congestion control, where they are not the defaults.
func paperOf(t *testing.T, cc string) map[string]string {
	t.Helper()
	_, tunables := tunablesOf(t, cc)
	set := map[string]string{}
	for _, t := range tunables {
		if t.Paper != "" {
			set[t.Name] = t.Paper
		}
	}
	if set["min_cwnd"] == "" {
		t.Fatalf("%s has no min_cwnd of its paper's: %v", cc, set)
	}
	return set
}

// constantsOf returns what the kernel has as the constants of a congestion control with these tunables.
func constantsOf(t *testing.T, cc string, set map[string]string) []byte {
	t.Helper()
	e, tunables := tunablesOf(t, cc)
	spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range set {
		i := slices.IndexFunc(tunables, func(t loader.Tunable) bool { return t.Name == name })
		value := uint32(max(0, slices.Index(tunables[i].Words, text)))
		if tunables[i].Words == nil {
			if _, err := fmt.Sscan(text, &value); err != nil {
				t.Fatal(err)
			}
		}
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	return spec.Maps[".rodata"].Contents[0].Value.([]byte)
}

// loadedWith says whether the kernel has a map with these constants.
func loadedWith(t *testing.T, constants []byte) bool {
	t.Helper()
	for id := ebpf.MapID(0); ; {
		var err error
		if id, err = ebpf.MapGetNextID(id); err != nil {
			return false
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue // it is gone by now
		}
		value := make([]byte, m.ValueSize())
		there := m.Type() == ebpf.Array && int(m.ValueSize()) == len(constants) && m.Lookup(uint32(0), &value) == nil
		m.Close()
		if there && bytes.Equal(value, constants) {
			return true
		}
	}
}

// A run that waits for another says whose lock it waits for, and ends at once when it is told to.
func TestHostRunWaiting(t *testing.T) {
	loaded.Turn(t)
	const lock = "/run/mpcc/run/lock"
	path := filepath.Join(t.TempDir(), "short.yaml")
	if err := os.WriteFile(path, []byte(short), 0o644); err != nil {
		t.Fatal(err)
	}
	mpcc(t, "run", "--clean") // makes the lock
	holder := exec.Command("flock", "--no-fork", lock, "sleep", "1000")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}()
	if !eventually(10*time.Second, func() bool { return exec.Command("flock", "--nonblock", lock, "true").Run() != nil }) {
		t.Fatal("the lock is not held")
	}
	for _, args := range [][]string{{"run", path, "--out", filepath.Join(t.TempDir(), "results")}, {"run", "--clean"}} {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			want := fmt.Sprintf(`^mpcc: interrupted: %s is held by process %d \(sleep 1000\); waited .*\n$`, lock, holder.Process.Pid)
			interruptedWaiting(t, lock, signal, want, args...)
		}
	}
}
