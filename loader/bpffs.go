// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

func checkFS() error {
	var st unix.Statfs_t
	if err := unix.Statfs(bpffs, &st); err != nil || st.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("%s is not a BPF file system; mount it (mount -t bpf bpf %s) or, inside ip netns exec, run mpcc outside with --netns", bpffs, bpffs)
	}
	return nil
}

// checkWritable returns an error where no pin can be made or removed. Where there is no BPF file system, checkFS says so.
func checkWritable() error {
	var st unix.Statfs_t
	if err := unix.Statfs(bpffs, &st); err == nil && st.Type == unix.BPF_FS_MAGIC && st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%s is mounted read-only; mount -o remount,rw %s mends that", bpffs, bpffs)
	}
	return nil
}

// begin starts a change. It checks that the BPF file system is there, whose pins tell what is loaded, and takes
// the lock that keeps other changes out.
func begin(ctx context.Context) (unlock func(), err error) {
	if err := checkFS(); err != nil {
		return nil, err
	}
	if err := checkWritable(); err != nil {
		return nil, err
	}
	return lock(ctx)
}

// beginLoad is begin, and mounts the file system where there is none.
func beginLoad(ctx context.Context) (unlock func(), m *mounted, err error) {
	missing := checkFS()
	if missing != nil && !staysMounted() {
		return nil, nil, missing
	}
	if err := checkWritable(); err != nil {
		return nil, nil, err
	}
	if unlock, err = lock(ctx); err != nil || checkFS() == nil {
		return unlock, nil, err
	}
	// For root alone, as bpftool mounts it.
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700"); err != nil {
		unlock()
		return nil, nil, fmt.Errorf("%w (mounting it failed: %w)", missing, err)
	}
	return unlock, &mounted{entries()}, nil
}

// staysMounted reports whether a mount of this process outlives it. In a mount namespace of its own, such as
// ip netns exec gives, the mount would end with the process, and with it the pins. It stays where the eldest
// ancestor lives too: mostly process 1, which some containers do not let us look at.
func staysMounted() bool {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return false
	}
	eldest := ""
	for pid := os.Getppid(); pid > 0; {
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil {
			break
		}
		eldest = ns
		p, err := procfs.NewProc(pid)
		if err != nil {
			break
		}
		stat, err := p.Stat()
		if err != nil {
			break
		}
		pid = stat.PPID
	}
	return own == eldest
}

// mounted is a BPF file system that Load has mounted; fresh are the entries that the kernel itself made there.
// It stays for good, also when the last algorithm is unloaded: others may have come to rely on it, as on one
// that the machine mounts at boot.
type mounted struct{ fresh []string }

// undo unmounts it after a load that failed, unless something has been pinned in it, and reports whether it
// did.
func (m *mounted) undo() bool {
	return slices.Equal(entries(), m.fresh) && unix.Unmount(bpffs, 0) == nil
}

func entries() (names []string) {
	found, _ := os.ReadDir(bpffs)
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}
