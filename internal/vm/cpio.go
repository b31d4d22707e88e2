// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// File type bits of a cpio mode, as in stat(2).
const (
	cpioDir     = 0o040000
	cpioRegular = 0o100000
	cpioSymlink = 0o120000
)

// cpioWriter writes a "newc" archive, which the kernel unpacks as its first root
// file system (Documentation/driver-api/early-userspace/buffer-format.rst).
// Everything in it belongs to root. Archives may follow one another in one file.
type cpioWriter struct {
	w     io.Writer
	inode uint32
	dirs  map[string]bool
}

func newCpioWriter(w io.Writer) *cpioWriter {
	return &cpioWriter{w: w, dirs: map[string]bool{"": true, ".": true}}
}

// add writes one entry; name is relative to the root of the guest.
func (c *cpioWriter) add(name string, mode uint32, size int64, body io.Reader) error {
	if size > 0xffffffff {
		return fmt.Errorf("%s: %d bytes are too many for an initramfs", name, size)
	}
	c.inode++
	links, mtime := 1, 0
	_, err := fmt.Fprintf(c.w, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s%s",
		c.inode, mode, 0, 0, links, mtime, size, 0, 0, 0, 0, len(name)+1, 0,
		name+"\x00", padding(110+int64(len(name))+1))
	if err != nil {
		return err
	}
	if n, err := io.Copy(c.w, body); err != nil {
		return err
	} else if n != size {
		return fmt.Errorf("%s: %d bytes read where %d were announced", name, n, size)
	}
	_, err = io.WriteString(c.w, padding(size))
	return err
}

// padding returns what fills n bytes up to a multiple of four.
func padding(n int64) string { return "\x00\x00\x00"[:(4-n%4)%4] }

// mkdir writes a folder, and before it the parents that are not there: the kernel
// makes none.
func (c *cpioWriter) mkdir(name string) error {
	if c.dirs[name] {
		return nil
	}
	if err := c.mkdir(path.Dir(name)); err != nil {
		return err
	}
	c.dirs[name] = true
	return c.add(name, cpioDir|0o755, 0, strings.NewReader(""))
}

// file writes a regular file with the given permissions.
func (c *cpioWriter) file(name string, perm fs.FileMode, size int64, body io.Reader) error {
	if err := c.mkdir(path.Dir(name)); err != nil {
		return err
	}
	return c.add(name, cpioRegular|uint32(perm.Perm()), size, body)
}

func (c *cpioWriter) symlink(name, target string) error {
	if err := c.mkdir(path.Dir(name)); err != nil {
		return err
	}
	return c.add(name, cpioSymlink|0o777, int64(len(target)), strings.NewReader(target))
}

// host writes a file or a whole folder of the host, as name in the guest.
func (c *cpioWriter) host(name, source string) error {
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	return filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		guest := path.Join(name, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			return c.mkdir(guest)
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			return c.symlink(guest, target)
		case !d.Type().IsRegular():
			return fmt.Errorf("%s: cannot put a %s into the VM", file, d.Type())
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return c.file(guest, info.Mode(), info.Size(), f)
	})
}

// tar writes the entries of a tar archive that keep says true for. Hard links
// become symbolic ones; device nodes are left out, as the guest has devtmpfs.
func (c *cpioWriter) tar(r io.Reader, keep func(name string) bool) error {
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if !keep(name) {
			continue
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = c.mkdir(name)
		case tar.TypeReg:
			err = c.file(name, fs.FileMode(h.Mode), h.Size, archive)
		case tar.TypeSymlink:
			err = c.symlink(name, h.Linkname)
		case tar.TypeLink:
			err = c.symlink(name, path.Clean("/"+h.Linkname))
		}
		if err != nil {
			return err
		}
	}
}

// close ends the archive.
func (c *cpioWriter) close() error {
	return c.add("TRAILER!!!", 0, 0, bytes.NewReader(nil))
}
