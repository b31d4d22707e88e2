// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What make has started holds the FIFO open, and the output that makes waits for the end of.
func TestBrokenOffNothingGoesOn(t *testing.T) {
	root := t.TempDir()
	fifo := filepath.Join(root, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	rule := "begin:\n\t@exec 3>fifo; echo begun >&3; sleep 1000; true\n"
	if err := os.WriteFile(filepath.Join(root, "Makefile"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	// To open a FIFO for reading and writing waits for nobody.
	both, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := (&bench{root: root}).makes(ctx, "begin")
		ended <- err
	}()
	if _, err := bufio.NewReader(both).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	both.Close()
	stop()
	if err := <-ended; err == nil {
		t.Error("no error says that it was broken off")
	}
	if rest, err := io.ReadAll(f); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}
