// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// newNamed makes a namespace with a name of ip netns.
func newNamed(t *testing.T, name string) (remove func()) {
	t.Helper()
	path := filepath.Join(namedDir, name)
	if err := os.MkdirAll(namedDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	err := OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount(current, path, "none", unix.MS_BIND, "")
	})
	if err != nil {
		t.Fatal(err)
	}
	remove = func() {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		os.Remove(path)
	}
	t.Cleanup(remove)
	return remove
}

var name = fmt.Sprintf("netns-test-%d", os.Getpid())

func named(t *testing.T, name string) NS {
	t.Helper()
	ns, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func here(t *testing.T) NS {
	t.Helper()
	ns, err := Current()
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func TestDo(t *testing.T) {
	newNamed(t, name)
	ns, home := named(t, name), here(t)
	fault := errors.New("fault")
	var inside NS
	var cookie, cookieHere uint64
	err := ns.Do(func() (err error) {
		inside = here(t)
		if cookie, err = Cookie(); err != nil {
			return err
		}
		return fault
	})
	if err != fault {
		t.Errorf("error %v, want the function's own", err)
	}
	if inside.Inode != ns.Inode || here(t).Inode != home.Inode {
		t.Errorf("inside in %d, afterwards in %d; want %d, %d", inside.Inode, here(t).Inode, ns.Inode, home.Inode)
	}
	if cookieHere, err = Cookie(); err != nil || cookie == cookieHere || cookie == 0 {
		t.Errorf("cookie %d there, %d here (%v)", cookie, cookieHere, err)
	}
}

// What /proc/self shows, as Prometheus's collector of the process does, is the first thread's namespace. It
// stays the process's own while so many functions are in another one that every idle thread has a part in it,
// and after a function on a thread of its own has left its namespace.
func TestProcSelfStaysHome(t *testing.T) {
	newNamed(t, name)
	ns, home := named(t, name), here(t)
	self := func(when string) {
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/net", &st); err != nil || st.Ino != home.Inode {
			t.Errorf("%s: /proc/self is in %d (%v), want %d", when, st.Ino, err, home.Inode)
		}
	}
	const functions = 100
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan error)
	stay := func() error { inside <- struct{}{}; <-leave; return nil }
	for i := range functions {
		go func() {
			if i%2 == 0 {
				left <- ns.Do(stay)
				return
			}
			left <- OnOwnThread(func() error {
				if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
					return err
				}
				return stay()
			})
		}()
	}
	for range functions {
		select {
		case <-inside:
		case err := <-left:
			t.Fatalf("a function has ended before the others were inside: %v", err)
		}
	}
	self("while the functions are in other namespaces")
	close(leave)
	for range functions {
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
	self("afterwards")
}

// A function that ends its goroutine, as t.Fatal does, must neither make Do hang nor leave a thread in the
// namespace on which other goroutines then run.
func TestDoThatDoesNotReturn(t *testing.T) {
	newNamed(t, name)
	ns, home := named(t, name), here(t)
	for range 20 {
		if err := ns.Do(func() error { runtime.Goexit(); return nil }); err == nil {
			t.Fatal("no error")
		}
	}
	inodes := make(chan uint64)
	for range 50 {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ns, _ := Current()
			inodes <- ns.Inode
		}()
	}
	for range 50 {
		if got := <-inodes; got != home.Inode {
			t.Fatalf("a thread stayed in namespace %d", got)
		}
	}
}

func TestEachVisitsOnce(t *testing.T) {
	newNamed(t, name)
	ns := named(t, name)
	visits := map[uint64]int{}
	var first NS
	err := Each(func(n NS) error {
		if len(visits) == 0 {
			first = n
		}
		visits[n.Inode]++
		if n.Inode == ns.Inode && n.Name != name {
			t.Errorf("the namespace is called %q", n.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if visits[ns.Inode] != 1 || visits[here(t).Inode] != 1 {
		t.Errorf("visited %v", visits)
	}
	if machine, err := at("/proc/1/ns/net", ""); err == nil && first.Inode != machine.Inode {
		t.Errorf("visited %v first, not the machine's own", first)
	}
	for inode, n := range visits {
		if n != 1 {
			t.Errorf("namespace %d was visited %d times", inode, n)
		}
	}
}

func TestOneThatHasEnded(t *testing.T) {
	remove := newNamed(t, name)
	ns := named(t, name)
	hold, err := ns.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	remove()
	never := func() error { t.Error("ran"); return nil }
	if err := ns.Do(never); !errors.Is(err, ErrEnded) {
		t.Errorf("without a name: %v, want ErrEnded", err)
	}
	newNamed(t, name) // another one: the first lives by its handle
	if err := ns.Do(never); !errors.Is(err, ErrEnded) {
		t.Errorf("with another in its place: %v, want ErrEnded", err)
	}
	if err := hold.Do(func() error { return nil }); err != nil {
		t.Errorf("by the handle: %v", err)
	}
}

func TestNamed(t *testing.T) {
	for _, wrong := range []string{"no-such-namespace", "../../etc", "a/b"} {
		if _, err := Named(wrong); err == nil {
			t.Errorf("Named(%q) found one", wrong)
		}
	}
	newNamed(t, name)
	if names := Names(); names[named(t, name).Inode] != name {
		t.Errorf("Names() = %v", names)
	}
}

// What a sandbox forbids, as package net and package netns say it, is no failure; what goes wrong is one.
func TestForbidden(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false,
		&net.OpError{Op: "route", Net: "ip+net", Err: os.NewSyscallError("netlinkrib", unix.EAFNOSUPPORT)}: true,
		fmt.Errorf("enter network namespace phone: %w", unix.EPERM):                                        true,
		&os.PathError{Op: "open", Path: "/run/netns/phone", Err: unix.EACCES}:                              true,
		os.NewSyscallError("socket", unix.EMFILE):                                                          false,
		errors.New("operation not permitted"):                                                              false,
	} {
		if got := Forbidden(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
