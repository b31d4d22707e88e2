// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/strictyaml"
)

// good uses every rule that bad breaks, one per line where it can.
const good = `name: try
title: A try
source: nobody
sweep:
  - {name: n, values: [2, 4], quick: [1]}
  - {name: cc, values: [lia, olia]}
repeats: 2
phases: {warmup: 1 s, measure: 10 s}
quick: {measure: 1 s}
hosts:
  - {name: user, mptcp: {subflows: 2, endpoints: [{link: wlan}, {link: umts}]}}
  - name: server
  - {name: many, count: 3}
routers: [core]
links:
  - {name: wlan, between: [user, core], rate: 10 Mbit/s, delay: 10 ms, jitter: 1 ms, queue: {packets: 50}}
  - {name: umts, between: [user, core], rate: 10 Mbit/s, queue: {red: {min: 5, max: 10, probability: 0.1, end: 20}}}
  - {name: lan, between: [core, server], energy: wlan}
  - {name: each, between: [many, core]}
users:
  - {name: phone, from: user, to: server, via: wlan, peer: lan, count: $(n), cc: $(cc), traffic: bulk}
  - {name: cross, from: many, to: many, transport: udp, traffic: bursts, rate: 1 Mbit/s, on: 1 s, off: 2 s}
  - {name: web, from: user, to: server, direction: down, traffic: http, size: 16 KB}
events:
  - {at: 5 s, link: wlan, state: down}
expect:
  values:
    - {metric: goodput, of: phone, at: {n: 2}, kind: published, value: 1, source: table 1}
  claims:
    - {text: more, source: here, metric: loss, of: wlan, is: within, bound: 1, margin: 0.5}
  figures:
    - {title: A figure, kind: lines, metric: path_goodput, of: phone/wlan, over: n}
`

func TestGood(t *testing.T) {
	if _, err := Parse("try.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
}

// mistakes are changes of good, where they are found and what is said of them.
var mistakes = []struct{ old, new, place, want string }{
	// YAML
	{"title: A try", "title: [", "1:1", "no YAML, here or further down: did not find"},
	{"title: A try", "title: A try\n---", "3:1", "a second document begins: a file holds one"},
	{"title: A try", "title: A try\ntitle: B", "3:1", "key title is there twice: leave one"},
	{"title: A try", "title:", "2:7", "title is empty: leave the key out, or fill it in"},
	{"title: A try", `title: " "`, "2:8", "title: nothing is given"},
	{"title: A try", "[a]: b", "2:1", "a key is not a single word"},
	// Shape
	{"title: A try", "titel: A try", "2:1", "unknown key titel in the scenario: did you mean title?"},
	{"title: A try\n", "", "1:1", "the scenario lacks title"},
	{"title: A try", "title: {a: b}", "2:8", "title is not a single value"},
	{"quick: {measure: 1 s}", "quick: 1 s", "9:8", "quick is not a mapping of keys"},
	{"routers: [core]", "routers: core", "14:10", "routers is not a list"},
	{"{link: wlan}, {link: umts}", "{links: wlan}", ":52", "unknown key links in an entry of endpoints: did you mean link?"},
	// Words and numbers
	{"name: try", "name: Try", "1:7", `name: name "Try": use 1 to 20 of a-z, 0-9 and -`},
	{"name: lan,", "name: lo,", ":12", `link name "lo": use 1 to 15`},
	{"name: n,", "name: N,", ":12", `variable "N": use 1 to 32`},
	{"repeats: 2", "repeats: two", "7:10", `repeats: "two" is not a whole number`},
	{"repeats: 2", "repeats: 0", "7:10", "repeats: 0 is not from 1 to 1000"},
	{"repeats: 2", "seed: -1", "7:7", `seed: "-1" is not a whole number from 0 on`},
	{"probability: 0.1", "probability: much", ":", `"much" is not a number`},
	{"probability: 0.1", "probability: 1.5", ":", "1.5 is not from 0.001 to 1"},
	{"probability: 0.1", "probability: .nan", ":", `".nan" is not a number`},
	{"end: 20", "end: 20, ecn: yes", ":", `"yes" is not true or false`},
	{"warmup: 1 s", "warmup: 1", "8:18", `warmup: "1" is no number with a unit of ns, us, ms, s, min, h: write it like 150 ms`},
	{"warmup: 1 s", "warmup: 2 h", "8:18", "2 h is not from 0 s to 1 h"},
	{"warmup: 1 s", "warmup: 1e300 s", "8:18", "1e300 s is too much"},
	{"rate: 1 Mbit/s", "rate: 1 Mbps", ":", `"1 Mbps" is no number with a unit of bit/s, kbit/s, Mbit/s, Gbit/s`},
	{"size: 16 KB", "size: 16 kb", ":", "write it like 16 MB"},
	{"jitter: 1 ms", "loss: 200 %", ":", "200 % is not from 0 % to 100 %"},
	{"jitter: 1 ms", "loss: 0.1", ":", `write it like 1 %`},
	{"traffic: bulk", "traffic: much", ":", `"much" is not one of bulk, file, http, iperf3, constant, bursts`},
	{"{link: wlan}", "{link: wlan, flags: [main]}", ":", `"main" is not one of subflow, signal, backup, fullmesh`},
	// Variables
	{"name: try", "name: $(cc)", "1:7", "nothing varies here: write it without $(…)"},
	{"$(n)", "$(m)", ":", "$(m): unknown name m: there are the variables cc, n, and the functions"},
	{"$(n)", "$(n / 4)", ":", `count: "0.5" is not a whole number`},
	{"$(n)", "$(n - 2)", ":", "count: 0 is not from 1 to 10000"},
	{"$(n)", "$(n", ":", "has no closing parenthesis"},
	{"$(n)", "$(nil)", ":", "is neither a number, a word, true nor false"},
	{"$(n)", "$(n % 0)", ":", "$(n % 0): integer divide by zero"},
	{"{name: cc,", "{name: n,", ":12", "there is another variable n"},
	{"{name: cc,", "{name: max,", ":12", "max is a function of expressions"},
	{"[lia, olia]", "[lia, lia]", ":", "cc is lia twice: leave one"},
	{"[lia, olia]", "[]", ":", "variable cc has no values"},
	// Network
	{"name: server", "name: user", ":11", "there is another host or router user"},
	{"routers: [core]", "routers: [many-0]", "14:11", "there is another host or router many-0"},
	{"name: umts, b", "name: wlan, b", ":12", "there is another link wlan"},
	{"name: lan,", "name: lan-back,", ":12", "link lan-back: results call the way back of a link NAME-back"},
	{"[core, server]", "[core, serber]", ":", "link lan: no host or router serber: there are core, user, server, many"},
	{"[core, server]", "[core, core]", ":", "link lan: between takes two different hosts or routers"},
	{"[core, server]", "[core]", ":", "link lan: between takes two different"},
	{"[many, core]", "[many, pair]}\n  - {name: two, between: [many, core]", ":", "no host or router pair"},
	{"jitter: 1 ms", "jitter: 20 ms", ":", "jitter 20 ms is above the delay 10 ms"},
	{"jitter: 1 ms", "reorder: true", "16:81", "reorder without jitter: no packet would overtake another"},
	{"{packets: 50}", "{packets: 50, bytes: 64 KB}", ":", "a queue of 2 kinds: give one of packets, bytes, red"},
	{"{packets: 50}", "{bytes: 64 KB, aqm: pie}", ":", "pie without a queue in packets: give packets"},
	{"{packets: 50}", "{packets: 50, aqm: cake}", ":", "aqm"},
	{"rate: 10 Mbit/s, delay", "delay", ":", "a queue without a rate: nothing would ever wait in it"},
	{"max: 10,", "max: 5,", ":", "max 5 is not above min 5"},
	{"end: 20", "end: 8", ":", "end 8 is below max 10"},
	{"end: 20", "end: 2000", ":", "the rise from max to end is flatter than the one before"},
	{"{min: 5", "{per: 100 Mbit/s, min: 5", ":", "min is 0.5 packets at 10 Mbit/s: RED needs at least 1"},
	{"energy: wlan", "energy: wifi", ":", "no energy profile wifi: there are wlan, 3g,"},
	{"energy: wlan", "price: wifi", ":", "no energy profile wifi: there are wlan, 3g,"},
	{"energy: wlan", "energy: wlan, price: 3g", "18:63", "link lan has energy and price: its sender can spare one end's energy, not both"},
	{"{link: umts}", "{link: each}", ":", "user has no link each: it has wlan, umts"},
	{"{link: umts}", "{link: umts, addresses: 8}", ":", "9 addresses: the kernel takes 8 endpoints"},
	{"routers: [core]", "routers: [core]\ngenerate: [{name: dc}]", "15:19", "dc is of 0 kinds: give one of fat_tree, vl2, bcube"},
	{"routers: [core]", "routers: [core]\ngenerate: [{name: dc, fat_tree: {ports: 3}}]", "15:41", "3 ports: a fat tree's switches have an even number"},
	{"routers: [core]", "routers: [core]\ngenerate: [{name: dc, bcube: {ports: []}}]", "15:38", "0 levels: use 1 to 8"},
	{"routers: [core]", "routers: [core]\ngenerate: [{name: dc, bcube: {ports: [64, 64]}}]", "15:38", "4096 hosts: use at most 1024"},
	{"routers: [core]", "routers: [core]\ngenerate: [{name: dc, vl2: {racks: 256, hosts: 64, aggregations: 2, intermediates: 1}}]", "15:36", "16384 hosts: use at most 1024"},
	{"routers: [core]", "routers: [core]\ngenerate: [{name: user, fat_tree: {ports: 2}}]", "15:19", "there is another host or router user"},
	{"routers: [core]", "routers: [core]\ngenerate: [{name: dc, fat_tree: {ports: 16}}]", "1:7", "hosts and routers with"},
	// Tunables
	{"routers: [core]", "routers: [core]\ntunables: [papr]", "15:12", `tunables: "papr" is no setting: use paper, name=value or default`},
	{"routers: [core]", "routers: [core]\ntunables: [paper=1]", "15:12", `tunables: "paper=1" is no setting: use paper, name=value or default`},
	{"routers: [core]", "routers: [core]\ntunables: [=1]", "15:12", `tunables: "=1" is no setting`},
	{"routers: [core]", "routers: [core]\ntunables: [paper, paper]", "15:19", "tunables: paper is there twice: leave one"},
	{"routers: [core]", "routers: [core]\ntunables: paper", "15:11", "tunables is not a list"},
	{"routers: [core]", "routers: [core]\ntunables: [paper, metric=cubic]", "15:19", `tunables: metric of olia is not "cubic": use rate|square`},
	{"routers: [core]", "routers: [core]\ntunables: [weight=fair]", "15:12", "tunables: none of lia, olia has a tunable weight: there are "},
	{"routers: [core]", "routers: [core]\ntunables: [\"$(cc == 'lia' ? 'metric=rate' : 'weight=fair')\"]", "15:12", "tunables: none of olia has a tunable weight"},
	// Users
	{"to: server, via", "to: serber, via", ":", "phone: no host serber: there are many, server, user"},
	{"to: server, via", "to: core, via", ":", "phone: no host core"},
	{"to: server, via", "to: user, via", ":", "phone: user would send to itself"},
	{"via: wlan", "via: lan", ":", "user has no link lan: it has wlan, umts"},
	{"peer: lan", "peer: wlan", ":", "server has no link wlan: it has lan"},
	{"[core, server]", "[many, server]", "21:35", "phone: no way from user to server: join them by links and routers"},
	{"cc: $(cc)", "cc: $(cc)_but_much_longer", ":", `is no algorithm's name: use 1 to 15`},
	{"transport: udp,", "transport: udp, scheduler: minrtt,", ":", "cross: udp has no packet scheduler"},
	{"name: cross", "name: phone", ":12", "there is another class of users phone"},
	{"size: 16 KB", "files: 2", ":", "web: http traffic needs size"},
	{"rate: 1 Mbit/s, on", "on", ":", "cross: bursts traffic needs rate"},
	{"on: 1 s, ", "", ":", "cross: bursts traffic needs on"},
	{", off: 2 s", "", ":", "cross: bursts traffic needs off"},
	{"traffic: bulk", "traffic: bulk, size: 1 MB", ":", "phone: size says nothing about bulk traffic: leave it out"},
	{"traffic: bulk", "traffic: bulk, alpha: 2", ":", "phone: alpha says nothing about bulk traffic"},
	{"traffic: bulk", "traffic: bulk, transport: udp", ":", "phone: bulk traffic is not for udp"},
	{"direction: down, traffic: http", "traffic: http", ":", "web: http traffic goes down: say direction: down"},
	// Events
	{"link: wlan, state", "link: wan, state", ":", "no link wan: there are wlan, umts, lan, each-0, each-1, each-2"},
	{"at: 5 s", "at: 11 s", ":", "the run is over after 11 s: let it come earlier"},
	{", state: down", "", ":", "the event changes nothing: give state, rate, delay or loss"},
	{"state: down", "delay: 100 us", ":", "delay 100 us is below the link's jitter 1 ms"},
	// Expectations
	{"metric: goodput", "metric: goodness", ":", `unknown metric "goodness"`},
	{"of: phone,", "of: phones,", ":", "goodput is of a class or nothing, not \"phones\": there are cross, phone, web"},
	{"of: wlan, is", "of: wan, is", ":", `loss is of a link, not "wan": there are each-0,`},
	{"phone/wlan", "phone/each", ":", `path_goodput is of a class/interface, not "phone/each"`},
	{"at: {n: 2}", "at: {m: 2}", ":", "no variable m: there are n, cc"},
	{"over: n", "over: m", ":", "no variable m: there are n, cc"},
	{", over: n", "", ":", "lines need over"},
	{"kind: published", "kind: guessed", ":", `"guessed" is not one of published, theory, optimum`},
	{"kind: lines", "kind: pie", ":", `"pie" is not one of traces, box, bars, lines`},
	{"kind: lines", "kind: traces", ":", "traces are of one of cwnd, sequence, srtt, rate, not of path_goodput"},
	{"is: within", "is: near", ":", `"near" is not one of above, below, within`},
	{", margin: 0.5", "", ":", "margin is for within, and within needs one above 0"},
	{"is: within", "is: above", ":", "margin is for within"},
}

// Each rule, broken: what a line of good becomes, and what is said of it.
func TestBad(t *testing.T) {
	line := func(start string) int {
		for i, l := range strings.Split(good, "\n") {
			if strings.Contains(l, start) {
				return i + 1
			}
		}
		t.Fatalf("good has no %q", start)
		return 0
	}
	for _, c := range mistakes {
		at := line(strings.Split(c.old, "\n")[0])
		_, err := Parse("try.yaml", []byte(strings.Replace(good, c.old, c.new, 1)))
		var found strictyaml.Problems
		if !errors.As(err, &found) {
			t.Errorf("%q: no problems but %v", c.new, err)
			continue
		}
		place := c.place
		if strings.HasPrefix(place, ":") {
			place = fmt.Sprintf("%d%s", at, place)
		}
		said := func(p strictyaml.Problem) bool {
			return strings.HasPrefix(p.Error(), "try.yaml:"+place) && strings.Contains(p.Text, c.want)
		}
		if !slices.ContainsFunc(found, said) {
			t.Errorf("%q: want try.yaml:%s … %s, got\n%v", c.new, place, c.want, err)
		}
		for _, p := range found {
			if strings.Contains(p.Text, "\n") {
				t.Errorf("%q: the problem is more than a line:\n%v", c.new, p)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "try.yaml:1:1: the file is empty"},
		"comment":     {"# nothing", "try.yaml:1:1: the file is empty"},
		"not a map":   {"- a", "try.yaml:1:1: the scenario is not a mapping"},
		"large":       {strings.Repeat("#", 1<<20+1), "try.yaml:1:1: the file is above"},
		"many points": {strings.Replace(good, "[2, 4]", "[1"+strings.Repeat(", 1", 600)+"]", 1), "above 1000 points"},
		"aliases": {strings.Replace(good, "source: nobody", "source: nobody\nnotes: &a [a"+strings.Repeat(", a", 400)+
			"]\nevents: [*a"+strings.Repeat(", *a", 400)+"]", 1), "try.yaml:"},
		"alias of itself": {"name: &a\n  b: *a\n", "try.yaml:"},
	} {
		if _, err := Parse("try.yaml", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", name, c.want, err)
		}
	}
}

// Problems come in the order of the file, all at once.
func TestProblemsTogether(t *testing.T) {
	text := strings.NewReplacer("delay: 10 ms", "delay: 10", "traffic: bulk", "traffic: much", "state: down", "state: gone").Replace(good)
	_, err := Parse("try.yaml", []byte(text))
	var lines []string
	for _, l := range strings.Split(fmt.Sprint(err), "\n") {
		lines = append(lines, regexp.MustCompile(`:([0-9]+):`).FindStringSubmatch(l)[1])
	}
	if want := []string{"16", "21", "25"}; !slices.Equal(lines, want) {
		t.Errorf("problems in lines %v, not %v:\n%v", lines, want, err)
	}
}

func TestRuns(t *testing.T) {
	f, err := Parse("try.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	seeds := map[int]uint64{}
	for _, r := range f.Runs(false) {
		u := r.Scenario.Users[0]
		got = append(got, fmt.Sprintf("%v/%d: %d %s", r.Point, r.Repeat, u.Count, u.CC))
		if seed, seen := seeds[r.Repeat]; seen && seed != r.Seed {
			t.Errorf("repeat %d has another seed at %v", r.Repeat, r.Point)
		}
		seeds[r.Repeat] = r.Seed
	}
	want := []string{
		"map[cc:lia n:2]/0: 2 lia", "map[cc:lia n:2]/1: 2 lia", "map[cc:olia n:2]/0: 2 olia", "map[cc:olia n:2]/1: 2 olia",
		"map[cc:lia n:4]/0: 4 lia", "map[cc:lia n:4]/1: 4 lia", "map[cc:olia n:4]/0: 4 olia", "map[cc:olia n:4]/1: 4 olia",
	}
	if !slices.Equal(got, want) {
		t.Errorf("runs are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if seeds[0] == seeds[1] {
		t.Error("both repeats have the same seed")
	}

	quick := f.Runs(true)
	if len(quick) != 4 || quick[0].Scenario.Users[0].Count != 1 || quick[0].Scenario.Phases.Measure.String() != "1 s" ||
		quick[0].Scenario.Phases.Warmup.String() != "1 s" {
		t.Errorf("the short form is %d runs, the first %+v", len(quick), quick[0].Scenario)
	}
	if axes := f.Axes(true); axes[0].Values[0] != "1" || len(axes[1].Values) != 2 {
		t.Errorf("the short form's axes are %v", axes)
	}
}

func TestDefaults(t *testing.T) {
	f, err := Parse("try.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	u := f.Users[2]
	if u.Transport != "mptcp" || u.CC != "reno" || u.Scheduler != "default" || u.Count != 1 || u.Files != 1 || f.Seed != 1 {
		t.Errorf("left out keys are %+v, seed %d", u, f.Seed)
	}
	if e := f.Hosts[0].MPTCP.Endpoints[0]; e.Addresses != 1 || !slices.Equal(e.Flags, []string{"subflow"}) {
		t.Errorf("left out keys of an endpoint are %+v", e)
	}
}

func TestSet(t *testing.T) {
	f, err := Parse("try.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Set("cc", "balia")
	if err != nil {
		t.Fatal(err)
	}
	if runs := g.Runs(true); len(runs) != 2 || runs[0].Point["cc"] != "balia" || runs[0].Scenario.Users[0].CC != "balia" {
		t.Errorf("runs are %v", runs)
	}
	again, err := Parse("again.yaml", []byte(g.YAML()))
	if err != nil || again.Axes(false)[1].Values[0] != "balia" {
		t.Errorf("its YAML gives %v, %v", again, err)
	}
	if f.Axes(false)[1].Values[0] != "lia" {
		t.Error("Set changed the file it was called of")
	}
	if _, err := f.Set("scheduler", "minrtt"); err == nil || err.Error() != "try.yaml has no variable scheduler: it has n, cc" {
		t.Errorf("another variable: %v", err)
	}
}

// A variable is a number only where all its values are.
func TestExpressions(t *testing.T) {
	for _, c := range []struct{ values, code, want string }{
		{"[2, 4]", "n * 10", "20"},
		{"[2, 4]", "n / 4", "0.5"},
		{"[2.5, 4]", "ceil(n)", "3"},
		{"[2, 4]", "min(n, 1)", "1"},
		{"[2, 4]", "n == 2 ? 'few' : 'many'", "few"},
		{"[2, many]", "n == '2'", "true"},
		{"[2, many]", "n in ['many', '3']", "false"},
		{"[2, 4]", "'a)b'", "a)b"},
	} {
		text := strings.Replace(good, "[2, 4]", c.values, 1)
		text = strings.Replace(text, "count: $(n), cc: $(cc)", "cc: reno", 1)
		f, err := Parse("try.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := compute(c.code, environment(f.Sweep, result.Point{"n": strings.Trim(strings.Split(c.values, ",")[0], "["), "cc": "lia"}))
		if err != nil || got != c.want {
			t.Errorf("$(%s) with n of %s is %q, %v; not %q", c.code, c.values, got, err, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	if _, err := Load("nowhere"); err == nil || !strings.Contains(err.Error(), "no scenario nowhere: there are ") {
		t.Errorf("an unknown name: %v", err)
	}
	if _, err := Load("scenario-d"); err == nil || !strings.Contains(err.Error(), "no scenario scenario-d: did you mean scenario-a? ") {
		t.Errorf("a mistyped name: %v", err)
	}
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := Load(path); err != nil || f.Name != "try" {
		t.Errorf("a file: %v", err)
	}
	if _, err := Load(path + "/none"); err == nil {
		t.Error("no error for a path that is not there")
	}
}

// Whatever is written, the answer is a scenario or problems with a place.
func FuzzParse(f *testing.F) {
	f.Add(good)
	for _, name := range Names() {
		file, err := Load(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file.YAML())
	}
	for _, text := range []string{"", "a: *a", "&a {a: *a}", "sweep: [{name: n, values: [~]}]", "users: [[]]", "sweep: [~]", "? {}\n: []",
		"when: $(", "links: [{between: }]", "!!binary a: b", "\xff", "hosts: [{when: {}}]", "%YAML 9"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("fuzz.yaml", []byte(text))
		var found strictyaml.Problems
		switch {
		case err == nil:
			for _, quick := range []bool{false, true} {
				for _, r := range file.Runs(quick)[:1] {
					r.Network()
				}
			}
		case !errors.As(err, &found):
			t.Errorf("not a problem of the file: %v", err)
		default:
			for _, p := range found {
				if p.Line < 1 || p.Column < 1 || p.Text == "" {
					t.Errorf("no place or text: %+v", p)
				}
			}
		}
	})
}

// Every link knows where the file has it.
func TestPlace(t *testing.T) {
	text := strings.Replace(good, "routers: [core]", "routers: [core]\ngenerate: [{name: dc, fat_tree: {ports: 2}}]", 1)
	f, err := Parse("try.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	places := map[LinkName]string{}
	for _, l := range f.Runs(false)[0].Network().Links {
		places[l.Name] = l.Place
	}
	for link, want := range map[LinkName]string{
		"wlan": "try.yaml:17:5", "each-2": "try.yaml:20:5", "dc-0-eth0": "try.yaml:15:12", "dc-edge-0-dc-agg-0": "try.yaml:15:12",
	} {
		if places[link] != want {
			t.Errorf("link %s is at %s, not %s", link, places[link], want)
		}
	}
}
