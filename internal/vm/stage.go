// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed init.sh
var initScript string

// stage returns a machine with its kernel and its initial file system; layers are further archives that go into
// that. Call it with the cache locked.
func (c cache) stage(ctx context.Context, spec Spec, layers ...string) (m machine, remove func(), err error) {
	kdir, err := c.kernel(ctx, spec.Kernel, false)
	if err != nil {
		return m, nil, err
	}
	var root string
	if spec.Build {
		root, err = c.buildRoot(ctx, spec.Kernel, kdir)
	} else {
		root, err = c.rootfs(ctx, spec.Kernel, false)
	}
	if err != nil {
		return m, nil, err
	}
	dir, remove, err := c.scratch()
	if err != nil {
		return m, nil, err
	}
	defer func() {
		if err != nil {
			remove()
		}
	}()
	m = machine{dir: dir, mark: rand.Text(), spec: spec}
	if err := os.Link(filepath.Join(kdir, "vmlinuz"), filepath.Join(dir, "vmlinuz")); err != nil {
		return m, nil, err
	}
	layers = append([]string{filepath.Join(root, "root.cpio"), filepath.Join(kdir, "modules.cpio")}, layers...)
	return m, remove, m.writeInitrd(layers)
}

// writeInitrd writes the initial file system: the layers, and what is for this machine only.
func (m machine) writeInitrd(layers []string) error {
	initrd, err := os.Create(filepath.Join(m.dir, "initrd"))
	if err != nil {
		return err
	}
	defer initrd.Close()
	for _, layer := range layers {
		f, err := os.Open(layer)
		if err != nil {
			return err
		}
		_, err = io.Copy(initrd, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	w := bufio.NewWriterSize(initrd, 1<<20)
	archive := newCpioWriter(w)
	init, top := initScript, ""
	if m.spec.Disk != "" {
		init, top = diskInit, "files" // from where they go to the disk
	}
	for guest, host := range m.spec.Files {
		if err := archive.host(path.Join(top, strings.TrimPrefix(guest, "/")), host); err != nil {
			return fmt.Errorf("%s for the VM: %w", guest, err)
		}
	}
	script := runScript(m.spec)
	return errors.Join(
		archive.file("init", 0o755, int64(len(init)), strings.NewReader(init)),
		archive.file("run-me", 0o644, int64(len(script)), strings.NewReader(script)),
		archive.close(), w.Flush(), initrd.Close())
}

// runScript returns the shell script /run-me, which becomes the command.
func runScript(spec Spec) string {
	var b strings.Builder
	env := map[string]string{"MPCC_KERNEL": spec.Kernel.Label}
	for name, value := range spec.Env {
		env[name] = value
	}
	for name, value := range env {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(value))
	}
	b.WriteString("unset MPCC_MARK\nexec")
	if spec.Interactive {
		b.WriteString(" setsid --ctty --wait")
	}
	for _, arg := range spec.Cmd {
		b.WriteString(" " + quote(arg))
	}
	if spec.Interactive {
		serial := "/dev/" + spec.Kernel.processor().serial
		b.WriteString(" <" + serial + " >" + serial + " 2>&1")
	}
	return b.String() + "\n"
}

// quote returns any text as one word of the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
