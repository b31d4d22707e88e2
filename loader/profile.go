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
	key, there, err := i.locate(&value)
	if err != nil {
		return err
	}
	return changeMaps(ctx, makeAllMaps, func(m *Maps) error {
		if _, err := m.forgetGone(i.Name, key, there); err != nil {
			return err
		}
		energy := m.byName[MapEnergy]
		err := energy.Put(key, value)
		if errors.Is(err, unix.E2BIG) {
			return fmt.Errorf("%d interfaces have energy profiles, and there is no room for more: mpcc energy unset takes one away", energy.MaxEntries())
		}
		return err
	})
}

// DeleteProfile removes the energy profile of an interface, which need not have one; also one that an interface of this
// name had and has taken with it.
func DeleteProfile(ctx context.Context, i Interface) error {
	key, there, missing := i.locate(new(obj.MapsMpccEnergyProfile))
	if missing != nil && there == nil {
		return missing
	}
	forgotten := 0
	err := changeMaps(ctx, openMapsToChange, func(m *Maps) (err error) {
		if forgotten, err = m.forgetGone(i.Name, key, there); err != nil || missing != nil {
			return err
		}
		return m.byName[MapEnergy].Delete(key)
	})
	if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, ErrNotLoaded) {
		err = nil
	}
	if err == nil && forgotten == 0 {
		return missing
	}
	return err
}

// forgetGone removes the profiles of interfaces that had this name in the key's namespace and are not there any more,
// and returns how many.
func (m *Maps) forgetGone(name string, of obj.MapsMpccEnergyKey, there map[uint32]bool) (forgotten int, err error) {
	all, err := Read[obj.MapsMpccEnergyKey, obj.MapsMpccEnergyProfile](m, MapEnergy)
	for key, value := range all {
		if key.NetnsCookie != of.NetnsCookie || there[key.Ifindex] || unix.ByteSliceToString(value.Ifname[:]) != name {
			continue
		}
		forgotten++
		err = errors.Join(err, m.byName[MapEnergy].Delete(key))
	}
	return forgotten, err
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

// locate returns the interface's key in the map, and the indices of all that its namespace has. It also writes into the
// profile what people know it by: the interface's name and the inode number of its namespace.
func (i Interface) locate(p *obj.MapsMpccEnergyProfile) (key obj.MapsMpccEnergyKey, there map[uint32]bool, err error) {
	ns, err := netns.Current()
	if i.Netns != "" {
		ns, err = netns.Named(i.Netns)
	}
	if err != nil {
		return key, nil, err
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
		return key, nil, err
	}
	there = map[uint32]bool{}
	var names []string
	for _, one := range list {
		there[uint32(one.Index)] = true
		names = append(names, strings.Trim(strconv.Quote(one.Name), `"`))
		if one.Name == i.Name {
			key.Ifindex = uint32(one.Index)
			p.Netns = uint32(ns.Inode)
			copy(p.Ifname[:], one.Name)
		}
	}
	if key.Ifindex != 0 {
		return key, there, nil
	}
	return key, there, fmt.Errorf("%s has no interface %s; it has %s", ns, strings.Trim(strconv.Quote(i.Name), `"`), strings.Join(names, ", "))
}
