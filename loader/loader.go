// SPDX-License-Identifier: Apache-2.0

// Package loader is the only part of mpcc that talks bpf(2): it probes the kernel, loads, pins,
// replaces and detaches the programs, and opens the maps they share.
//
// What it leaves in the system, and nothing else:
//
//	/sys/fs/bpf/mpcc/cc/NAME    the link of a loaded congestion control
//	/sys/fs/bpf/mpcc/maps/NAME  the shared maps
//	/run/mpcc/lock              held while a command changes something
//	/run/mpcc/defaults.json     what the changed defaults of namespaces were before
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
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/mpcc/mpcc/pkg/catalog"
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
			return false, fmt.Errorf("%s is loaded already; to change its tunables say mpcc switch %s --set …", e.Name, e.Name)
		}
	} else {
		if err := attach(e, o.Set); err != nil {
			return false, errors.Join(err, sweep())
		}
		loaded = true
	}
	for _, ns := range namespaces {
		if err := setDefault(ns, e.Name); err != nil {
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
	l, err := link.LoadPinnedLink(linkPath(e), nil)
	if err != nil {
		return explain("open the link of "+e.Name, err)
	}
	defer l.Close()
	coll, err := load(e, o.Set, mapDir)
	if err != nil {
		return err
	}
	defer coll.Close()
	if err := updateLink(l, coll.Maps[e.Name]); err != nil {
		return explain("switch "+e.Name, err)
	}
	return renewDefaults(e.Name)
}

// Unloaded tells what Unload did.
type Unloaded struct {
	Name     string
	Restored []Default // the defaults that were given back
	Live     int       // connections' subflows that run the code until they close
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
	u, err := detach(linkPath(e))
	if err != nil {
		return u, err
	}
	if u.Live, err = countLive(e.Name); err != nil {
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
		u.Live, err = countLive(u.Name)
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
	names, err := offered()
	if err != nil {
		return nil, err
	}
	var found []catalog.Entry
	for _, e := range catalog.Entries {
		_, err := os.Stat(linkPath(e))
		if errors.Is(err, fs.ErrNotExist) || !slices.Contains(names, e.Name) {
			continue
		}
		if err != nil {
			return nil, explain("see what is loaded", err)
		}
		found = append(found, e)
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

func linkPath(e catalog.Entry) string { return filepath.Join(pinDir, string(e.Kind), e.Name) }

func isPinned(e catalog.Entry) bool {
	_, err := os.Stat(linkPath(e))
	return err == nil
}

// pins lists the links, those of algorithms that only another version of mpcc knows too.
func pins() ([]string, error) { return filepath.Glob(filepath.Join(pinDir, string(catalog.CC), "*")) }

// load brings an algorithm's programs into the kernel, with the shared maps pinned in dir or, where dir
// is empty, with maps of its own.
func load(e catalog.Entry, set map[string]string, dir string) (*ebpf.Collection, error) {
	spec, err := e.Spec()
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
		return nil, explain("load "+e.Name, err)
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
	if taken, err := stillOffered(e.Name); err != nil {
		return err
	} else if taken {
		return fmt.Errorf("load %s: the name is taken by a congestion control that mpcc has not loaded; remove that first (rmmod tcp_%s, or end the program that attached it)", e.Name, e.Name)
	}
	for _, dir := range []string{mapDir, filepath.Dir(linkPath(e))} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	coll, err := load(e, set, mapDir)
	if err != nil {
		return err
	}
	defer coll.Close()
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps[e.Name]})
	if err != nil {
		return explain("attach "+e.Name, err)
	}
	defer l.Close()
	if err := l.Pin(linkPath(e)); err != nil {
		return explain("pin "+e.Name, err)
	}
	if names, err := offered(); err != nil {
		return err
	} else if !slices.Contains(names, e.Name) {
		return errors.Join(fmt.Errorf("load %s: the kernel took it but does not offer it", e.Name), l.Unpin())
	}
	return nil
}

// detach takes the name away from the kernel; live connections keep the code.
func detach(pin string) (Unloaded, error) {
	name := filepath.Base(pin)
	restored, err := giveBack(func(cc string) bool { return cc == name })
	if err != nil {
		return Unloaded{}, err
	}
	if err := os.Remove(pin); err != nil {
		return Unloaded{}, explain("unload "+name, err)
	}
	if still, err := stillOffered(name); err != nil {
		return Unloaded{}, err
	} else if still {
		return Unloaded{}, fmt.Errorf("unload %s: its pin is removed, but the kernel goes on offering it: another program holds its link", name)
	}
	return Unloaded{Name: name, Restored: restored}, nil
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
	names, err := offered()
	if err != nil {
		return err
	}
	pins, err := pins()
	if err != nil {
		return err
	}
	for _, pin := range pins {
		if slices.Contains(names, filepath.Base(pin)) {
			continue
		}
		if err := os.Remove(pin); err != nil {
			return err
		}
	}
	_, err = giveBack(func(cc string) bool { return isOurs(cc) && !slices.Contains(names, cc) })
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

func countLive(name string) (int, error) {
	maps, err := OpenMaps()
	if errors.Is(err, ErrNotLoaded) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	subflows, err := maps.Subflows()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range subflows {
		if CString(s.Cc[:]) == name {
			n++
		}
	}
	return n, nil
}

// offered lists the congestion controls that the kernel has.
func offered() ([]string, error) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	return strings.Fields(string(b)), err
}

// stillOffered waits for a name to go. The kernel takes it away some time after the last hold on the
// link has gone, be it a pin or a process that was killed.
func stillOffered(name string) (bool, error) {
	const settled = 3 * time.Second
	for end := time.Now().Add(settled); ; time.Sleep(10 * time.Millisecond) {
		names, err := offered()
		if err != nil || !slices.Contains(names, name) {
			return false, err
		}
		if time.Now().After(end) {
			return true, nil
		}
	}
}
