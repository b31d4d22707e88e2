// SPDX-License-Identifier: Apache-2.0

package energy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/prometheus/procfs/sysfs"
)

// Zone is one of the processor's RAPL zones. They contain each other (psys, package, core): never add them.
type Zone struct {
	ID     string  // of /sys/class/powercap, such as intel-rapl:0
	Name   string  // package, core, dram, …
	Joules float64 // since the first reading
}

// RAPL reads the processor's energy counters and follows them when they wrap. Readings have to come more
// often than a counter wraps: some 40 minutes at 100 W. Several goroutines may read.
type RAPL struct {
	sys sysfs.FS

	mu    sync.Mutex
	zones map[string]*raplCounter
}

type raplCounter struct {
	last, sum uint64 // uJ
}

// NewRAPL returns a RAPL that reads below sys, which is /sys. It is an error if that is no folder.
func NewRAPL(sys string) (*RAPL, error) {
	tree, err := sysfs.NewFS(sys)
	if err != nil {
		return nil, err
	}
	return &RAPL{sys: tree, zones: map[string]*raplCounter{}}, nil
}

// Read returns every zone; none where the machine has no RAPL. With an error come the zones that could be
// read.
func (r *RAPL) Read() ([]Zone, error) {
	zones, err := sysfs.GetRaplZones(r.sys)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var read []Zone
	for _, z := range zones {
		now, zoneErr := z.GetEnergyMicrojoules()
		if zoneErr != nil {
			err = errors.Join(err, fmt.Errorf("read RAPL zone %s: %w", filepath.Base(z.Path), zoneErr))
			continue
		}
		id := filepath.Base(z.Path)
		read = append(read, Zone{ID: id, Name: z.Name, Joules: float64(r.follow(id, now, z.MaxMicrojoules)) / 1e6})
	}
	return read, err
}

// follow adds what a zone's counter has gained since the last reading.
func (r *RAPL) follow(id string, now, wrapsAt uint64) (sum uint64) {
	c, ok := r.zones[id]
	if !ok {
		c = &raplCounter{last: now}
		r.zones[id] = c
	}
	if now >= c.last {
		c.sum += now - c.last
	} else {
		c.sum += wrapsAt - c.last + now
	}
	c.last = now
	return c.sum
}

// Battery is what a battery reports; nil where it does not.
type Battery struct {
	Name      string
	Discharge *float64 // W; nil also while it is not discharging
	Energy    *float64 // J, what is left
}

// Batteries returns the batteries below sys, which is /sys; none where there are none.
func Batteries(sys string) ([]Battery, error) {
	tree, err := sysfs.NewFS(sys)
	if err != nil {
		return nil, err
	}
	supplies, err := tree.PowerSupplyClass()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var batteries []Battery
	for name, s := range supplies {
		if s.Type != "Battery" {
			continue
		}
		b := Battery{Name: name}
		if s.Status == "Discharging" {
			b.Discharge = watts(s)
		}
		if s.EnergyNow != nil {
			joules := float64(*s.EnergyNow) / 1e6 * 3600 // from uWh
			b.Energy = &joules
		}
		batteries = append(batteries, b)
	}
	return batteries, nil
}

// watts returns the power that the battery reports or, if it does not, current times voltage; nil without
// either. Some drivers report it as negative while the battery discharges.
func watts(s sysfs.PowerSupply) *float64 {
	var w float64
	switch {
	case s.PowerNow != nil:
		w = float64(*s.PowerNow) / 1e6
	case s.CurrentNow != nil && s.VoltageNow != nil:
		w = float64(*s.CurrentNow) / 1e6 * float64(*s.VoltageNow) / 1e6
	default:
		return nil
	}
	w = max(w, -w)
	return &w
}
