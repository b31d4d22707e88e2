// SPDX-License-Identifier: Apache-2.0

// Package cgroups finds cgroups (cgroup v2), by the paths that people give and by the ids that the kernel does.
package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
)

// Group is a cgroup.
type Group struct {
	ID   uint64
	Path string // below the root of the hierarchy, such as system.slice/backup.service; "/" for the root itself
	Dir  string // where it is mounted
}

// ErrNone is wrapped where the machine has no cgroup v2, or shows none to this process.
var ErrNone = errors.New("there are no cgroups here (version 2): mount -t cgroup2 none /sys/fs/cgroup")

// Find returns the group of a path: below the root, with or without a slash before it, or as a folder of the file
// system.
func Find(path string) (Group, error) {
	root, err := mount()
	if err != nil {
		return Group{}, err
	}
	dir := filepath.Clean("/" + path)
	if dir != root && !strings.HasPrefix(dir, root+"/") {
		dir = filepath.Join(root, dir)
	}
	g, err := at(root, dir)
	if err != nil {
		return g, fmt.Errorf("there is no cgroup %s below %s; systemd-cgls shows them", path, root)
	}
	return g, nil
}

// All returns all groups by their ids.
func All() (map[uint64]Group, error) {
	root, err := mount()
	if err != nil {
		return nil, err
	}
	all := map[uint64]Group{}
	err = filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // it has ended meanwhile
		}
		if g, err := at(root, dir); err == nil {
			all[g.ID] = g
		}
		return nil
	})
	return all, err
}

func at(root, dir string) (Group, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return Group{}, err
	}
	if !info.IsDir() {
		return Group{}, fs.ErrNotExist
	}
	path, err := filepath.Rel(root, dir)
	if path == "." {
		path = "/"
	}
	return Group{info.Sys().(*syscall.Stat_t).Ino, path, dir}, err
}

// mount returns where the hierarchy is mounted.
func mount() (string, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.FSType == "cgroup2" {
			return m.MountPoint, nil
		}
	}
	return "", ErrNone
}
