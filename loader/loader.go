// SPDX-License-Identifier: Apache-2.0

// Package loader loads mpcc's congestion controls and packet schedulers into the running kernel, replaces
// and detaches them, says what a kernel lacks for them, and opens the maps that they share. An algorithm is
// named by its entry in package catalog; Object is one of somebody else's.
//
// What it leaves in the system, and nothing else:
//
//	/sys/fs/bpf/mpcc/cc/NAME     the link of a loaded congestion control
//	/sys/fs/bpf/mpcc/sched/NAME  the link of a loaded packet scheduler
//	/sys/fs/bpf/mpcc/maps/NAME   the shared maps
//	/sys/fs/bpf/mpcc/use/NAME-ID the link of what a cgroup uses
//	/run/mpcc/lock               held while a command changes something
//	/run/mpcc/defaults.json      what the changed defaults of namespaces were before
//	/run/mpcc/objects/KIND-NAME  from which file of somebody else's an algorithm was loaded, and when
//	/run/mpcc/pieces             what net.core.high_order_alloc_disable was before
//
// and the BPF file system at /sys/fs/bpf, if Load had to mount it.
//
// Changes take root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; namespaces other than the
// caller's take CAP_SYS_ADMIN too. Processes that change something wait for each other, for a minute at
// most. A wait ends with its context, whose cause is then in the error. Every change is ordered so that a
// process killed between two steps leaves what the next call understands: a record before the change it
// records, the pin as the last step of a load.
package loader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/internal/pieces"
)

const (
	bpffs    = "/sys/fs/bpf"
	pinDir   = bpffs + "/mpcc"
	mapDir   = pinDir + "/maps"
	stateDir = "/run/mpcc"
)

// Options of Load.
type Options struct {
	Object  *Object           // its programs, where they are not mpcc's
	Set     map[string]string // tunables by name, as Tunables returns them, and Paper; the others have their defaults
	Default bool              // make it the default of the namespaces
	Netns   []string          // namespaces of ip netns for Default; none means the caller's
	// MaxSubflows is how many live subflows the shared maps are made with room for, 16 to 4194304, and for
	// half as many connections under packet schedulers. 0 means one for each 64 KiB of the machine's
	// memory, rounded down to a power of two, at least 1024 and at most 262144. Maps that are there
	// already stay as they are.
	MaxSubflows int
	// SmallPieces has MPTCP hand data to subflows one page at a time instead of 32 KB, by
	// net.core.high_order_alloc_disable, until no packet scheduler is loaded any more. It is for packet schedulers.
	SmallPieces bool
	DryRun      bool // have the kernel verify it, attach nothing
}

// Attached tells what Load did.
type Attached struct {
	New     bool     // it was not loaded before
	NewMaps bool     // the shared maps were not there before
	Maps    Capacity // what they have room for
	Mounted bool     // /sys/fs/bpf was no BPF file system before
}

// Load attaches an algorithm under its own name and pins it, so that it outlives the process. Loading what
// is loaded is no error, unless tunables are to be set, which Switch does. The error wraps ErrUnsupported if
// this kernel cannot run it, and ErrUsage if an option is out of range. Attached tells what was done before
// an error.
func Load(ctx context.Context, e catalog.Entry, o Options) (done Attached, err error) {
	if err := checkRights(); err != nil {
		return done, err
	}
	from := source{e, o.Object}
	if err := from.check(); err != nil {
		return done, err
	}
	if o.SmallPieces && e.Kind != catalog.Sched {
		return done, usage("%s is a %s; only packet schedulers choose for pieces", e, e.Kind.Noun())
	}
	if err := checkSubflows(o.MaxSubflows); err != nil {
		return done, err
	}
	// Namespaces that do not exist must be known before anything is changed.
	namespaces, err := resolveAll(o)
	if err != nil {
		return done, err
	}
	if o.DryRun {
		return done, verify(from, o.Set)
	}
	unlock, mounted, err := beginLoad(ctx)
	if err != nil {
		return done, err
	}
	defer func() {
		done.Mounted = mounted != nil && !(err != nil && mounted.undo())
		unlock()
	}()
	if err := sweep(ctx); err != nil {
		return done, err
	}
	if err := from.agrees(); err != nil {
		return done, err
	}
	if isPinned(e) && len(o.Set) > 0 {
		return done, fmt.Errorf("%s is loaded already; to change its tunables say mpcc switch %s --set …", e, from.word())
	}
	if err := done.attach(ctx, from, o); err != nil {
		return done, errors.Join(err, sweep(context.WithoutCancel(ctx)))
	}
	if o.SmallPieces {
		if err := pieces.Cut(ctx, piecesUser); err != nil {
			return done, err
		}
	}
	for _, ns := range namespaces {
		if err := plugOf(e.Kind).setDefault(ns, e.Name); err != nil {
			return done, err
		}
	}
	return done, nil
}

// SwitchOptions are the options of Switch.
type SwitchOptions struct {
	Object *Object           // the programs, where they are not mpcc's
	Set    map[string]string // tunables by name; the others have their defaults, whatever they had before
	DryRun bool              // have the kernel verify it, replace nothing
}

// Switch replaces a loaded algorithm's programs by this build's, with these tunables. New connections
// get the new programs, live ones keep theirs; the name stays available throughout. The error wraps
// ErrNotLoaded if it is not loaded, ErrUnsupported if this kernel cannot replace it, and ErrUsage if it has
// no such tunable.
func Switch(ctx context.Context, e catalog.Entry, o SwitchOptions) error {
	if err := checkRights(); err != nil {
		return err
	}
	from := source{e, o.Object}
	if err := from.check(); err != nil {
		return err
	}
	if o.DryRun {
		return verify(from, o.Set)
	}
	unlock, err := begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := sweep(ctx); err != nil {
		return err
	}
	if !isPinned(e) {
		return notLoaded(from)
	}
	l, err := link.LoadPinnedLink(pinOf(e).path(), nil)
	if err != nil {
		return explain("open the link of "+e.String(), err)
	}
	defer l.Close()
	shared, _, err := makeMaps(0)
	if err != nil {
		return err
	}
	defer shared.Close()
	coll, table, err := load(from, o.Set, shared)
	if err != nil {
		return err
	}
	defer coll.Close()
	if err := updateLink(l, table); errors.Is(err, unix.EOPNOTSUPP) {
		return unsupported("switch %s: this kernel's type of %ss cannot replace one in one step; unload it and load it again (connections that start in between have the kernel's own)", e, e.Kind.Noun())
	} else if err != nil {
		return explain("switch "+e.String(), err)
	}
	if o.Object != nil {
		if err := o.Object.writeNote(); err != nil {
			return err
		}
	}
	if p := plugOf(e.Kind); p.held {
		return p.renewDefaults(ctx, e.Name)
	}
	return nil
}

// Unloaded tells what Unload did.
type Unloaded struct {
	Kind     catalog.Kind
	Name     string      // NAME, or KIND/NAME where a kind has to tell it apart
	Restored []Default   // the defaults that were given back
	Ended    []CgroupUse // in which cgroups it was used
	Live     int         // subflows or, of a scheduler, connections that run the code until they close
}

// Unload gives back every default that is the algorithm, ends its use in cgroups, then detaches it. The error wraps
// ErrNotLoaded if it is not loaded.
func Unload(ctx context.Context, e catalog.Entry) (Unloaded, error) {
	if err := checkRights(); err != nil {
		return Unloaded{}, err
	}
	unlock, err := begin(ctx)
	if err != nil {
		return Unloaded{}, err
	}
	defer unlock()
	if !isPinned(e) {
		return Unloaded{}, errors.Join(notLoaded(source{Entry: e}), sweep(ctx))
	}
	u, err := detach(ctx, pinOf(e))
	if err != nil {
		return u, err
	}
	if u.Live, err = countLive(pinOf(e)); err != nil {
		return u, err
	}
	return u, sweep(ctx)
}

// UnloadAll ends what cgroups use, unloads whatever is loaded, and removes the maps too: with live connections or not,
// and whichever version of mpcc they are from. Of another version's it cannot tell how many are live, nor for whom they
// were used.
func UnloadAll(ctx context.Context) (all []Unloaded, ended []CgroupUse, err error) {
	if err := checkRights(); err != nil {
		return nil, nil, err
	}
	unlock, err := begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if ended, err = endAllUses(ctx); err != nil {
		return nil, ended, err
	}
	pins, err := pins()
	if err != nil {
		return nil, ended, err
	}
	for _, pin := range pins {
		u, err := detach(ctx, pin)
		if err != nil {
			return all, ended, err
		}
		u.Live, err = countLive(pin)
		if err != nil && !errors.Is(err, ebpf.ErrMapIncompatible) {
			return all, ended, err
		}
		all = append(all, u)
	}
	return all, ended, removeMaps(ctx)
}

// RemoveIdleMaps removes the maps if nothing is loaded and nothing is used in a cgroup or for destinations.
func RemoveIdleMaps(ctx context.Context) error {
	if err := checkRights(); err != nil {
		return err
	}
	unlock, err := begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	loaded, err := pins()
	if err != nil {
		return err
	}
	used, err := os.ReadDir(useDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(loaded)+len(used) > 0 {
		return nil
	}
	return removeMaps(ctx)
}

// removeMaps removes all pins. Nothing is attached any more.
func removeMaps(ctx context.Context) error {
	if err := sweepNames(ctx); err != nil {
		return err
	}
	if err := sweepPieces(ctx); err != nil {
		return err
	}
	return os.RemoveAll(pinDir)
}

// Loaded returns the algorithms that are attached, in the catalog's order.
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

// pin is the link of a loaded algorithm, which may be one that only another version of mpcc knows.
type pin struct {
	*plug
	name string
}

func pinOf(e catalog.Entry) pin { return pin{plugOf(e.Kind), e.Name} }

func (p pin) path() string { return filepath.Join(pinDir, string(p.kind), p.name) }

func (p pin) String() string { return catalog.Short(p.kind, p.name) }

// checkKernel returns an error if the kernel lacks something that the algorithm needs. One that is loaded
// already lacks nothing.
func checkKernel(e catalog.Entry) error {
	if isPinned(e) {
		return nil
	}
	if without := lacks(e.Kind); without != "" {
		return unsupported("this kernel (%s) cannot run %s: it has %s", Release(), e, without)
	}
	return nil
}

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

// load brings an algorithm's programs into the kernel, with the shared maps or, for nil, with maps of its own. It
// returns the struct_ops map, which is the collection's, too.
func load(from source, set map[string]string, shared *Maps) (coll *ebpf.Collection, table *ebpf.Map, err error) {
	spec, name, err := from.open()
	if err != nil {
		return nil, nil, err
	}
	if err := setTunables(spec, from.Entry, set); err != nil {
		return nil, nil, err
	}
	delete(spec.Programs, evalProgram)
	if shared != nil {
		if err := setShares(spec, shared); err != nil {
			return nil, nil, err
		}
	}
	replacements := map[string]*ebpf.Map{}
	for name, s := range spec.Maps {
		if s.Pinning == ebpf.PinByName && shared != nil && shared.byName[MapName(name)] != nil {
			replacements[name] = shared.byName[MapName(name)]
			s.MaxEntries = replacements[name].MaxEntries()
		}
		s.Pinning = ebpf.PinNone
	}
	coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements, Cache: types})
	if from.of != nil && errors.Is(err, ebpf.ErrMapIncompatible) {
		return nil, nil, fmt.Errorf("load %s: it was built with the headers of another version of mpcc; build it anew with this one's", from.of.File)
	}
	if err != nil {
		return nil, nil, explain("load "+from.word(), err)
	}
	return coll, coll.Maps[name], nil
}

// setShares bounds how many entries of each shared map one network namespace may have. An object declares a bound and a
// size for each map (bpf/include/mpcc/share.h): the bound is scaled to the map's real size. Congestion controls have bounds for
// subflows and totals, packet schedulers one for connections.
func setShares(spec *ebpf.CollectionSpec, shared *Maps) error {
	for bound, name := range map[string]MapName{
		"mpcc_namespace_subflows": MapSubflows, "mpcc_namespace_totals": MapTotals, "mpcc_namespace_shown": MapConnections,
	} {
		v, declared := spec.Variables[bound], spec.Maps[string(name)]
		if v == nil || declared == nil {
			continue
		}
		var share uint32
		if err := v.Get(&share); err != nil {
			return err
		}
		entries := uint64(shared.byName[name].MaxEntries())
		if err := v.Set(uint32(uint64(share) * entries / uint64(declared.MaxEntries))); err != nil {
			return err
		}
	}
	return nil
}

func verify(from source, set map[string]string) error {
	coll, _, err := load(from, set, nil)
	if err != nil {
		return err
	}
	coll.Close()
	return nil
}

// attach makes the shared maps and attaches the algorithm, each where it is not there yet. The maps of all
// kinds are made together, so that readers find all of them or none.
func (done *Attached) attach(ctx context.Context, from source, o Options) error {
	there := isPinned(from.Entry)
	p := pinOf(from.Entry)
	if !there {
		if taken, err := p.stillOffered(ctx, p.name, 3*time.Second); err != nil {
			return err
		} else if taken {
			return fmt.Errorf("load %s: the name is taken by a %s that mpcc has not loaded; remove that first (%s)", from, from.Kind.Noun(), p.remove(p.name))
		}
	}
	shared, made, err := makeMaps(o.MaxSubflows)
	if err != nil {
		return err
	}
	defer shared.Close()
	done.NewMaps = made
	if done.Maps, err = shared.Capacity(); err != nil || there {
		return err
	}
	if from.of != nil {
		if err := from.of.writeNote(); err != nil {
			return err
		}
	}
	if err := p.attach(from, o.Set, shared); err != nil {
		return err
	}
	done.New = true
	return nil
}

func (p pin) attach(from source, set map[string]string, shared *Maps) error {
	if err := os.MkdirAll(filepath.Dir(p.path()), 0o700); err != nil {
		return err
	}
	coll, table, err := load(from, set, shared)
	if err != nil {
		return err
	}
	defer coll.Close()
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: table})
	if err != nil {
		return explain("attach "+from.word(), err)
	}
	defer l.Close()
	if err := l.Pin(p.path()); err != nil {
		return explain("pin "+from.String(), err)
	}
	if names, err := p.offered(); err != nil {
		return err
	} else if !slices.Contains(names, p.name) {
		return errors.Join(fmt.Errorf("load %s: the kernel took it but does not offer it", from.word()), l.Unpin())
	}
	return nil
}

// detach takes the name away from the kernel; live connections keep the code.
func detach(ctx context.Context, p pin) (Unloaded, error) {
	restored, err := giveBack(ctx, func(_ netns.NS, of *plug, name string) bool { return of == p.plug && name == p.name })
	if err != nil {
		return Unloaded{}, err
	}
	used, err := CgroupUses()
	if err != nil {
		return Unloaded{}, err
	}
	ended, err := endUses(ctx, used, func(u CgroupUse) bool { return p.kind == catalog.CC && u.What == p.name })
	if err != nil {
		return Unloaded{}, err
	}
	if err := os.Remove(p.path()); err != nil {
		return Unloaded{}, explain("unload "+p.String(), err)
	}
	if still, err := p.stillOffered(ctx, p.name, 30*time.Second); err != nil {
		return Unloaded{}, err
	} else if still {
		return Unloaded{}, fmt.Errorf("unload %s: its pin is removed, but the kernel goes on offering it: another program holds its link", p)
	}
	return Unloaded{Kind: p.kind, Name: p.String(), Restored: restored, Ended: ended}, nil
}

// sweep removes what a killed command or a finished connection left.
func sweep(ctx context.Context) error {
	if err := sweepNames(ctx); err != nil {
		return err
	}
	if err := sweepPieces(ctx); err != nil {
		return err
	}
	return sweepMaps()
}

// Sweep removes what a killed command or a finished connection left, as every change does.
func Sweep(ctx context.Context) error {
	if err := checkRights(); err != nil {
		return err
	}
	if checkFS() != nil {
		return nil // nothing can be loaded
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return sweep(ctx)
}

// piecesUser is what package pieces knows loaded packet schedulers by, all together.
const piecesUser = "load"

// sweepPieces gives the former size of pieces back once no packet scheduler is loaded.
func sweepPieces(ctx context.Context) error {
	pins, err := pins()
	if err != nil || slices.ContainsFunc(pins, func(p pin) bool { return p.kind == catalog.Sched }) {
		return err
	}
	return pieces.Restore(ctx, piecesUser)
}

// sweepNames removes the pins of links that were detached by force. It also replaces the defaults whose
// algorithm the kernel no longer offers, because its pin was removed by hand or the file system unmounted.
func sweepNames(ctx context.Context) error {
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
	if err := sweepUses(ctx, offered[plugOf(catalog.CC)]); err != nil {
		return err
	}
	_, err = giveBack(ctx, func(_ netns.NS, p *plug, name string) bool {
		return p.isOurs(name) && !slices.Contains(offered[p], name)
	})
	if err != nil {
		return err
	}
	return sweepNotes()
}

// sweepMaps removes the maps once nothing writes to them and they hold neither an energy profile nor a rule.
func sweepMaps() error {
	if pins, err := pins(); err != nil || len(pins) > 0 {
		return err
	}
	maps, err := OpenMaps()
	if errors.Is(err, ErrNotLoaded) {
		// Maps are missing: a command was killed while it pinned or removed them. The others are empty.
		return removePins()
	}
	if err != nil {
		return err
	}
	defer maps.Close()
	if used, err := maps.inUse(); err != nil || used {
		return err
	}
	return removePins()
}

// removePins removes all but what is used in cgroups.
func removePins() error {
	dirs, err := filepath.Glob(filepath.Join(pinDir, "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if dir != useDir {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return errors.Join(err, removeIfEmpty(pinDir))
}

// countLive returns how many subflows or, of a scheduler, connections run the algorithm's code.
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
