// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"slices"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/loader"
)

// Profile is the power that an interface draws, as mpcc energy set or loader.SetProfile has set it.
type Profile struct {
	Netns       uint64 // inode number of the namespace
	NetnsCookie uint64 // tells it from earlier ones with that number
	NetnsName   string // by ip netns; "" for one without, and for one that has ended
	Interface   string // as it is called now or, where that cannot be seen, was when the profile was set
	Ifindex     uint32
	Uplink      float64 // sending, mW/Mbps
	Downlink    float64 // receiving, mW/Mbps
	Base        float64 // while active, mW
}

// Profiles returns the energy profiles by namespace and interface.
func (s *Source) Profiles(ctx context.Context) ([]Profile, error) {
	set, err := loader.Read[obj.MapsMpccEnergyKey, obj.MapsMpccEnergyProfile](s.maps, loader.MapEnergy)
	if err != nil {
		return nil, err
	}
	at := newPlaces()
	for key, p := range set {
		at.add(p.Netns, key.NetnsCookie, p.ChargedUntilUs)
		at.within[key.NetnsCookie] = true // it may have been renamed since
	}
	if err := at.find(ctx); err != nil {
		return nil, err
	}
	all := []Profile{}
	for key, p := range set {
		there := at.found[key.NetnsCookie]
		all = append(all, Profile{
			Netns: uint64(p.Netns), NetnsCookie: key.NetnsCookie, NetnsName: there.name,
			Interface: cmp.Or(there.interfaces[key.Ifindex], text(p.Ifname[:])), Ifindex: key.Ifindex,
			Uplink:   float64(p.UpUwPerMbps) / 1000,
			Downlink: float64(p.DownUwPerMbps) / 1000,
			Base:     float64(p.BaseUw) / 1000,
		})
	}
	slices.SortFunc(all, func(a, b Profile) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.NetnsCookie, b.NetnsCookie), cmp.Compare(a.Ifindex, b.Ifindex))
	})
	return all, nil
}
