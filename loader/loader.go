// SPDX-License-Identifier: Apache-2.0

// Package loader is the only part of mpcc that talks bpf(2): it probes the kernel, loads, pins,
// replaces and detaches the programs, and opens the maps they share.
//
// What it leaves in the system, and nothing else:
//
//	/sys/fs/bpf/mpcc/cc/NAME     the link of a loaded congestion control
//	/sys/fs/bpf/mpcc/sched/NAME  the link of a loaded packet scheduler
//	/sys/fs/bpf/mpcc/maps/NAME   the shared maps
//	/run/mpcc/lock               held while a command changes something
//	/run/mpcc/defaults.json      what the changed defaults of namespaces were before
//
// Every change is ordered so that a process killed between two steps leaves what the next command
// understands: a record before the change it records, the pin as the last step of a load.
package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
)

const (
	bpffs    = "/sys/fs/bpf"
	pinDir   = bpffs + "/mpcc"
	mapDir   = pinDir + "/maps"
	stateDir = "/run/mpcc"
)

// Options of Load and Switch.
type Options struct {
	Set     map[string]string // tunables
	Default bool              // make it the default of the namespaces
	Netns   []string          // names of namespaces; none means the caller's
	DryRun  bool              // have the kernel verify it, attach nothing
}

// Load attaches an algorithm under its own name and pins it. It reports false when it was loaded before.
func Load(e catalog.Entry, o Options) (loaded bool, err error) {
	if err := checkRights(); err != nil {
		return false, err
	}
	if !isPinned(e) {
		if err := missing(e); err != nil {
			return false, err
		}
	}
	// Namespaces that do not exist must be known before anything is changed.
	namespaces, err := resolveAll(o)
	if err != nil {
		return false, err
	}
	if o.DryRun {
		return false, verify(e, o.Set)
	}
	unlock, err := begin()
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := sweep(); err != nil {
		return false, err
	}
	if isPinned(e) {
		if len(o.Set) > 0 {
			return false, fmt.Errorf("%s is loaded already; to change its tunables say mpcc switch %s --set …", e, e)
		}
	} else {
		if err := attach(e, o.Set); err != nil {
			return false, errors.Join(err, sweep())
		}
		loaded = true
	}
	for _, ns := range namespaces {
		if err := plugOf(e.Kind).setDefault(ns, e.Name); err != nil {
			return loaded, err
		}
	}
	return loaded, nil
}

// Switch replaces a loaded algorithm's programs by this build's, with these tunables. New connections
// get the new programs, live ones keep theirs; the name stays available throughout.
func Switch(e catalog.Entry, o Options) error {
	if err := checkRights(); err != nil {
		return err
	}
	if !isPinned(e) {
		if err := missing(e); err != nil {
			return err
		}
	}
	if o.DryRun {
		return verify(e, o.Set)
	}
	unlock, err := begin()
	if err != nil {
		return err
	}
	defer unlock()
	if err := sweep(); err != nil {
		return err
	}
	if !isPinned(e) {
		return notLoaded(e)
	}
	l, err := link.LoadPinnedLink(pinOf(e).path(), nil)
	if err != nil {
		return explain("open the link of "+e.String(), err)
	}
	defer l.Close()
	coll, err := load(e, o.Set, mapDir)
	if err != nil {
		return err
	}
	defer coll.Close()
	if err := updateLink(l, coll.Maps[e.Name]); errors.Is(err, unix.EOPNOTSUPP) {
		return unsupported("switch %s: this kernel's type of %ss cannot replace one in one step; unload it and load it again (connections that start in between have the kernel's own)", e, e.Kind.Noun())
	} else if err != nil {
		return explain("switch "+e.String(), err)
	}
	if p := plugOf(e.Kind); p.held {
		return p.renewDefaults(e.Name)
	}
	return nil
}

// Unloaded tells what Unload did.
type Unloaded struct {
	Kind     catalog.Kind
	Name     string    // the shortest that tells it apart
	Restored []Default // the defaults that were given back
	Live     int       // subflows or, of a scheduler, connections that run the code until they close
}

// Unload gives back every default that is the algorithm, then detaches it.
func Unload(e catalog.Entry) (Unloaded, error) {
	if err := checkRights(); err != nil {
		return Unloaded{}, err
	}
	unlock, err := begin()
	if err != nil {
		return Unloaded{}, err
	}
	defer unlock()
	if !isPinned(e) {
		return Unloaded{}, errors.Join(notLoaded(e), sweep())
	}
	u, err := detach(pinOf(e))
	if err != nil {
		return u, err
	}
	if u.Live, err = countLive(pinOf(e)); err != nil {
		return u, err
	}
	return u, sweep()
}

// UnloadAll unloads whatever is loaded and removes the maps too: with live connections or not, and
// whichever version of mpcc they are from. Of another version's it cannot tell how many are live.
func UnloadAll() ([]Unloaded, error) {
	if err := checkRights(); err != nil {
		return nil, err
	}
	unlock, err := begin()
	if err != nil {
		return nil, err
	}
	defer unlock()
	pins, err := pins()
	if err != nil {
		return nil, err
	}
	var all []Unloaded
	for _, pin := range pins {
		u, err := detach(pin)
		if err != nil {
			return all, err
		}
		u.Live, err = countLive(pin)
		if err != nil && !errors.Is(err, ebpf.ErrMapIncompatible) {
			return all, err
		}
		all = append(all, u)
	}
	if err := sweepNames(); err != nil {
		return all, err
	}
	return all, os.RemoveAll(pinDir)
}

// Loaded lists the algorithms that are attached.
func Loaded() ([]catalog.Entry, error) {
	var found []catalog.Entry
	for _, p := range plugs {
		names, err := p.offered()
		if err != nil {
			return nil, err
		}
		for _, e := range catalog.Entries {
			if e.Kind != p.kind || !slices.Contains(names, e.Name) {
				continue
			}
			_, err := os.Stat(pinOf(e).path())
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, explain("see what is loaded", err)
			}
			found = append(found, e)
		}
	}
	return found, nil
}

// begin is how every change starts: not without the file system of the pins, which a private mount
// namespace may lack and which tells what is loaded, and not at the same time as another.
func begin() (unlock func(), err error) {
	if err := checkFS(); err != nil {
		return nil, err
	}
	return lock()
}

// pin is the link of a loaded algorithm, which may be one that only another version of mpcc knows.
type pin struct {
	*plug
	name string
}

func pinOf(e catalog.Entry) pin { return pin{plugOf(e.Kind), e.Name} }

func (p pin) path() string { return filepath.Join(pinDir, string(p.kind), p.name) }

func (p pin) String() string { return catalog.Short(p.kind, p.name) }

func isPinned(e catalog.Entry) bool {
	_, err := os.Stat(pinOf(e).path())
	return err == nil
}

func pins() ([]pin, error) {
	var all []pin
	for _, p := range plugs {
		paths, err := filepath.Glob(pin{p, "*"}.path())
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			all = append(all, pin{p, filepath.Base(path)})
		}
	}
	return all, nil
}

// load brings an algorithm's programs into the kernel, with the shared maps pinned in dir or, where dir
// is empty, with maps of its own.
func load(e catalog.Entry, set map[string]string, dir string) (*ebpf.Collection, error) {
	spec, err := object(e)
	if err != nil {
		return nil, err
	}
	if err := setTunables(spec, e, set); err != nil {
		return nil, err
	}
	delete(spec.Programs, evalProgram)
	if dir == "" {
		for _, m := range spec.Maps {
			m.Pinning = ebpf.PinNone
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Maps: ebpf.MapOptions{PinPath: dir},
	})
	if err != nil {
		return nil, explain("load "+e.String(), err)
	}
	return coll, nil
}

func verify(e catalog.Entry, set map[string]string) error {
	coll, err := load(e, set, "")
	if err != nil {
		return err
	}
	coll.Close()
	return nil
}

func attach(e catalog.Entry, set map[string]string) error {
	p := pinOf(e)
	if taken, err := p.stillOffered(p.name); err != nil {
		return err
	} else if taken {
		return fmt.Errorf("load %s: the name is taken by a %s that mpcc has not loaded; remove that first (%s)", e, e.Kind.Noun(), p.remove(p.name))
	}
	// The maps of all kinds together: their readers find all of them or none.
	if err := makeMaps(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.path()), 0o700); err != nil {
		return err
	}
	coll, err := load(e, set, mapDir)
	if err != nil {
		return err
	}
	defer coll.Close()
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps[e.Name]})
	if err != nil {
		return explain("attach "+e.String(), err)
	}
	defer l.Close()
	if err := l.Pin(p.path()); err != nil {
		return explain("pin "+e.String(), err)
	}
	if names, err := p.offered(); err != nil {
		return err
	} else if !slices.Contains(names, e.Name) {
		return errors.Join(fmt.Errorf("load %s: the kernel took it but does not offer it", e), l.Unpin())
	}
	return nil
}

// detach takes the name away from the kernel; live connections keep the code.
func detach(p pin) (Unloaded, error) {
	restored, err := giveBack(func(of *plug, name string) bool { return of == p.plug && name == p.name })
	if err != nil {
		return Unloaded{}, err
	}
	if err := os.Remove(p.path()); err != nil {
		return Unloaded{}, explain("unload "+p.String(), err)
	}
	if still, err := p.stillOffered(p.name); err != nil {
		return Unloaded{}, err
	} else if still {
		return Unloaded{}, fmt.Errorf("unload %s: its pin is removed, but the kernel goes on offering it: another program holds its link", p)
	}
	return Unloaded{Kind: p.kind, Name: p.String(), Restored: restored}, nil
}

// sweep removes what a killed command or a finished connection left.
func sweep() error {
	if err := sweepNames(); err != nil {
		return err
	}
	return sweepMaps()
}

// sweepNames removes the pins of links that were detached by force, and the defaults whose name is no
// longer offered: the pin was removed by hand, or its file system unmounted.
func sweepNames() error {
	offered := map[*plug][]string{}
	for _, p := range plugs {
		var err error
		if offered[p], err = p.offered(); err != nil {
			return err
		}
	}
	pins, err := pins()
	if err != nil {
		return err
	}
	for _, p := range pins {
		if slices.Contains(offered[p.plug], p.name) {
			continue
		}
		if err := os.Remove(p.path()); err != nil {
			return err
		}
	}
	_, err = giveBack(func(p *plug, name string) bool { return p.isOurs(name) && !slices.Contains(offered[p], name) })
	return err
}

// sweepMaps removes the maps once nothing writes to them and the user keeps nothing in them.
func sweepMaps() error {
	if pins, err := pins(); err != nil || len(pins) > 0 {
		return err
	}
	maps, err := OpenMaps()
	if errors.Is(err, ErrNotLoaded) {
		// A command may have been killed while it pinned or removed them: there is nothing in them.
		return os.RemoveAll(pinDir)
	}
	if err != nil {
		return err
	}
	defer maps.Close()
	if used, err := maps.inUse(); err != nil || used {
		return err
	}
	return os.RemoveAll(pinDir)
}

// countLive counts what runs the algorithm's code.
func countLive(p pin) (int, error) {
	maps, err := OpenMaps()
	if errors.Is(err, ErrNotLoaded) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	return p.live(maps, p.name)
}
