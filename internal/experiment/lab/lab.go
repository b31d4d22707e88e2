// SPDX-License-Identifier: Apache-2.0

// Package lab builds small networks out of network namespaces: hosts with
// several addresses, routers, and links with a rate, a queue, a delay and
// loss. It is the only package that runs ip and tc.
//
//	lab, err := lab.New()
//	defer lab.Close()
//	server, err := lab.Host("server")
//	phone, err := lab.Host("phone")
//	slow := lab.Shape{Rate: 20e6, Delay: 15 * time.Millisecond, Queue: 50}
//	wlan, err := lab.Link(server, phone, lab.LinkOpts{Name: "wlan0", AtoB: slow, BtoA: slow})
//	err = lab.Route()
//	err = phone.Do(func() error { … sockets of phone … })
//
// A Lab touches nothing outside its own namespaces: no device, address, route
// or sysctl of the machine's own network. Building (Host, Router, Link, Route)
// is for one goroutine; Do, Command and Set may be called from several.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/lockfile"
)

// Lab is one network. Labs of several processes live side by side without
// meeting: each has its own id, and so its own namespace names.
type Lab struct {
	id    string
	entry *lockfile.Lock // the registry entry, locked while the owner lives

	hosts []*Host
	links []*Link

	together bool // inside Together, which makes the queues at its end

	ctx    context.Context // ends with the lab, and with it the commands
	cancel context.CancelFunc

	netem func() error // says why this kernel has no netem; nil if it has
}

// New returns an empty lab. It first removes what labs of dead processes have
// left behind. It takes root.
func New() (*Lab, error) {
	_, err := Sweep()
	if err != nil {
		return nil, takesRoot(err)
	}
	id, entry, err := register()
	if err != nil {
		return nil, takesRoot(fmt.Errorf("lab: %w", err))
	}
	l := &Lab{id: id, entry: entry}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.netem = sync.OnceValue(func() error { return Has("netem") })
	return l, nil
}

// takesRoot is err, in plain words where a right is missing.
func takesRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("lab: making network namespaces takes root: %w", fs.ErrPermission)
	}
	return err
}

// Close kills the commands still running in the lab, removes its namespaces
// and with them every device, route and queue, and then its registry entry.
// It may be called at any point of building, and again. When a namespace
// cannot be removed the entry stays, so that a later Sweep tries again.
func (l *Lab) Close() error {
	if l.entry == nil {
		return nil
	}
	l.cancel()
	for _, h := range l.hosts {
		h.nl.Close()
		h.ns.Close()
	}
	_, err := removeNamespaces(l.id)
	if err == nil {
		err = l.entry.Remove()
	} else {
		err = errors.Join(err, l.entry.Unlock())
	}
	l.entry = nil
	if err != nil {
		return fmt.Errorf("lab: close lab %s: %w", l.id, err)
	}
	return nil
}

// Together calls build, during which links get no queues, and then makes all of
// them with one run of tc for each host. That way hundreds of links come up in
// seconds.
func (l *Lab) Together(build func() error) error {
	l.together = true
	err := build()
	l.together = false
	if err != nil {
		return err
	}
	for _, h := range l.hosts {
		if err := h.batch("tc", h.queues); err != nil {
			return fmt.Errorf("lab: %s: %w", h.name, err)
		}
		h.queues = nil
	}
	return nil
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Host adds a host: a namespace that sends each address's traffic through that
// address's own interface and forwards nothing. The name is 1 to 32 of a-z,
// 0-9 and "-".
//
// Its congestion control is reno, and its TCP remembers nothing of former
// connections (tcp_no_metrics_save), whatever the machine's own settings are.
func (l *Lab) Host(name string) (*Host, error) { return l.add(name, false, false) }

// Relay adds a host that also forwards packets of others.
func (l *Lab) Relay(name string) (*Host, error) { return l.add(name, true, false) }

// Router adds a router: it only forwards.
func (l *Lab) Router(name string) (*Host, error) { return l.add(name, true, true) }

func (l *Lab) add(name string, forwards, router bool) (*Host, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("lab: host name %q: use 1 to 32 of a-z, 0-9 and -", name)
	}
	for _, h := range l.hosts {
		if h.name == name {
			return nil, fmt.Errorf("lab: a host named %q is already there", name)
		}
	}
	h, err := newHost(l, name, forwards, router)
	if err != nil {
		return nil, fmt.Errorf("lab: host %s: %w", name, err)
	}
	l.hosts = append(l.hosts, h)
	return h, nil
}

// namespaceDir is where ip keeps the named namespaces.
const namespaceDir = "/run/netns"

func namespacePrefix(id string) string { return "mpcc-" + id + "-" }

// filesDir has a folder for each lab with files: see Host.Folder.
const filesDir = "/run/mpcc/files"

// Folder returns a folder for the files of programs that run in the host. It is
// removed with the lab.
func (h *Host) Folder() (string, error) {
	path := filepath.Join(filesDir, h.lab.id, h.name)
	return path, os.MkdirAll(path, 0o755)
}

// removeNamespaces removes the namespaces and files of lab id, and returns the
// namespaces' names. It goes by what is there, not by what a Lab remembers: what
// is half made goes too.
func removeNamespaces(id string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(namespaceDir, namespacePrefix(id)+"*"))
	if err != nil {
		return nil, err
	}
	var removed []string
	var failed error
	for _, p := range paths {
		name := filepath.Base(p)
		if err := removeNamespace(p); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		removed = append(removed, name)
	}
	return removed, errors.Join(failed, os.RemoveAll(filepath.Join(filesDir, id)))
}

// removeNamespace removes a namespace's name; without it the namespace ends.
func removeNamespace(path string) error {
	// EINVAL: a process was killed when it had made the name, and not mounted the
	// namespace on it.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(path)
}
