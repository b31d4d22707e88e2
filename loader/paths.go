// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cilium/ebpf"

	"github.com/mpcc/mpcc/bpf/obj"
)

// Paths are the rules of paths, which the packet scheduler prefer obeys, and what each has carried. Package paths
// has them in the user's words.
type Paths struct {
	Rules map[uint32]obj.MapsMpccPathRule // by slot, from 0
	Uses  map[uint32]obj.MapsMpccPathUse  // by the rule's id

	maps *Maps
}

// ErrNoRoom is wrapped where there is no room for one more rule.
var ErrNoRoom = errors.New("no room")

// ReadPaths returns the rules; none where there are no maps.
func ReadPaths() (*Paths, error) {
	m, err := OpenMaps()
	if errors.Is(err, ErrNotLoaded) {
		return &Paths{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return readPaths(m)
}

func readPaths(m *Maps) (p *Paths, err error) {
	p = &Paths{maps: m}
	if p.Rules, err = Read[uint32, obj.MapsMpccPathRule](m, MapPathRules); err != nil {
		return nil, err
	}
	p.Uses, err = Read[uint32, obj.MapsMpccPathUse](m, MapPathUses)
	return p, err
}

// ChangePaths has change write to the rules, while no other process does, whether or not anything is loaded. They
// take effect on running connections within 100 ms.
func ChangePaths(ctx context.Context, change func(*Paths) error) error {
	return changeMaps(ctx, makeAllMaps, func(m *Maps) error {
		p, err := readPaths(m)
		if err != nil {
			return err
		}
		return change(p)
	})
}

// Add adds a rule under a new id, and its use.
func (p *Paths) Add(r obj.MapsMpccPathRule, u obj.MapsMpccPathUse) error {
	slot := uint32(0)
	for ; ; slot++ {
		if _, taken := p.Rules[slot]; !taken {
			break
		}
	}
	if most := p.maps.byName[MapPathRules].MaxEntries(); slot >= most {
		return fmt.Errorf("%d paths have rules, and there is %w for more", most, ErrNoRoom)
	}
	// The programs tell rules apart by the id, also from earlier ones.
	for taken := true; taken; _, taken = p.Uses[r.Id] {
		r.Id = 1 + rand.Uint32N(1<<32-1)
	}
	if err := p.PutUse(r.Id, u); err != nil {
		return err
	}
	return p.Put(slot, r)
}

// Put replaces the rule in a slot.
func (p *Paths) Put(slot uint32, r obj.MapsMpccPathRule) error {
	p.Rules[slot] = r
	return p.maps.byName[MapPathRules].Put(slot, r)
}

// PutUse replaces what a rule has carried. What is counted meanwhile is lost.
func (p *Paths) PutUse(id uint32, u obj.MapsMpccPathUse) error {
	p.Uses[id] = u
	return p.maps.byName[MapPathUses].Put(id, u)
}

// Delete removes the rule in a slot, and its use.
func (p *Paths) Delete(slot uint32) error {
	id := p.Rules[slot].Id
	delete(p.Rules, slot)
	delete(p.Uses, id)
	err := p.maps.byName[MapPathRules].Delete(slot)
	if err := p.maps.byName[MapPathUses].Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return err
}

// AddPathUse adds bytes to what a rule has carried. It takes no lock: what a program counts at the same moment may be
// lost. A rule that is gone meanwhile is no error.
func AddPathUse(id uint32, bytes uint64) error {
	m, err := openMapsToChange()
	if err != nil {
		return err
	}
	defer m.Close()
	uses := m.byName[MapPathUses]
	var u obj.MapsMpccPathUse
	if err := uses.Lookup(id, &u); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read map %s: %w", MapPathUses, err)
	}
	u.Bytes += bytes
	if err := uses.Update(id, u, ebpf.UpdateExist); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("write map %s: %w", MapPathUses, err)
	}
	return nil
}
