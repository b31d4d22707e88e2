// SPDX-License-Identifier: Apache-2.0

package energy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs/sysfs"
)

// Kinds of sources, the beginning of their names.
const (
	SourceBattery = "battery"
	SourceRAPL    = "rapl"
)

// Source is something by which this machine measures power.
type Source struct {
	Name       string   `json:"name"`             // battery:BAT0, rapl:intel-rapl:0; what Open takes
	Measures   string   `json:"measures"`         // whose power it is
	Unit       string   `json:"unit"`             // of a reading: J of a counter, or W
	Resolution float64  `json:"resolution"`       // smallest step of a reading that the kernel shows
	Range      *float64 `json:"range,omitempty"`  // where the counter begins again, J
	Watts      *float64 `json:"watts,omitempty"`  // now; nil where it cannot tell
	Unfit      string   `json:"unfit,omitempty"`  // why it cannot tell, now or at all
	Energy     *float64 `json:"energy,omitempty"` // J left in a battery
}

// glance is how long Sources looks at counters for their present power. RAPL's are updated each millisecond.
const glance = 100 * time.Millisecond

// Sources lists what measures power below sys, which is /sys, batteries first, for a tenth of a second where there is
// RAPL.
func Sources(sys string) ([]Source, error) {
	batteries, err := Batteries(sys)
	if err != nil {
		return nil, err
	}
	sources := []Source{}
	for _, b := range batteries {
		s := Source{
			Name: SourceBattery + ":" + b.Name, Measures: "what the battery supplies", Unit: "W", Resolution: b.Step,
			Watts: b.Discharge, Energy: b.Energy,
		}
		if err := b.unfit(); err != nil {
			s.Unfit = err.Error()
		}
		sources = append(sources, s)
	}
	zones, err := raplSources(sys)
	return append(sources, zones...), err
}

func raplSources(sys string) ([]Source, error) {
	tree, err := sysfs.NewFS(sys)
	if err != nil {
		return nil, err
	}
	zones, err := raplZones(tree)
	if err != nil {
		return nil, err
	}
	sources, before := make([]Source, len(zones)), make([]uint64, len(zones))
	readable := false
	for i, z := range zones {
		wraps := float64(z.MaxMicrojoules) / 1e6
		sources[i] = Source{Name: SourceRAPL + ":" + filepath.Base(z.Path), Measures: z.Name, Unit: "J", Resolution: 1e-6, Range: &wraps}
		if before[i], err = z.GetEnergyMicrojoules(); errors.Is(err, fs.ErrPermission) {
			sources[i].Unfit = "only root may read it"
		} else if err != nil {
			sources[i].Unfit = err.Error()
		}
		readable = readable || err == nil
	}
	if !readable {
		return sources, nil
	}
	begin := time.Now()
	time.Sleep(glance)
	for i, z := range zones {
		if sources[i].Unfit != "" {
			continue
		}
		now, err := z.GetEnergyMicrojoules()
		if err != nil {
			sources[i].Unfit = err.Error()
			continue
		}
		watts := float64(gained(before[i], now, z.MaxMicrojoules)) / 1e6 / time.Since(begin).Seconds()
		sources[i].Watts = &watts
	}
	return sources, nil
}

// Meter follows the energy of one source. One goroutine at a time may use it.
type Meter struct{ read func() (float64, error) }

// Joules returns the energy since the first call. A battery reports power: what it supplied between two calls is
// their mean times the time, so call often. Of a counter that begins again the calls have to come more often than it
// does. It is an error if a battery supplies nothing, as on mains.
func (m *Meter) Joules() (float64, error) { return m.read() }

// Open returns a meter of the source with this name, as Sources lists it below sys. A RAPL zone may be given by what
// it measures, as rapl:psys, where only one zone measures that.
func Open(sys, source string) (*Meter, error) {
	sources, err := Sources(sys)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(sources, func(s Source) bool { return s.Name == source })
	kind, name, _ := strings.Cut(source, ":")
	if i < 0 && kind == SourceRAPL {
		i, err = soleZone(sources, name)
	}
	if err != nil {
		return nil, err
	}
	if i < 0 {
		names := make([]string, len(sources))
		for k, s := range sources {
			names[k] = s.Name
		}
		return nil, fmt.Errorf("this machine has no power source %q; it has %s", source, cmp.Or(strings.Join(names, ", "), "neither a battery nor RAPL"))
	}
	if sources[i].Unfit != "" {
		return nil, fmt.Errorf("%s tells nothing: %s", sources[i].Name, sources[i].Unfit)
	}
	_, id, _ := strings.Cut(sources[i].Name, ":")
	if strings.HasPrefix(sources[i].Name, SourceBattery+":") {
		return &Meter{(&supplied{sys: sys, name: id, now: time.Now}).joules}, nil
	}
	rapl, err := NewRAPL(sys)
	if err != nil {
		return nil, err
	}
	return &Meter{func() (float64, error) { return rapl.zone(id) }}, nil
}

// soleZone returns the index of the zone that alone measures this, -1 if none does.
func soleZone(sources []Source, measures string) (int, error) {
	found := -1
	for i, s := range sources {
		if !strings.HasPrefix(s.Name, SourceRAPL+":") || s.Measures != measures {
			continue
		}
		if found >= 0 {
			return -1, fmt.Errorf("%s and %s both measure %s; name one of them", sources[found].Name, s.Name, measures)
		}
		found = i
	}
	return found, nil
}

// zone returns one zone's energy; the error of another one is none here.
func (r *RAPL) zone(id string) (float64, error) {
	zones, err := r.Read()
	for _, z := range zones {
		if z.ID == id {
			return z.Joules, nil
		}
	}
	if err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("RAPL zone %s is gone", id)
}

// supplied adds up what a battery supplies.
type supplied struct {
	sys, name string
	now       func() time.Time

	at         time.Time
	watts, sum float64
}

func (s *supplied) joules() (float64, error) {
	batteries, err := Batteries(s.sys)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(batteries, func(b Battery) bool { return b.Name == s.name })
	if i < 0 {
		return 0, fmt.Errorf("battery %s is gone", s.name)
	}
	if err := batteries[i].unfit(); err != nil {
		return 0, fmt.Errorf("battery %s tells nothing: %w", s.name, err)
	}
	at, watts := s.now(), *batteries[i].Discharge
	if !s.at.IsZero() {
		s.sum += (s.watts + watts) / 2 * at.Sub(s.at).Seconds()
	}
	s.at, s.watts = at, watts
	return s.sum, nil
}
