// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	namedNetns   = "/run/netns"
	currentNetns = "/proc/thread-self/ns/net"
)

// Netns is a network namespace: the inode number that identifies it, and a name for people.
type Netns struct {
	Inode uint64 `json:"inode"`
	Name  string `json:"netns,omitempty"` // of ip netns; "" for one without
	path  string
}

func (n Netns) String() string {
	if n.Name != "" {
		return "network namespace " + n.Name
	}
	if n.isCurrent() {
		return "this network namespace"
	}
	return fmt.Sprintf("network namespace %d", n.Inode)
}

func (n Netns) isCurrent() bool {
	current, err := CurrentNetns()
	return err == nil && current.Inode == n.Inode
}

// errGone is wrapped where a namespace ended, or was replaced at its path by another.
var errGone = errors.New("it has ended")

func netnsAt(path, name string) (Netns, error) {
	var where unix.Statfs_t
	if err := unix.Statfs(path, &where); err != nil {
		return Netns{}, err
	}
	if where.Type != unix.NSFS_MAGIC {
		return Netns{}, fmt.Errorf("%s is not a namespace", path)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Netns{}, err
	}
	return Netns{Inode: st.Ino, Name: name, path: path}, nil
}

// CurrentNetns is the caller's.
func CurrentNetns() (Netns, error) { return netnsAt(currentNetns, "") }

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

// eachNetns visits every network namespace that has a name or a process, the machine's own first.
func eachNetns(visit func(Netns) error) error {
	names := NetnsNames()
	paths := []string{"/proc/1/ns/net", currentNetns}
	for _, name := range names {
		paths = append(paths, filepath.Join(namedNetns, name))
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err == nil {
			paths = append(paths, filepath.Join("/proc", p.Name(), "ns/net"))
		}
	}
	seen := map[uint64]bool{}
	for _, path := range paths {
		ns, err := netnsAt(path, "")
		if err != nil || seen[ns.Inode] {
			continue // it has ended, is not ours to look into, or was visited
		}
		ns.Name = names[ns.Inode]
		if err = visit(ns); errors.Is(err, errGone) {
			continue // by this path; there may be another
		}
		if err != nil {
			return err
		}
		seen[ns.Inode] = true
	}
	return nil
}

// Do runs f inside the namespace. A thread that cannot come back is given up.
func (n Netns) Do(f func() error) error {
	if n.isCurrent() {
		return f() // entering it would take CAP_SYS_ADMIN
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open(currentNetns)
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		there, err := n.open()
		if err != nil {
			done <- fmt.Errorf("enter %s: %w", n, err)
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

// open makes sure that it is still this namespace that is there.
func (n Netns) open() (*os.File, error) {
	f, err := os.Open(n.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if st.Ino != n.Inode {
		return nil, errors.Join(errGone, f.Close())
	}
	return f, nil
}
