// SPDX-License-Identifier: Apache-2.0

package telemetry

// Profile is what an interface draws, as mpcc energy set told the programs.
type Profile struct {
	Netns    uint64 // inode number
	Ifindex  uint32
	Uplink   float64 // sending, mW/Mbps
	Downlink float64 // receiving, mW/Mbps
	Base     float64 // while active, mW
}

// Profiles reads the energy profiles, in no order.
func (s *Source) Profiles() ([]Profile, error) {
	set, err := s.maps.Profiles()
	if err != nil {
		return nil, err
	}
	var all []Profile
	for key, p := range set {
		all = append(all, Profile{
			Netns: uint64(key.Netns), Ifindex: key.Ifindex,
			Uplink:   float64(p.UpUwPerMbps) / 1000,
			Downlink: float64(p.DownUwPerMbps) / 1000,
			Base:     float64(p.BaseUw) / 1000,
		})
	}
	return all, nil
}
