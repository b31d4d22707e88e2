// SPDX-License-Identifier: Apache-2.0

// Package netns finds network namespaces and runs code inside them.
package netns

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
	namedDir = "/run/netns" // of ip netns
	current  = "/proc/thread-self/ns/net"
	machine  = "/proc/1/ns/net"
)

// NS is a network namespace as it was found.
type NS struct {
	Inode uint64 // identifies it while it lives; a later one may have the number again
	Name  string // of ip netns; "" for one without
	path  string // where it was found
}

// ErrEnded is wrapped where a namespace has ended, or another one is at its path.
var ErrEnded = errors.New("it has ended")

// Forbidden reports whether err means that this process may not look into a namespace: it lacks the rights, or a sandbox
// such as that of mpcc's systemd units denies it the kind of socket.
func Forbidden(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT)
}

func (n NS) String() string {
	if n.Name != "" {
		return "network namespace " + n.Name
	}
	if n.isCurrent() {
		return "this network namespace"
	}
	return fmt.Sprintf("network namespace %d", n.Inode)
}

func (n NS) isCurrent() bool {
	here, err := Current()
	return err == nil && here.Inode == n.Inode
}

func at(path, name string) (NS, error) {
	var where unix.Statfs_t
	if err := unix.Statfs(path, &where); err != nil {
		return NS{}, err
	}
	if where.Type != unix.NSFS_MAGIC {
		return NS{}, fmt.Errorf("%s is not a namespace", path)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return NS{}, err
	}
	return NS{Inode: st.Ino, Name: name, path: path}, nil
}

// Current returns the calling thread's namespace.
func Current() (NS, error) { return at(current, "") }

// Machine returns the machine's own namespace.
func Machine() (NS, error) { return at(machine, "") }

// Named returns the namespace that ip netns knows by a name.
func Named(name string) (NS, error) {
	if name != filepath.Base(name) {
		return NS{}, fmt.Errorf("%q is not the name of a network namespace", name)
	}
	ns, err := at(filepath.Join(namedDir, name), name)
	if err != nil {
		return ns, fmt.Errorf("there is no network namespace %q; ip netns list shows them", name)
	}
	return ns, nil
}

// Names returns the names of ip netns by inode.
func Names() map[uint64]string {
	names := map[uint64]string{}
	entries, err := os.ReadDir(namedDir)
	if err != nil {
		return names
	}
	for _, e := range entries {
		if ns, err := at(filepath.Join(namedDir, e.Name()), e.Name()); err == nil {
			names[ns.Inode] = e.Name()
		}
	}
	return names
}

// Each visits every namespace that has a name or a process, the machine's own first, and ends with the
// first error. Those that end meanwhile, and those that this process may not look at, are passed by.
func Each(visit func(NS) error) error {
	names := Names()
	paths := []string{machine, current}
	for _, name := range names {
		paths = append(paths, filepath.Join(namedDir, name))
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
		ns, err := at(path, "")
		if err != nil || seen[ns.Inode] {
			continue
		}
		ns.Name = names[ns.Inode]
		if err = visit(ns); errors.Is(err, ErrEnded) {
			continue // there may be another path to the namespace
		}
		if err != nil {
			return err
		}
		seen[ns.Inode] = true
	}
	return nil
}

// Do runs f inside the namespace and returns its error. Sockets that f opens belong to the namespace for
// good; goroutines that f starts are outside.
func (n NS) Do(f func() error) error {
	if n.isCurrent() {
		return f() // entering it would take CAP_SYS_ADMIN
	}
	h, err := n.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Do(f)
}

// Open returns a hold on the namespace, which keeps it while it is open. The error is ErrEnded if it is not
// there any more.
func (n NS) Open() (*Handle, error) {
	f, err := os.Open(n.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", n, ErrEnded)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if st.Ino != n.Inode {
		return nil, errors.Join(fmt.Errorf("%s: %w", n, ErrEnded), f.Close())
	}
	return &Handle{f, n}, nil
}

// Handle is a hold on a namespace.
type Handle struct {
	file *os.File
	ns   NS
}

// Fd is the namespace's file descriptor, which lives as long as the handle.
func (h *Handle) Fd() int { return int(h.file.Fd()) }

// Close lets go of the namespace.
func (h *Handle) Close() error { return h.file.Close() }

// Do is NS.Do.
func (h *Handle) Do(f func() error) error {
	done := make(chan error, 1)
	locked(func() {
		// This error is returned if f ends the goroutine, as t.Fatal does.
		err := fmt.Errorf("in %s: the function did not return", h.ns)
		defer func() { done <- err }()

		home, openErr := os.Open(current)
		if openErr != nil {
			err = openErr
			return
		}
		defer home.Close()
		if setErr := unix.Setns(h.Fd(), unix.CLONE_NEWNET); setErr != nil {
			err = fmt.Errorf("enter %s: %w", h.ns, setErr)
			if setErr == unix.EPERM {
				err = fmt.Errorf("%w; it takes root, or the capability CAP_SYS_ADMIN", err)
			}
			return
		}
		err = f()
		// Where Setns fails, the thread stays in the other namespace and must run no other goroutine: without
		// UnlockOSThread the Go runtime ends the thread together with this goroutine.
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	})
	return <-done
}

// Cookie returns what the function of that name returns inside the namespace.
func (n NS) Cookie() (cookie uint64, err error) {
	err = n.Do(func() (err error) {
		cookie, err = Cookie()
		return err
	})
	return cookie, err
}

// OnOwnThread runs f on a thread that ends with f, so that f may leave the thread's namespace.
func OnOwnThread(f func() error) error {
	done := make(chan error, 1)
	locked(func() { done <- f() })
	return <-done
}

// locked runs f on a goroutine locked to its thread, which is not the process's first one: the first thread's
// namespace is what /proc/self shows, and must remain the process's.
func locked(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// While the first thread is locked here, f's goroutine gets another one.
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		locked(func() {
			defer close(done)
			f()
		})
		<-done
	}()
}

// Cookie returns the number of the calling thread's namespace that no other one has had since the machine
// started; the inode's may come again. It takes Linux 5.14.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("read the namespace's cookie: %w", err)
	}
	return cookie, nil
}
