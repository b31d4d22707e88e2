// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

const namedNetns = "/run/netns"

// Netns is a network namespace: the inode number that identifies it, and a name for people.
type Netns struct {
	Inode uint64
	Name  string // of ip netns; "" for one without
	path  string
}

func (n Netns) String() string {
	if n.Name != "" {
		return "network namespace " + n.Name
	}
	return "this network namespace"
}

func netnsAt(path, name string) (Netns, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Netns{}, err
	}
	return Netns{Inode: st.Ino, Name: name, path: path}, nil
}

// CurrentNetns is the caller's.
func CurrentNetns() (Netns, error) { return netnsAt("/proc/thread-self/ns/net", "") }

// NamedNetns is one of ip netns.
func NamedNetns(name string) (Netns, error) {
	if name != filepath.Base(name) {
		return Netns{}, fmt.Errorf("%q is not the name of a network namespace", name)
	}
	ns, err := netnsAt(filepath.Join(namedNetns, name), name)
	if err != nil {
		return ns, fmt.Errorf("there is no network namespace %q; ip netns list shows them", name)
	}
	return ns, nil
}

// NetnsNames names the namespaces of ip netns by inode.
func NetnsNames() map[uint64]string {
	names := map[uint64]string{}
	entries, err := os.ReadDir(namedNetns)
	if err != nil {
		return names
	}
	for _, e := range entries {
		if ns, err := netnsAt(filepath.Join(namedNetns, e.Name()), e.Name()); err == nil {
			names[ns.Inode] = e.Name()
		}
	}
	return names
}

// findNetns looks for a namespace by its inode: among the named ones, then among all processes'.
func findNetns(inode uint64) (Netns, bool) {
	for _, pattern := range []string{namedNetns + "/*", "/proc/[0-9]*/ns/net"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			name := ""
			if filepath.Dir(path) == namedNetns {
				name = filepath.Base(path)
			}
			if ns, err := netnsAt(path, name); err == nil && ns.Inode == inode {
				return ns, true
			}
		}
	}
	return Netns{}, false
}

// Do runs f inside the namespace. A thread that cannot come back is given up.
func (n Netns) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		there, err := os.Open(n.path)
		if err != nil {
			done <- err
			return
		}
		defer there.Close()
		if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter %s: %w", n, err)
			return
		}
		err = f()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
