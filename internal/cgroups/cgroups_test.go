// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A group is found by its path and by its folder, and among all by its id, until it is removed.
func TestFind(t *testing.T) {
	root, err := Find("/")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("cgroups-test-%d", os.Getpid())
	outer, inner := filepath.Join(root.Dir, name), filepath.Join(root.Dir, name, "inner.service")
	for _, dir := range []string{outer, inner} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
	}
	byFolder, err := Find(inner)
	if err != nil || byFolder.Path != name+"/inner.service" || byFolder.Dir != inner {
		t.Errorf("by its folder: %+v, %v", byFolder, err)
	}
	for _, path := range []string{name + "/inner.service", "/" + name + "/inner.service/", inner + "/../inner.service"} {
		if g, err := Find(path); err != nil || g != byFolder {
			t.Errorf("Find(%q) = %+v, %v; want %+v", path, g, err, byFolder)
		}
	}
	for _, path := range []string{"no-such-group", name + "/cgroup.procs", "../../etc"} {
		if g, err := Find(path); err == nil {
			t.Errorf("Find(%q) = %+v", path, g)
		}
	}
	all, err := All()
	if err != nil || all[byFolder.ID] != byFolder || all[root.ID] != root {
		t.Errorf("All() has %+v and %+v, %v", all[byFolder.ID], all[root.ID], err)
	}
	if err := os.Remove(inner); err != nil {
		t.Fatal(err)
	}
	if all, err := All(); err != nil || all[byFolder.ID] != (Group{}) {
		t.Errorf("when it is gone: %+v, %v", all[byFolder.ID], err)
	}
}
