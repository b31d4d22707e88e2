// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/netns"
)

// Interface is a network interface, by the names that people give it.
type Interface struct {
	Netns string // network namespace, as ip netns names it; "" for the caller's
	Name  string // such as wlan0
}

// Profile is the power that an interface draws: Uplink times the rate sent, plus Downlink times the rate
// received, plus Base while anything moves. Each is 0 to 4294967, and kept to a thousandth.
type Profile struct {
	Uplink   float64 // mW/Mbps
	Downlink float64 // mW/Mbps
	Base     float64 // mW
}

// SetProfile sets the energy profile of an interface, whether or not anything is loaded yet. A change takes
// effect on running connections. The error wraps ErrUsage if a figure is out of range.
func SetProfile(ctx context.Context, i Interface, p Profile) error {
	value, err := p.toMap()
	if err != nil {
		return err
	}
	key, err := i.locate(&value)
	if err != nil {
		return err
	}
	open := func() (*Maps, error) {
		m, _, err := makeMaps(0)
		return m, err
	}
	return changeProfiles(ctx, open, func(energy *ebpf.Map) error {
		err := energy.Put(key, value)
		if errors.Is(err, unix.E2BIG) {
			return fmt.Errorf("%d interfaces have energy profiles, and there is no room for more: mpcc energy unset takes one away", energy.MaxEntries())
		}
		return err
	})
}

// DeleteProfile removes the energy profile of an interface; it need not have one.
func DeleteProfile(ctx context.Context, i Interface) error {
	key, err := i.locate(new(obj.MapsMpccEnergyProfile))
	if err != nil {
		return err
	}
	err = changeProfiles(ctx, OpenMaps, func(energy *ebpf.Map) error { return energy.Delete(key) })
	if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, ErrNotLoaded) {
		return nil
	}
	return err
}

func changeProfiles(ctx context.Context, open func() (*Maps, error), change func(*ebpf.Map) error) error {
	if err := checkRights(); err != nil {
		return err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	m, err := open()
	if err != nil {
		return err
	}
	defer m.Close()
	if err := change(m.byName[MapEnergy]); err != nil {
		return err
	}
	return sweep(ctx)
}

// toMap brings a profile into the units of the map, uW/Mbps and uW.
func (p Profile) toMap() (value obj.MapsMpccEnergyProfile, err error) {
	for _, f := range []struct {
		name, unit string
		milli      float64
		micro      *uint32
	}{
		{"uplink", "mW/Mbps", p.Uplink, &value.UpUwPerMbps},
		{"downlink", "mW/Mbps", p.Downlink, &value.DownUwPerMbps},
		{"base", "mW", p.Base, &value.BaseUw},
	} {
		micro := math.Round(f.milli * 1000)
		if !(micro >= 0 && micro <= math.MaxUint32) {
			return value, usage("%s is %g, not 0 to %d %s", f.name, f.milli, math.MaxUint32/1000, f.unit)
		}
		*f.micro = uint32(micro)
	}
	return value, nil
}

// locate returns the interface's key in the map. It also writes into the profile what people know it by: the
// interface's name and the inode number of its namespace.
func (i Interface) locate(p *obj.MapsMpccEnergyProfile) (key obj.MapsMpccEnergyKey, err error) {
	ns, err := netns.Current()
	if i.Netns != "" {
		ns, err = netns.Named(i.Netns)
	}
	if err != nil {
		return key, err
	}
	var list []net.Interface
	err = ns.Do(func() error {
		var err error
		if key.NetnsCookie, err = netns.Cookie(); err != nil {
			return err
		}
		list, err = net.Interfaces()
		return err
	})
	if err != nil {
		return key, err
	}
	var names []string
	for _, there := range list {
		if there.Name == i.Name {
			key.Ifindex = uint32(there.Index)
			p.Netns = uint32(ns.Inode)
			copy(p.Ifname[:], there.Name)
			return key, nil
		}
		names = append(names, strings.Trim(strconv.Quote(there.Name), `"`))
	}
	return key, fmt.Errorf("%s has no interface %s; it has %s", ns, strings.Trim(strconv.Quote(i.Name), `"`), strings.Join(names, ", "))
}
