// SPDX-License-Identifier: Apache-2.0

package energy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
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
	zones, err := raplZones(r.sys)
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

// raplZones returns none where the machine has no RAPL.
func raplZones(tree sysfs.FS) ([]sysfs.RaplZone, error) {
	zones, err := sysfs.GetRaplZones(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return zones, err
}

// follow adds what a zone's counter has gained since the last reading.
func (r *RAPL) follow(id string, now, wrapsAt uint64) (sum uint64) {
	c, ok := r.zones[id]
	if !ok {
		c = &raplCounter{last: now}
		r.zones[id] = c
	}
	c.sum += gained(c.last, now, wrapsAt)
	c.last = now
	return c.sum
}

// gained is what a counter has gained, which wraps once at most between two readings.
func gained(last, now, wrapsAt uint64) uint64 {
	if now >= last {
		return now - last
	}
	return wrapsAt - last + now
}

// Battery is what a battery reports; nil where it does not.
type Battery struct {
	Name      string
	Discharge *float64 // W; nil also while it is not discharging
	Energy    *float64 // J, what is left
	Status    string   // as the kernel says it, such as Discharging or Full
	Step      float64  // smallest step of Discharge that the kernel shows, W; 0 without one
}

// unfit returns why the battery's power says nothing of the machine's; nil if it does.
func (b *Battery) unfit() error {
	switch {
	case b.Status != discharging:
		return fmt.Errorf("its status is %s; unplug the machine: on mains it does not supply the load", cmp.Or(b.Status, "unknown"))
	case b.Discharge == nil:
		return errors.New("its driver reports neither power_now nor both current_now and voltage_now")
	}
	return nil
}

const discharging = "Discharging"

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
		b := Battery{Name: name, Status: s.Status, Energy: left(s)}
		if s.Status == discharging {
			b.Discharge, b.Step = watts(s)
		}
		batteries = append(batteries, b)
	}
	slices.SortFunc(batteries, func(a, b Battery) int { return cmp.Compare(a.Name, b.Name) })
	return batteries, nil
}

// left returns the energy that the battery reports or, if it reports its charge, that times the present voltage.
func left(s sysfs.PowerSupply) *float64 {
	var joules float64
	switch {
	case s.EnergyNow != nil:
		joules = float64(*s.EnergyNow) / 1e6 * 3600 // from uWh
	case s.ChargeNow != nil && s.VoltageNow != nil:
		joules = float64(*s.ChargeNow) / 1e6 * 3600 * float64(*s.VoltageNow) / 1e6 // from uAh
	default:
		return nil
	}
	return &joules
}

// watts returns the power that the battery reports or, if it does not, current times voltage; nil without
// either. The second result is the smallest step of it. Some drivers report it as negative while the battery
// discharges.
func watts(s sysfs.PowerSupply) (*float64, float64) {
	var w, step float64
	switch {
	case s.PowerNow != nil:
		w, step = float64(*s.PowerNow)/1e6, 1e-6
	case s.CurrentNow != nil && s.VoltageNow != nil:
		volts := float64(*s.VoltageNow) / 1e6
		w, step = float64(*s.CurrentNow)/1e6*volts, 1e-6*volts
	default:
		return nil, 0
	}
	w = max(w, -w)
	return &w, step
}
