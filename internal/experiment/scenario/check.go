// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/pkg/energy"
)

// The largest network. Each host is a namespace, each link a pair of devices.
const (
	maxHosts = 1024
	maxLinks = 4096
)

// check reports values that are valid by themselves, but not together.
func (d *decoder) check(s *Scenario) {
	d.names(s)
	for i := range s.Traces {
		d.trace(s, i)
	}
	for _, shape := range s.shapes() {
		d.traced(s, shape)
	}
	for i := range s.Generate {
		d.generator(&s.Generate[i])
	}
	for i := range s.Links {
		d.link(s, &s.Links[i])
	}
	if d.Err() != nil {
		return // the network cannot be built
	}
	b := build(s)
	if len(b.Hosts)+len(b.Routers) > maxHosts || len(b.Links) > maxLinks {
		d.At(&s.Name, "%d hosts and routers with %d links: use at most %d and %d",
			len(b.Hosts)+len(b.Routers), len(b.Links), maxHosts, maxLinks)
		return
	}
	for i := range s.Hosts {
		d.mptcp(b, s.Hosts[i].Name, s.Hosts[i].MPTCP)
		d.hostEnergy(s.Hosts[i].Energy)
	}
	for i := range s.Generate {
		d.mptcp(b, s.Generate[i].Name, s.Generate[i].MPTCP)
	}
	if len(s.Users) == 0 {
		d.At(&s.Users, "there are no users")
	}
	classes := map[Name]bool{}
	for i := range s.Users {
		u := &s.Users[i]
		if classes[u.Name] {
			d.At(&u.Name, "there is another class of users %s: give it a name of its own", u.Name)
		}
		classes[u.Name] = true
		d.user(b, u)
		d.traffic(u)
	}
	for i := range s.Events {
		d.event(b, s, &s.Events[i])
	}
	d.tunables(s)
}

// names reports hosts and links that have the same name.
func (d *decoder) names(s *Scenario) {
	taken := map[string]bool{}
	name := func(field any, noun, name string) {
		if taken[noun+" "+name] {
			d.At(field, "there is another %s %s: give it a name of its own", noun, name)
		}
		taken[noun+" "+name] = true
	}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		name(&h.Name, "host or router", string(h.Name))
		if h.Count != nil {
			for n := range *h.Count {
				name(&h.Name, "host or router", string(numbered(h.Name, n)))
			}
		}
	}
	for i := range s.Routers {
		name(&s.Routers[i], "host or router", string(s.Routers[i]))
	}
	for i := range s.Generate {
		name(&s.Generate[i].Name, "host or router", string(s.Generate[i].Name))
	}
	for i := range s.Links {
		l := &s.Links[i]
		if strings.HasSuffix(string(l.Name), "-back") {
			d.At(&l.Name, "link %s: results call the way back of a link NAME-back: use another name", l.Name)
		}
		name(&l.Name, "link", string(l.Name))
	}
}

func (d *decoder) generator(g *Generate) {
	kinds := 0
	for _, given := range []bool{g.FatTree != nil, g.VL2 != nil, g.BCube != nil} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		d.At(&g.Name, "%s is of %d kinds: give one of fat_tree, vl2, bcube", g.Name, kinds)
	case g.FatTree != nil && g.FatTree.Ports%2 != 0:
		d.At(&g.FatTree.Ports, "%d ports: a fat tree's switches have an even number", g.FatTree.Ports)
	case g.BCube != nil && (len(g.BCube.Ports) == 0 || len(g.BCube.Ports) > maxEndpoints):
		d.At(&g.BCube.Ports, "%d levels: use 1 to %d", len(g.BCube.Ports), maxEndpoints)
	case g.BCube != nil && product(g.BCube.Ports) > maxHosts:
		d.At(&g.BCube.Ports, "%d hosts: use at most %d", product(g.BCube.Ports), maxHosts)
	case g.VL2 != nil && g.VL2.Racks*g.VL2.Hosts > maxHosts:
		d.At(&g.VL2.Racks, "%d hosts: use at most %d", g.VL2.Racks*g.VL2.Hosts, maxHosts)
	}
	d.shape(&g.Access)
	d.shape(&g.Fabric)
	d.energy(&g.Energy)
}

func (d *decoder) link(s *Scenario, l *Link) {
	d.shape(&l.Shape)
	if l.Back != nil {
		d.shape(l.Back)
	}
	d.energy(&l.Energy)
	d.energy(&l.Price)
	if l.Energy != "" && l.Price != "" {
		d.At(&l.Price, "link %s has energy and price: its sender can spare one end's energy, not both", l.Name)
	}
	if len(l.Between) != 2 || l.Between[0] == l.Between[1] {
		d.At(&l.Between, "link %s: between takes two different hosts or routers", l.Name)
		return
	}
	known := slices.Clone(s.Routers)
	kinds := 0
	for _, h := range s.Hosts {
		known = append(known, h.Name)
		if h.Count != nil && slices.Contains(l.Between, h.Name) {
			kinds++
		}
	}
	for i := range l.Between {
		if end := &l.Between[i]; !slices.Contains(known, *end) {
			d.At(end, "link %s: no host or router %s: there are %s", l.Name, *end, list(known))
		}
	}
	if kinds == 2 {
		d.At(&l.Between, "link %s joins two kinds of hosts: put a router between", l.Name)
	}
}

func list[T ~string](words []T) string {
	text := make([]string, len(words))
	for i, w := range words {
		text[i] = string(w)
	}
	if len(text) == 0 {
		return "none"
	}
	return strings.Join(text, ", ")
}

func (d *decoder) shape(s *Shape) {
	if s.Jitter > s.Delay {
		d.At(&s.Jitter, "jitter %v is above the delay %v: packets cannot arrive before they leave", s.Jitter, s.Delay)
	}
	if s.Reorder && s.Jitter == 0 {
		d.At(&s.Reorder, "reorder without jitter: no packet would overtake another")
	}
	q := &s.Queue
	kinds := 0
	for _, given := range []bool{q.Packets > 0, q.Bytes > 0, q.RED != nil} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		d.At(q, "a queue of %d kinds: give one of packets, bytes, red", kinds)
	case q.AQM != "" && (q.Packets == 0 || s.Trace != ""):
		d.At(&q.AQM, "%s without a queue in packets: give packets, 1000 for the kernel's own limit, and a rate", q.AQM)
	case kinds == 1 && s.Rate == 0:
		d.At(q, "a queue without a rate: nothing would ever wait in it")
	case q.RED != nil:
		r := q.RED
		if r.Max <= r.Min {
			d.At(&r.Max, "max %g is not above min %g", r.Max, r.Min)
		}
		if r.End != 0 && r.End < r.Max {
			d.At(&r.End, "end %g is below max %g: leave it out for no second rise", r.End, r.Max)
		}
		if rise := r.Probability / (r.Max - r.Min); r.End > r.Max && rise*(r.End-r.Min) > 1 {
			d.At(&r.End, "the rise from max to end is flatter than the one before: the kernel cannot do that, choose a smaller end")
		}
		if here := r.For(s.Rate); here.Min < 1 {
			d.At(&r.Min, "min is %g packets at %v: RED needs at least 1", here.Min, s.Rate)
		}
	}
}

// trace checks the i-th trace.
func (d *decoder) trace(s *Scenario, i int) {
	t := &s.Traces[i]
	if s.trace(t.Name) != t {
		d.At(&t.Name, "there is another trace %s: give it a name of its own", t.Name)
	}
	if t.File != "" || len(t.Rates) == 0 {
		d.At(&t.Name, "trace %s: give one of rates and file", t.Name)
	}
	if len(t.Rates) > longestTrace {
		d.At(&t.Rates, "trace %s is above %d steps: take a longer step", t.Name, longestTrace)
	}
	for j := range t.Rates {
		if t.Rates[j] > 100e9 {
			d.At(&t.Rates[j], "rate %v is above 100 Gbit/s", t.Rates[j])
		}
	}
}

// traced checks a link whose rate is a trace's.
func (d *decoder) traced(s *Scenario, shape *Shape) {
	if shape.Trace == "" {
		return
	}
	t := s.trace(shape.Trace)
	if t == nil {
		var names []Name
		for i := range s.Traces {
			names = append(names, s.Traces[i].Name)
		}
		d.At(&shape.Trace, "no trace %s: there are %s", shape.Trace, list(names))
		return
	}
	if len(t.Rates) > 0 && shape.Rate != t.highest() {
		d.At(&shape.Trace, "a rate beside a trace: leave one")
	}
	if shape.Queue.Bytes == 0 {
		d.At(&shape.Trace, "a trace needs a queue in bytes: give queue: {bytes: 150 KB}, or another size")
	}
}

// hostEnergy checks the name of a host profile.
func (d *decoder) hostEnergy(e *HostEnergy) {
	if e == nil {
		return
	}
	if _, err := energy.FindHost(e.Host); err != nil {
		d.At(&e.Host, "%v", err)
	}
}

func (d *decoder) energy(profile *string) {
	if *profile == "" {
		return
	}
	var names []string
	for _, p := range energy.Builtin() {
		if p.Name == *profile {
			return
		}
		names = append(names, p.Name)
	}
	d.At(profile, "no energy profile %s: there are %s", *profile, strings.Join(names, ", "))
}

// interfaces returns the names of the links of the hosts that a name stands for.
func (b *builder) interfaces(name Name) []string {
	var all []string
	for _, l := range b.Links {
		if hosts := b.kinds[name]; len(hosts) > 0 && l.has(hosts[0]) {
			all = append(all, l.Interface)
		}
	}
	return all
}

func (d *decoder) mptcp(b *builder, host Name, m *MPTCP) {
	if m == nil {
		return
	}
	addresses := 0
	for i := range m.Endpoints {
		e := &m.Endpoints[i]
		addresses += e.Addresses
		d.oneOf(&e.Link, e.Link, b, host)
	}
	if addresses > maxEndpoints {
		d.At(&m.Endpoints, "%d addresses: the kernel takes %d endpoints", addresses, maxEndpoints)
	}
}

// oneOf reports a problem unless the link is one of the host's.
func (d *decoder) oneOf(field any, link Name, b *builder, host Name) {
	if own := b.interfaces(host); !slices.Contains(own, string(link)) {
		d.At(field, "%s has no link %s: it has %s", host, link, list(own))
	}
}

// validAlgorithm matches what can be an algorithm's name. Whether there is one turns out at the run.
var validAlgorithm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,15}$`)

func (d *decoder) user(b *builder, u *User) {
	kinds := slices.Sorted(maps.Keys(b.kinds))
	lost := false
	for _, host := range []*Name{&u.From, &u.To} {
		if len(b.kinds[*host]) == 0 {
			d.At(host, "%s: no host %s: there are %s", u.Name, *host, list(kinds))
			lost = true
		}
	}
	if lost {
		return
	}
	if u.From == u.To && len(b.kinds[u.To]) == 1 {
		d.At(&u.To, "%s: %s would send to itself: name another host", u.Name, u.To)
	}
	if u.Via != "" {
		d.oneOf(&u.Via, u.Via, b, u.From)
	}
	if u.Peer != "" {
		d.oneOf(&u.Peer, u.Peer, b, u.To)
	}
	if from, to := b.kinds[u.From][0], b.kinds[u.To]; !b.reaches(from, to[len(to)-1]) {
		d.At(&u.To, "%s: no way from %s to %s: join them by links and routers", u.Name, from, to[len(to)-1])
	}
	for _, name := range []*string{&u.CC, &u.Scheduler} {
		if !validAlgorithm.MatchString(*name) {
			d.At(name, "%s: %q is no algorithm's name: use 1 to 15 letters, digits, _ and -", u.Name, *name)
		}
	}
	if u.Scheduler != "default" && u.Transport != OverMPTCP {
		d.At(&u.Scheduler, "%s: %s has no packet scheduler: leave scheduler out, or use mptcp", u.Name, u.Transport)
	}
}

// reaches says whether links, and what forwards, join two hosts.
func (b *builder) reaches(from, to Name) bool {
	passes := map[Name]bool{from: true}
	for _, r := range b.Routers {
		passes[r] = true
	}
	for _, h := range b.Hosts {
		if h.Forwards {
			passes[h.Name] = true
		}
	}
	neighbours := map[Name][]Name{}
	for _, l := range b.Links {
		neighbours[l.Between[0]] = append(neighbours[l.Between[0]], l.Between[1])
		neighbours[l.Between[1]] = append(neighbours[l.Between[1]], l.Between[0])
	}
	seen, next := map[Name]bool{from: true}, []Name{from}
	for len(next) > 0 {
		here := next[0]
		next = next[1:]
		if here == to {
			return true
		}
		if !passes[here] {
			continue
		}
		for _, n := range neighbours[here] {
			if !seen[n] {
				seen[n] = true
				next = append(next, n)
			}
		}
	}
	return false
}

// traffic reports keys that a kind of traffic lacks, and those that are not for it.
func (d *decoder) traffic(u *User) {
	t := &u.Traffic
	files := t.Kind == TrafficFile || t.Kind == TrafficHTTP
	paced := t.Kind == TrafficConstant || t.Kind == TrafficBursts
	for _, key := range []struct {
		name   string
		field  any
		given  bool
		needed bool
		fits   bool
	}{
		{"size", &t.Size, t.Size > 0, files, files},
		{"files", &t.Files, t.Files > 1, false, files},
		{"rate", &t.Rate, t.Rate > 0, paced, paced},
		{"on", &t.On, t.On > 0, t.Kind == TrafficBursts, t.Kind == TrafficBursts},
		{"off", &t.Off, t.Off > 0, t.Kind == TrafficBursts, t.Kind == TrafficBursts},
		{"alpha", &t.Alpha, t.Alpha != defaultAlpha, false, t.Kind == TrafficBursts},
	} {
		if key.needed && !key.given {
			d.At(key.field, "%s: %s traffic needs %s", u.Name, t.Kind, key.name)
		}
		if key.given && !key.fits {
			d.At(key.field, "%s: %s says nothing about %s traffic: leave it out", u.Name, key.name, t.Kind)
		}
	}
	switch {
	case u.Transport == OverUDP && !paced:
		d.At(&u.Transport, "%s: %s traffic is not for udp: use mptcp or tcp", u.Name, t.Kind)
	case t.Kind == TrafficHTTP && u.Direction == "up":
		d.At(&u.Direction, "%s: http traffic goes down: say direction: down", u.Name)
	}
}

const defaultAlpha = 1.5

func (d *decoder) event(b *builder, s *Scenario, e *Event) {
	var names []LinkName
	for _, l := range b.Links {
		names = append(names, l.Name)
		if l.Name == e.Link && e.Delay != nil && *e.Delay < l.Jitter {
			d.At(e.Delay, "delay %v is below the link's jitter %v: packets cannot arrive before they leave", *e.Delay, l.Jitter)
		}
	}
	if !slices.Contains(names, e.Link) {
		d.At(&e.Link, "no link %s: there are %s", e.Link, list(names))
	}
	if end := s.Phases.Warmup + s.Phases.Measure; e.At >= end {
		d.At(&e.At, "the run is over after %v: let it come earlier", end)
	}
	if e.State == "" && e.Rate == nil && e.Delay == nil && e.Loss == nil {
		d.At(&e.At, "the event changes nothing: give state, rate, delay or loss")
	}
}

// sweep reports what is wrong with the variables themselves.
func (d *decoder) sweep(s *Scenario) {
	size := 1
	for i := range s.Sweep {
		a := &s.Sweep[i]
		if slices.ContainsFunc(s.Sweep[:i], func(b Axis) bool { return a.Name == b.Name }) {
			d.At(&a.Name, "there is another variable %s: give it a name of its own", a.Name)
		}
		if slices.Contains(functions, string(a.Name)) {
			d.At(&a.Name, "%s is a function of expressions: use another name", a.Name)
		}
		for _, values := range []*[]string{&a.Values, &a.Quick} {
			for j := range *values {
				if slices.Contains((*values)[:j], (*values)[j]) {
					d.At(&(*values)[j], "%s is %s twice: leave one", a.Name, (*values)[j])
				}
			}
		}
		if len(a.Values) == 0 || (a.Quick != nil && len(a.Quick) == 0) {
			d.At(&a.Name, "variable %s has no values", a.Name)
		}
		if size *= max(len(a.Values), len(a.Quick), 1); size > maxPoints {
			d.At(&s.Sweep, "above %d points: use fewer values", maxPoints)
			return
		}
	}
}

// measured adds what metrics can be of at one point: classes, links and class/interface.
func (s *Scenario) measured(all map[string][]string) {
	b := build(s)
	for i := range s.Users {
		class := string(s.Users[i].Name)
		all[result.OfClass] = append(all[result.OfClass], class)
		for _, name := range b.interfaces(s.Users[i].From) {
			all[result.OfInterface] = append(all[result.OfInterface], class+"/"+name)
		}
	}
	for _, l := range b.Links {
		all[result.OfLink] = append(all[result.OfLink], string(l.Name), string(l.Name)+"-back")
	}
	for _, names := range all {
		slices.Sort(names)
	}
	for what, names := range all {
		slices.Sort(names)
		all[what] = slices.Compact(names)
	}
}

// expect checks values, claims and figures. They may be of points outside the sweep, and of what is left out at all others:
// what a paper says of an algorithm stays in the file when the command line leaves that algorithm out.
func (d *decoder) expect(s *Scenario, measured map[string][]string, leftOut func() map[string][]string) {
	e := &s.Expect
	for i := range e.Values {
		v := &e.Values[i]
		d.picks(s, &v.Select, measured, leftOut)
	}
	for i := range e.Claims {
		c := &e.Claims[i]
		d.picks(s, &c.Select, measured, leftOut)
		if c.To != nil {
			d.picks(s, c.To, measured, leftOut)
		}
		if (c.Relation == result.Within) != (c.Margin > 0) {
			d.At(&c.Margin, "margin is for within, and within needs one above 0")
		}
		if c.Negligible > 0 && (c.To == nil || c.Relation == result.Within) {
			d.At(&c.Negligible, "negligible is for ratios that are to be above or below: give the claim a to")
		}
		d.planOf(c)
	}
	for i := range e.Figures {
		f := &e.Figures[i]
		if f.Kind == result.Traces {
			if !slices.Contains(result.TraceMetrics, f.Metric) {
				d.At(&f.Metric, "traces are of one of %s, not of %s", list(result.TraceMetrics), f.Metric)
			}
			d.axes(s, &f.Select)
		} else {
			d.picks(s, &f.Select, measured, leftOut)
		}
		if f.Over != "" && !s.varies(f.Over) {
			d.At(&f.Over, "no variable %s: there are %s", f.Over, list(s.variables()))
		}
		if f.Kind == result.Lines && f.Over == "" {
			d.At(&f.Kind, "lines need over, the variable that runs along x")
		}
	}
}

// picks checks a metric, what it is of, and at which points.
func (d *decoder) picks(s *Scenario, p *result.Select, measured map[string][]string, leftOut func() map[string][]string) {
	d.axes(s, p)
	m, err := result.FindMetric(p.Metric)
	if err != nil {
		d.At(&p.Metric, "%v", err)
		return
	}
	of := m.Of
	switch of {
	case result.OfZone:
		return // zones are the machine's, not the scenario's
	case result.OfClasses:
		if p.Of == "" {
			return
		}
		of = result.OfClass
	}
	if !slices.Contains(measured[of], p.Of) && !slices.Contains(leftOut()[of], p.Of) {
		d.At(&p.Of, "%s is of a %s, not %q: there are %s", p.Metric, m.Of, p.Of, list(measured[of]))
	}
}

func (d *decoder) axes(s *Scenario, p *result.Select) {
	for name := range p.At {
		if !s.varies(name) {
			d.At(&p.At, "no variable %s: there are %s", name, list(s.variables()))
		}
	}
}

func (s *Scenario) varies(name string) bool {
	return slices.Contains(s.variables(), Variable(name))
}

func (s *Scenario) variables() []Variable {
	var names []Variable
	for _, a := range s.Sweep {
		names = append(names, a.Name)
	}
	return names
}
