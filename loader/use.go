// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/cgroups"
	"github.com/mpcc/mpcc/internal/netns"
)

// useDir has a pinned link for each CgroupUse.
const useDir = pinDir + "/use"

// CgroupUse is something that the programs in a cgroup, and in those below it, get for the sockets that they
// make. It lasts until it is ended, the group or the namespace is removed, or the machine reboots.
type CgroupUse struct {
	What string      `json:"what"` // a congestion control, for MPTCP connections; or Multipath
	ID   uint64      `json:"cgroup_id"`
	Path string      `json:"cgroup"`      // the group's below the root, which is "/"; "id N" if it has been removed
	To   Destination `json:"to,omitzero"` // for the connections that go there; all, if it is zero
}

// Where says for whom it is used, as in "used in cgroup a.service".
func (u CgroupUse) Where() string {
	if u.To != (Destination{}) {
		return "for " + u.To.String()
	}
	return "in cgroup " + u.Path
}

// rank is the greater the fewer connections a use is for. Cgroups below the root go before destinations, and those
// before the root.
func (u CgroupUse) rank() uint32 {
	const belowRoot = 1 << 10
	switch {
	case u.To != Destination{}:
		rank := 2 * uint32(u.To.Prefix.Bits()+1)
		if u.To.Interface != "" {
			rank++
		}
		return rank
	case u.Path == "/":
		return 0
	}
	return belowRoot
}

// pin is the path of the link, whose name tells the whole use. A bpffs takes no name with a dot.
func (u CgroupUse) pin() string {
	name := fmt.Sprintf("%s-%d", u.What, u.ID)
	if u.To != (Destination{}) {
		name += fmt.Sprintf("-%d-%x-%d-%x", u.To.Cookie, u.To.Prefix.Addr().AsSlice(), u.To.Prefix.Bits(), u.To.Interface)
	}
	return filepath.Join(useDir, name)
}

// unpin is the reverse of pin; the names of the group and the namespace are not in it.
func unpin(name string) (u CgroupUse, err error) {
	bad := fmt.Errorf("%s is not one of this mpcc's; mpcc unload --all removes it", filepath.Join(useDir, name))
	parts := strings.Split(name, "-")
	if len(parts) != 2 && len(parts) != 6 {
		return u, bad
	}
	u.What = parts[0]
	if u.ID, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return u, bad
	}
	if len(parts) == 2 {
		return u, nil
	}
	var address, dev []byte
	var bits int
	_, err = fmt.Sscanf(strings.Join(parts[2:5], " "), "%d %x %d", &u.To.Cookie, &address, &bits)
	if err != nil {
		return u, bad
	}
	if dev, err = hex.DecodeString(parts[5]); err != nil {
		return u, bad
	}
	addr, ok := netip.AddrFromSlice(address)
	if !ok {
		return u, bad
	}
	u.To.Prefix, u.To.Interface = netip.PrefixFrom(addr, bits), string(dev)
	return u, nil
}

// CgroupUses returns what is used in cgroups.
func CgroupUses() ([]CgroupUse, error) {
	u, err := readUses()
	return u.all, err
}

// uses are what is used, and the groups and namespaces that there were a moment later.
type uses struct {
	all        []CgroupUse
	groups     map[uint64]cgroups.Group
	namespaces *namespaces // nil where no use has a destination
}

func readUses() (found uses, err error) {
	found.all = []CgroupUse{}
	pins, err := os.ReadDir(useDir)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, explain("see what cgroups use", err)
	}
	found.groups, err = cgroups.All()
	if err != nil && !errors.Is(err, cgroups.ErrNone) {
		return found, err
	}
	for _, pin := range pins {
		u, err := unpin(pin.Name())
		if err != nil {
			return found, err
		}
		u.Path = cmp.Or(found.groups[u.ID].Path, fmt.Sprintf("id %d", u.ID))
		if u.To != (Destination{}) {
			if found.namespaces == nil {
				if found.namespaces, err = findNamespaces(); err != nil {
					return found, err
				}
			}
			u.To.Netns = found.namespaces.name(u.To.Cookie)
		}
		found.all = append(found.all, u)
	}
	return found, nil
}

// isOver reports whether a use's group or namespace has been removed.
func (f uses) isOver(u CgroupUse) bool {
	// Inside a container there may be groups that it does not see.
	const root = 1
	_, seesAll := f.groups[root]
	_, hasGroup := f.groups[u.ID]
	return seesAll && !hasGroup || u.To != (Destination{}) && f.namespaces.ended(u.To.Cookie)
}

// UseInCgroup has MPTCP connections of a cgroup run a loaded congestion control from their beginning, unless
// the application chooses another one. It reports whether that is new. A connection that lives already stays as it
// is. The error wraps ErrNotLoaded if the algorithm is not loaded, ErrUsage if it is a packet scheduler.
func UseInCgroup(ctx context.Context, e catalog.Entry, cgroup string) (isNew bool, err error) {
	return useCC(ctx, e, cgroup, Destination{})
}

// UseTo has MPTCP connections to a destination run a loaded congestion control from their beginning, as UseInCgroup does
// for those of a cgroup. Among several destinations the longest prefix counts.
func UseTo(ctx context.Context, e catalog.Entry, to Destination) (isNew bool, err error) {
	return useCC(ctx, e, "/", to)
}

func useCC(ctx context.Context, e catalog.Entry, cgroup string, to Destination) (isNew bool, err error) {
	if e.Kind != catalog.CC {
		return false, usage("%s is a %s, which the kernel lets nobody choose for some connections", e, e.Kind.Noun())
	}
	if err := checkRights(); err != nil {
		return false, err
	}
	if !isPinned(e) {
		return false, notLoaded(source{Entry: e})
	}
	return start(ctx, CgroupUse{What: e.Name, To: to}, cgroup, func(u CgroupUse, dir string) (link.Link, error) {
		p, err := useProgram(obj.UseProgMpccUseCc, u.constants)
		if err != nil {
			return nil, err
		}
		defer p.Close()
		l, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: ebpf.AttachCGroupSockOps, Program: p})
		switch {
		case errors.Is(err, unix.EPERM):
			return nil, fmt.Errorf("cgroup %s, or one that it is in, has a program of somebody else's that allows no other beside it; bpftool cgroup tree shows it", u.Path)
		case errors.Is(err, unix.E2BIG):
			return nil, fmt.Errorf("the kernel takes 64 programs for a cgroup, and %s has them; mpcc use lists mpcc's", u.Path)
		}
		return l, err
	})
}

// constants sets what the program for a congestion control is to know.
func (u CgroupUse) constants(spec *ebpf.CollectionSpec) error {
	text := func(s string) (t [16]byte) {
		copy(t[:], s)
		return t
	}
	set := map[string]any{obj.UseVarMpccCc: text(u.What), obj.UseVarMpccRank: u.rank()}
	if u.To != (Destination{}) {
		bits := u.To.Prefix.Bits()
		if u.To.Prefix.Addr().Is4() {
			bits += 128 - 32
		}
		set[obj.UseVarMpccNetns], set[obj.UseVarMpccDev] = u.To.Cookie, text(u.To.Interface)
		set[obj.UseVarMpccTo], set[obj.UseVarMpccToBits] = u.To.Prefix.Addr().As16(), uint32(bits)
	}
	for name, value := range set {
		if err := spec.Variables[name].Set(value); err != nil {
			return err
		}
	}
	return nil
}

// ProbeUse returns what UseInCgroup, UseTo and MultipathInCgroup need of the kernel, and what of it there is. It has the
// verifier check the program for the last, where this process may, and attaches nothing.
func ProbeUse() []Feature {
	groups := Feature{Name: "cgroups (mpcc use --cgroup and --to)", Present: true}
	if _, err := cgroups.Find("/"); err != nil {
		groups.Present, groups.Mend = false, err.Error()
	}
	sockets := Feature{Name: "MPTCP for programs that know only TCP (mpcc use --multipath)"}
	switch {
	case !canReplaceSockets():
		sockets.Mend = replacesSockets
	case checkRights() != nil:
		sockets.Present = true
	default:
		p, err := multipathProgram(0)
		if err == nil {
			p.Close()
			sockets.Present = true
		} else if errors.Is(err, unix.EPERM) {
			sockets.Mend = "it " + forbidsReplacing
		} else {
			sockets.Mend = err.Error()
		}
	}
	return []Feature{groups, sockets}
}

// start pins what attach has attached to a cgroup, in the place of what is of the same sort there.
func start(ctx context.Context, u CgroupUse, cgroup string, attach func(u CgroupUse, dir string) (link.Link, error)) (isNew bool, err error) {
	g, err := cgroups.Find(cgroup)
	if err != nil {
		return false, err
	}
	unlock, err := begin(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := sweepNames(ctx); err != nil {
		return false, err
	}
	u.ID, u.Path = g.ID, g.Path
	all, err := CgroupUses()
	if err != nil {
		return false, err
	}
	if !slices.Contains(all, u) {
		l, err := attach(u, g.Dir)
		if err != nil {
			return false, explain("use "+u.What, err)
		}
		defer l.Close()
		if err := os.MkdirAll(useDir, 0o700); err != nil {
			return false, err
		}
		if err := l.Pin(u.pin()); err != nil {
			return false, explain("pin the use of "+u.What, err)
		}
		isNew = true
	}
	// The former one goes after the new one has come, so that there is one all the time.
	_, err = endUses(ctx, all, func(former CgroupUse) bool {
		return former != u && former.ID == u.ID && former.To == u.To && (former.What == Multipath) == (u.What == Multipath)
	})
	return isNew, err
}

// useProgram loads one of the programs for cgroups.
func useProgram(name string, set func(*ebpf.CollectionSpec) error) (*ebpf.Program, error) {
	spec, err := obj.LoadUse()
	if err != nil {
		return nil, err
	}
	for other := range spec.Programs {
		if other != name {
			delete(spec.Programs, other)
		}
	}
	if err := set(spec); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
}

// EndCgroupUses ends those uses that are selected, and returns them. What runs keeps what it has.
func EndCgroupUses(ctx context.Context, selected func(CgroupUse) bool) ([]CgroupUse, error) {
	if err := checkRights(); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := CgroupUses()
	if err != nil {
		return nil, err
	}
	ended, err := endUses(ctx, all, selected)
	return ended, errors.Join(err, removeIfEmpty(useDir), removeIfEmpty(pinDir))
}

func endUses(ctx context.Context, all []CgroupUse, selected func(CgroupUse) bool) (ended []CgroupUse, err error) {
	for _, u := range all {
		if !selected(u) {
			continue
		}
		l, err := pinnedLink(u.pin())
		if err != nil {
			return ended, err
		}
		if err := l.end(ctx); err != nil {
			return ended, err
		}
		ended = append(ended, u)
	}
	return ended, nil
}

// endAllUses also ends those whose pins this version of mpcc cannot read.
func endAllUses(ctx context.Context) (ended []CgroupUse, err error) {
	if uses, err := CgroupUses(); err == nil {
		ended = uses
	}
	pins, err := filepath.Glob(filepath.Join(useDir, "*"))
	if err != nil {
		return nil, err
	}
	for _, pin := range pins {
		l, err := pinnedLink(pin)
		if err != nil {
			continue // it is no link, and is removed with the directory
		}
		if err := l.end(ctx); err != nil {
			return nil, err
		}
	}
	return ended, os.RemoveAll(useDir)
}

// useLink is the link of a use, and the program that it alone attaches.
type useLink struct {
	pin     string
	id      link.ID
	program ebpf.ProgramID
}

func pinnedLink(pin string) (useLink, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return useLink{}, explain("open "+pin, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return useLink{}, explain("read "+pin, err)
	}
	return useLink{pin, info.ID, info.Program}, nil
}

// end removes the pin, and waits until the program runs no more.
func (l useLink) end(ctx context.Context) error {
	if err := os.Remove(l.pin); err != nil {
		return err
	}
	if lives, err := lasts(ctx, 30*time.Second, l.programLives); err != nil || !lives {
		return err
	}
	return l.checkEnded()
}

// programLives reports whether the kernel still has the link's program. The kernel detaches a program some time after the
// link's last holder, a pin or a process, has gone, and frees the program after that. The kernel lists programs for holders
// of CAP_SYS_ADMIN alone; without that capability the answer is no.
func (l useLink) programLives() (bool, error) {
	next, err := ebpf.ProgramGetNextID(l.program - 1)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EPERM) {
		return false, nil
	}
	return next == l.program, err
}

// checkEnded returns an error if the link lives on. A program without its link may live too, while a monitor has the
// program open.
func (l useLink) checkEnded() error {
	held, err := link.NewFromID(l.id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = held.Close()
	}
	return errors.Join(fmt.Errorf("%s is removed, but what it stands for goes on: another program holds its link; bpftool link show id %d names it", l.pin, l.id), err)
}

// sweepUses ends the uses of groups and namespaces that have been removed, and of congestion controls that the kernel no
// longer offers.
func sweepUses(ctx context.Context, offered []string) error {
	found, err := readUses()
	if err != nil {
		return err
	}
	_, err = endUses(ctx, found.all, func(u CgroupUse) bool {
		return found.isOver(u) || u.What != Multipath && !slices.Contains(offered, u.What)
	})
	return errors.Join(err, removeIfEmpty(useDir))
}

func removeIfEmpty(dir string) error {
	err := os.Remove(dir)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// UseInNetns makes a loaded algorithm the default of a network namespace of ip netns, as Load with Options.Default
// does, and reports whether that is new. The error wraps ErrNotLoaded if it is not loaded.
func UseInNetns(ctx context.Context, e catalog.Entry, name string) (isNew bool, err error) {
	if err := checkRights(); err != nil {
		return false, err
	}
	ns, err := netns.Named(name)
	if err != nil {
		return false, err
	}
	if !isPinned(e) {
		return false, notLoaded(source{Entry: e})
	}
	unlock, err := begin(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := sweepNames(ctx); err != nil {
		return false, err
	}
	p := plugOf(e.Kind)
	before, err := p.readDefault(ns)
	if err != nil {
		return false, err
	}
	return before != e.Name, p.setDefault(ns, e.Name)
}

// EndDefaults gives back those defaults that are selected, of those that mpcc has set, and returns them.
func EndDefaults(ctx context.Context, selected func(Default) bool) ([]Default, error) {
	if err := checkRights(); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := Defaults(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d Default) bool { return d.Original == "" || !selected(d) })
	return giveBack(ctx, func(ns netns.NS, p *plug, name string) bool {
		return slices.ContainsFunc(all, func(d Default) bool {
			return d.Inode == ns.Inode && d.Kind == p.kind && d.Set == name
		})
	})
}
