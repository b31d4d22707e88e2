// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Metric is a quantity that can be read off a run, of a class unless Of says otherwise.
type Metric struct {
	Name   string
	Title  string
	Unit   string // "" for a plain number
	Of     string // what Select.Of names: class, "class or nothing", link, "class/interface", zone
	Source string // of an energy: model or rapl; else ""
	Total  bool   // its value is the users' sum; else their mean or, of a ratio, that of their sums
	// values returns a value for each user or, of a metric that is not of users, a single one.
	values func(r *Run, of string) []float64
	// ratio returns both sides of a ratio of a user's: the value of a class is the sum of the one by the sum of the
	// other. The mean of the users' own ratios would count who moved little as much as who moved all.
	ratio func(r *Run, u *User) (above, below float64, ok bool)
}

// What a metric can be of: the values of Metric.Of.
const (
	OfClass     = "class"
	OfClasses   = "class or nothing" // nothing: of all users
	OfLink      = "link"
	OfInterface = "class/interface"
	OfZone      = "zone"
)

// Metrics lists all metrics, in the order of the report.
var Metrics = []Metric{
	{Name: "goodput", Title: "goodput per user", Unit: "Mbit/s", Of: OfClasses, values: perUser(goodput)},
	{Name: "total_goodput", Title: "goodput of all", Unit: "Mbit/s", Of: OfClasses, values: perUser(goodput), Total: true},
	{Name: "path_goodput", Title: "goodput on the path", Unit: "Mbit/s", Of: OfInterface, values: pathGoodput},
	{Name: "path_share", Title: "share of the path in the bytes", Unit: "%", Of: OfInterface, values: pathShare},
	{Name: "path_data", Title: "data on the path, of all users", Unit: "MB", Of: OfInterface, values: pathData},
	{Name: "fairness", Title: "Jain's index of goodput", Of: OfClasses, values: fairness},
	{Name: "completion", Title: "completion time", Unit: "s", Of: OfClasses, values: perUser(completion)},
	{Name: "loss", Title: "loss at the queue", Unit: "%", Of: OfLink, values: loss},
	{Name: "marked", Title: "marked at the queue", Unit: "%", Of: OfLink, values: marked},
	{Name: "srtt", Title: "smoothed RTT", Unit: "ms", Of: OfClasses, values: perUser(srtt)},
	{Name: "srtt_95", Title: "95th percentile of the smoothed RTT", Unit: "ms", Of: OfClasses, values: perUser(srtt95)},
	{Name: "out_of_order", Title: "out of order per 100 packets", Of: OfClasses, values: perUser(outOfOrder)},
	{Name: "reinjected", Title: "reinjected per 100 packets", Of: OfClasses, values: perUser(reinjected)},
	{Name: "energy", Title: "energy per user", Unit: "J", Of: OfClasses, Source: SourceModel, values: perUser(joules)},
	{Name: "total_energy", Title: "energy of all", Unit: "J", Of: OfClasses, Source: SourceModel, values: perUser(joules), Total: true},
	{Name: "power", Title: "power per user", Unit: "W", Of: OfClasses, Source: SourceModel, values: perUser(power)},
	{Name: "energy_per_bit", Title: "energy per bit", Unit: "nJ/bit", Of: OfClasses, Source: SourceModel, values: perUser(ratioOf(energyPerBit)), ratio: energyPerBit},
	{Name: "efficiency", Title: "energy efficiency", Unit: "Mbit/J", Of: OfClasses, Source: SourceModel, values: perUser(ratioOf(efficiency)), ratio: efficiency},
	{Name: "host_energy", Title: "energy of the users' hosts", Unit: "P0·s", Of: OfClass, Source: SourceModel, values: hostEnergy},
	{Name: "rapl_energy", Title: "energy of the host", Unit: "J", Of: OfZone, Source: SourceRAPL, values: zoneEnergy},
	{Name: "rapl_power", Title: "power of the host", Unit: "W", Of: OfZone, Source: SourceRAPL, values: zonePower},
}

// FindMetric returns the metric of that name. The error lists all names.
func FindMetric(name string) (Metric, error) {
	i := slices.IndexFunc(Metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		names := make([]string, len(Metrics))
		for i, m := range Metrics {
			names[i] = m.Name
		}
		return Metric{}, fmt.Errorf("unknown metric %q: use one of %s", name, strings.Join(names, ", "))
	}
	return Metrics[i], nil
}

// Values returns the metric of each user that has it or, if it is not a metric of users, a single value.
func (m Metric) Values(r *Run, of string) []float64 { return m.values(r, of) }

// Value returns the mean over the users or, of a total, their sum or, of a ratio, that of their sums; false if nothing
// was measured.
func (m Metric) Value(r *Run, of string) (float64, bool) {
	if m.ratio != nil {
		return sums(r, of, m.ratio)
	}
	values := m.values(r, of)
	if len(values) == 0 {
		return 0, false
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	if m.Total {
		return sum, true
	}
	return sum / float64(len(values)), true
}

// Has returns what the metric was measured of in a run, in the run's order: classes, links, ….
func (m Metric) Has(r *Run) []string {
	var names []string
	switch m.Of {
	case OfLink:
		for _, l := range r.Links {
			if l.Queue.passed() > 0 {
				names = append(names, l.Name)
			}
		}
		return names
	case OfZone:
		for _, z := range r.RAPL {
			names = append(names, z.Name)
		}
	case OfInterface:
		for _, c := range r.Classes {
			interfaces := map[string]bool{}
			for _, u := range c.Users {
				for _, s := range u.Subflows {
					interfaces[s.Interface] = true
				}
			}
			for _, i := range slices.Sorted(maps.Keys(interfaces)) {
				names = append(names, c.Name+"/"+i)
			}
		}
	default:
		for _, c := range r.Classes {
			names = append(names, c.Name)
		}
		if m.Of == OfClasses && len(r.Classes) > 1 {
			names = append(names, "")
		}
	}
	return slices.DeleteFunc(names, func(of string) bool { return len(m.values(r, of)) == 0 })
}

// measures returns the metrics of a run, without those of links: there may be hundreds, each with its counts.
func (r *Run) measures() []Measure {
	all := []Measure{}
	for _, m := range Metrics {
		if m.Of == OfLink {
			continue
		}
		for _, of := range m.Has(r) {
			value, _ := m.Value(r, of)
			all = append(all, Measure{m.Name, of, value, m.Unit, m.Source})
		}
	}
	return all
}

// Agrees says whether p has all the values that part has.
func (p Point) Agrees(part Point) bool {
	for axis, value := range part {
		if p[axis] != value {
			return false
		}
	}
	return true
}

// jain returns Jain's fairness index (Σx)²/(n·Σx²), from 1/n to 1. It is 1 for no values, and if all are 0.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(x)) * squares)
}

type userMetric func(r *Run, u *User) (float64, bool)

func perUser(of userMetric) func(*Run, string) []float64 {
	return func(r *Run, class string) []float64 {
		var values []float64
		for _, c := range r.Classes {
			if class != "" && c.Name != class {
				continue
			}
			for i := range c.Users {
				if v, ok := of(r, &c.Users[i]); ok {
					values = append(values, v)
				}
			}
		}
		return values
	}
}

func goodput(_ *Run, u *User) (float64, bool) { return u.rate() / 1e6, u.Active > 0 }

// rate returns the goodput in bit/s.
func (u *User) rate() float64 {
	if u.Active <= 0 {
		return 0
	}
	return float64(u.Bytes) * 8 / u.Active
}

// completion returns the mean time of the user's files. It is false if any of them was not complete: the mean of
// the others would flatter.
func completion(_ *Run, u *User) (float64, bool) {
	sum := 0.0
	for _, t := range u.Transfers {
		if t.Seconds == nil {
			return 0, false
		}
		sum += *t.Seconds
	}
	return sum / float64(len(u.Transfers)), len(u.Transfers) > 0
}

// srtt returns the mean of the subflows, weighed by what they carried.
func srtt(_ *Run, u *User) (float64, bool) {
	return weighed(u, func(s *Subflow) float64 { return s.SRTT })
}

// srtt95 returns the mean of the subflows' percentiles, weighed likewise: an idle subflow's RTT delays nobody.
func srtt95(_ *Run, u *User) (float64, bool) {
	v, ok := weighed(u, func(s *Subflow) float64 { return s.SRTT95 })
	return v, ok && v > 0 // files may be too short for a sample, and older runs have no percentiles
}

func weighed(u *User, of func(*Subflow) float64) (float64, bool) {
	sum, bytes := 0.0, 0.0
	for i := range u.Subflows {
		s := &u.Subflows[i]
		sum += of(s) * float64(s.Bytes)
		bytes += float64(s.Bytes)
	}
	return sum / bytes, bytes > 0
}

func outOfOrder(_ *Run, u *User) (float64, bool) { return percent(u.OutOfOrder, u.Received) }
func reinjected(_ *Run, u *User) (float64, bool) { return percent(u.Reinjected, u.Received) }

func percent(part, whole *uint64) (float64, bool) {
	if part == nil || whole == nil || *whole == 0 {
		return 0, false
	}
	return 100 * float64(*part) / float64(*whole), true
}

func joules(_ *Run, u *User) (float64, bool) {
	if u.Energy == nil {
		return 0, false
	}
	return u.Energy.Joules, true
}

func power(r *Run, u *User) (float64, bool) {
	j, ok := joules(r, u)
	return j / u.Active, ok && u.Active > 0
}

func energyPerBit(r *Run, u *User) (nanojoules, bits float64, ok bool) {
	j, ok := joules(r, u)
	return j * 1e9, 8 * float64(u.Bytes), ok && u.Bytes > 0
}

func efficiency(r *Run, u *User) (megabits, j float64, ok bool) {
	j, ok = joules(r, u)
	return 8 * float64(u.Bytes) / 1e6, j, ok && j > 0
}

// ratioOf returns a user's ratio.
func ratioOf(parts func(*Run, *User) (above, below float64, ok bool)) userMetric {
	return func(r *Run, u *User) (float64, bool) {
		above, below, ok := parts(r, u)
		return above / below, ok
	}
}

// sums returns the ratio of the sums over a class' users.
func sums(r *Run, class string, parts func(*Run, *User) (above, below float64, ok bool)) (float64, bool) {
	var aboves, belows float64
	for _, c := range r.Classes {
		if class != "" && c.Name != class {
			continue
		}
		for i := range c.Users {
			if above, below, ok := parts(r, &c.Users[i]); ok {
				aboves, belows = aboves+above, belows+below
			}
		}
	}
	return aboves / belows, belows > 0
}

func pathGoodput(r *Run, of string) []float64 {
	class, name, _ := strings.Cut(of, "/")
	return perUser(func(_ *Run, u *User) (float64, bool) {
		sum, found := uint64(0), false
		for _, s := range u.Subflows {
			if s.Interface == name {
				sum, found = sum+s.Bytes, true
			}
		}
		return float64(sum) * 8 / 1e6 / u.Active, found && u.Active > 0
	})(r, class)
}

// pathShare returns what the path has of all that the class' users have moved.
func pathShare(r *Run, of string) []float64 {
	on, all := onPath(r, of)
	if all == 0 {
		return nil
	}
	return []float64{100 * float64(on) / float64(all)}
}

// pathData returns what the class' users have moved on the path.
func pathData(r *Run, of string) []float64 {
	on, all := onPath(r, of)
	if all == 0 {
		return nil
	}
	return []float64{float64(on) / 1e6}
}

// onPath returns the bytes of a class on one of its interfaces, and on all of them.
func onPath(r *Run, of string) (on, all uint64) {
	class, name, _ := strings.Cut(of, "/")
	for _, c := range r.Classes {
		for _, u := range c.Users {
			for _, s := range u.Subflows {
				if c.Name != class {
					continue
				}
				if all += s.Bytes; s.Interface == name {
					on += s.Bytes
				}
			}
		}
	}
	return on, all
}

// hostEnergy returns the energy of all hosts of a class. A host draws its base as long as any of the class' users on it
// is active: the users' active times are taken to overlap. What others on the host do is not counted.
func hostEnergy(r *Run, class string) []float64 {
	for _, c := range r.Classes {
		if c.Name != class || c.HostPower == nil {
			continue
		}
		active, sum := map[string]float64{}, 0.0
		for _, u := range c.Users {
			active[u.Host] = max(active[u.Host], u.Active)
			sum += c.HostPower.Slope * c.HostPower.Scale * float64(u.Bytes) * 8 / 1e6
		}
		for _, host := range slices.Sorted(maps.Keys(active)) {
			sum += c.HostPower.Base * active[host]
		}
		return []float64{sum}
	}
	return nil
}

func fairness(r *Run, class string) []float64 {
	rates := perUser(goodput)(r, class)
	if len(rates) == 0 {
		return nil
	}
	return []float64{jain(rates)}
}

// passed returns how many packets came to the queue.
func (q Queue) passed() uint64 { return q.Sent + q.Dropped }

func ofLink(r *Run, name string, count func(Queue) uint64) []float64 {
	for _, l := range r.Links {
		if l.Name == name && l.Queue.passed() > 0 {
			return []float64{100 * float64(count(l.Queue)) / float64(l.Queue.passed())}
		}
	}
	return nil
}

func loss(r *Run, link string) []float64 {
	return ofLink(r, link, func(q Queue) uint64 { return q.Dropped })
}

func marked(r *Run, link string) []float64 {
	return ofLink(r, link, func(q Queue) uint64 { return q.Marked })
}

func zoneEnergy(r *Run, name string) []float64 {
	for _, z := range r.RAPL {
		if z.Name == name {
			return []float64{z.Joules}
		}
	}
	return nil
}

func zonePower(r *Run, name string) []float64 {
	values := zoneEnergy(r, name)
	if r.Measured <= 0 {
		return nil
	}
	for i := range values {
		values[i] /= r.Measured
	}
	return values
}
