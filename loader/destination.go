// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"cmp"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/netns"
)

// Destination is where connections of a network namespace go.
type Destination struct {
	Prefix    netip.Prefix `json:"prefix"`              // the peers' addresses
	Interface string       `json:"interface,omitempty"` // the one that the connection leaves by; "" for any
	Netns     string       `json:"netns,omitempty"`     // as ip netns names it, or its inode's number; "" for the caller's
	Cookie    uint64       `json:"netns_cookie"`
}

func (d Destination) String() string {
	s := "connections to " + d.Prefix.String()
	if d.Interface != "" {
		s += " dev " + d.Interface
	}
	if d.Netns != "" {
		s += " in network namespace " + d.Netns
	}
	return s
}

// DestinationIn returns the destination of connections in the network namespace of a name of ip netns, "" for the
// caller's, to a prefix, by an interface, "" for any.
func DestinationIn(name string, to netip.Prefix, dev string) (Destination, error) {
	d := Destination{Prefix: to.Masked(), Interface: dev}
	ns, err := netns.Current()
	if name != "" {
		ns, err = netns.Named(name)
	}
	if err != nil {
		return d, err
	}
	if len(dev) >= unix.IFNAMSIZ {
		return d, fmt.Errorf("%q is not the name of an interface: it has more than %d letters", dev, unix.IFNAMSIZ-1)
	}
	d.Netns = nameOf(ns)
	d.Cookie, err = ns.Cookie()
	return d, err
}

// nameOf is what Destination calls a namespace.
func nameOf(ns netns.NS) string {
	if here, err := netns.Current(); err == nil && here.Inode == ns.Inode {
		return ""
	}
	return cmp.Or(ns.Name, fmt.Sprint(ns.Inode))
}

// namespaces are those that there are.
type namespaces struct {
	byCookie map[uint64]netns.NS
	all      bool // none was closed to this process
}

func findNamespaces() (*namespaces, error) {
	_, err := netns.Machine() // whoever may not see this one may miss others
	found := &namespaces{map[uint64]netns.NS{}, err == nil}
	err = netns.Each(func(ns netns.NS) error {
		cookie, err := ns.Cookie()
		switch {
		case err == nil:
			found.byCookie[cookie] = ns
		case ignoreForbidden(err) == nil:
			found.all = false
			return nil
		}
		return err
	})
	return found, err
}

// name is what Destination calls the namespace of a cookie.
func (n *namespaces) name(cookie uint64) string {
	if ns, ok := n.byCookie[cookie]; ok {
		return nameOf(ns)
	}
	return fmt.Sprintf("cookie %d", cookie)
}

// ended reports whether there is no namespace of a cookie any more.
func (n *namespaces) ended(cookie uint64) bool {
	_, there := n.byCookie[cookie]
	return n.all && !there
}
