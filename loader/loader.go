// SPDX-License-Identifier: Apache-2.0

// Package loader is the only part of mpcc that talks bpf(2): it probes the kernel, loads, pins,
// replaces and detaches the programs, and opens the maps they share.
//
// What it leaves in the system, and nothing else:
//
//	/sys/fs/bpf/mpcc/cc/NAME    the link of a loaded congestion control
//	/sys/fs/bpf/mpcc/maps/NAME  the shared maps
//	/run/mpcc/lock              held while a command changes something
//	/run/mpcc/defaults.json     namespaces whose default was changed, and what it was before
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
	"strings"

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
	if err := missing(e); err != nil {
		return false, err
	}
	if o.DryRun {
		return false, verify(e, o.Set)
	}
	unlock, err := lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := sweep(); err != nil {
		return false, err
	}
	// Namespaces that do not exist must be known before anything is changed.
	namespaces, err := resolveAll(o)
	if err != nil {
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
	if o.DryRun {
		return verify(e, o.Set)
	}
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
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
	return nil
}

// Unloaded tells what Unload did.
type Unloaded struct {
	Name     string
	Restored []string // namespaces whose default was given back
	Live     int      // connections' subflows that run the code until they close
}

// Unload gives back every default that names the algorithm, then detaches it.
func Unload(e catalog.Entry) (Unloaded, error) {
	if err := checkRights(); err != nil {
		return Unloaded{}, err
	}
	unlock, err := lock()
	if err != nil {
		return Unloaded{}, err
	}
	defer unlock()
	if !isPinned(e) {
		return Unloaded{}, errors.Join(notLoaded(e), sweep())
	}
	u, err := detach(e)
	if err != nil {
		return u, err
	}
	return u, sweep()
}

// UnloadAll unloads whatever is loaded and removes the maps too, live connections or not.
func UnloadAll() ([]Unloaded, error) {
	if err := checkRights(); err != nil {
		return nil, err
	}
	unlock, err := lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	var all []Unloaded
	for _, e := range Loaded() {
		u, err := detach(e)
		if err != nil {
			return all, err
		}
		all = append(all, u)
	}
	if err := sweep(); err != nil {
		return all, err
	}
	return all, os.RemoveAll(pinDir)
}

// Loaded lists the algorithms that are attached.
func Loaded() []catalog.Entry {
	var found []catalog.Entry
	for _, e := range catalog.Entries {
		if isPinned(e) {
			found = append(found, e)
		}
	}
	return found
}

func linkPath(e catalog.Entry) string { return filepath.Join(pinDir, string(e.Kind), e.Name) }

func isPinned(e catalog.Entry) bool {
	_, err := os.Stat(linkPath(e))
	return err == nil
}

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
	if err := checkFS(); err != nil {
		return err
	}
	if taken, err := isAvailable(e.Name); err != nil {
		return err
	} else if taken {
		return fmt.Errorf("load %s: this kernel has another congestion control of that name; unload it first (rmmod tcp_%s, or the program that attached it)", e.Name, e.Name)
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
	if there, err := isAvailable(e.Name); err != nil {
		return err
	} else if !there {
		return errors.Join(fmt.Errorf("load %s: the kernel took it but does not offer it", e.Name), l.Unpin())
	}
	return nil
}

func detach(e catalog.Entry) (Unloaded, error) {
	u := Unloaded{Name: e.Name}
	var err error
	if u.Restored, err = restoreDefaults(e.Name); err != nil {
		return u, err
	}
	if err := os.Remove(linkPath(e)); err != nil {
		return u, explain("unload "+e.Name, err)
	}
	u.Live, err = countLive(e.Name)
	return u, err
}

// sweep removes what a killed command or a finished connection left: defaults that name a congestion
// control which is gone, and the maps once nothing writes to them and the user keeps nothing in them.
func sweep() error {
	if err := dropStaleDefaults(); err != nil {
		return err
	}
	if len(Loaded()) > 0 {
		return nil
	}
	if _, err := os.Stat(mapDir); errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(pinDir)
	}
	maps, err := OpenMaps()
	if err != nil {
		// A load that was killed while it pinned them: there is nothing in them yet.
		return os.RemoveAll(pinDir)
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

// isAvailable asks the kernel whether it offers a congestion control of this name.
func isAvailable(name string) (bool, error) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return false, err
	}
	for _, n := range strings.Fields(string(b)) {
		if n == name {
			return true, nil
		}
	}
	return false, nil
}
