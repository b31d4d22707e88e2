// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/mpcc/mpcc/internal/netns"
)

// place is what people call a network namespace and its interfaces.
type place struct {
	name       string
	interfaces map[uint32]string // by index; nil where this process may not look into the namespace
}

// places are the namespaces that the maps know.
type places struct {
	latest map[uint32]activity // by inode number
	within map[uint64]bool     // by cookie, those whose interfaces are to be named
	found  map[uint64]place    // by cookie
}

// activity is when a namespace was last active. Of several namespaces that have had one inode number, all but
// the latest must have ended. (Cookies do not tell which is the latest: CPUs hand them out in any order.)
type activity struct{ cookie, us uint64 }

func newPlaces() places {
	return places{latest: map[uint32]activity{}, within: map[uint64]bool{}, found: map[uint64]place{}}
}

func (p places) add(inode uint32, cookie, us uint64) {
	if last, known := p.latest[inode]; !known || us >= last.us {
		p.latest[inode] = activity{cookie, us}
	}
}

// find looks up those of the namespaces that are the caller's or have a name of ip netns.
func (p places) find(ctx context.Context) error {
	here, err := netns.Current()
	if err != nil {
		return err
	}
	candidates := map[uint64]netns.NS{here.Inode: here}
	for inode, name := range netns.Names() {
		if ns, err := netns.Named(name); err == nil && ns.Inode == inode { // else it has just ended
			candidates[inode] = ns
		}
	}
	for inode, ns := range candidates {
		latest, known := p.latest[uint32(inode)]
		if !known {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		cookie, interfaces, err := p.lookInto(ns)
		switch {
		case errors.Is(err, netns.ErrEnded):
			continue
		case netns.Forbidden(err):
			cookie = latest.cookie // a guess, where this process may not enter the namespace, as the exporter
		case err != nil:
			return fmt.Errorf("look into %s: %w", ns, err)
		}
		p.found[cookie] = place{ns.Name, interfaces}
	}
	return nil
}

func (p places) lookInto(ns netns.NS) (cookie uint64, interfaces map[uint32]string, err error) {
	err = ns.Do(func() error {
		var err error
		if cookie, err = netns.Cookie(); err != nil || !p.within[cookie] {
			return err
		}
		if interfaces, err = interfaceNames(); netns.Forbidden(err) {
			return nil // names are for those who may see them
		}
		return err
	})
	return cookie, interfaces, err
}

func interfaceNames() (map[uint32]string, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for _, i := range list {
		names[uint32(i.Index)] = printable(i.Name)
	}
	return names, nil
}
