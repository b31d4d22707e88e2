// SPDX-License-Identifier: Apache-2.0

// Package kmod holds the sources of the kernel module mpcc_sched, so that mpcc can build it anywhere.
package kmod

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
)

//go:embed src
var files embed.FS

// Source returns the folder with the module's sources, as DKMS takes it.
func Source() fs.FS {
	src, err := fs.Sub(files, "src")
	if err != nil {
		panic(err) // the name is a constant
	}
	return src
}

// Version returns a hash of the module's C files, by which mpcc tells whether a module is of the same version;
// Kbuild writes the same hash into the module.
func Version() string {
	sum := sha256.New()
	for _, name := range []string{"mpcc_sched.c", "kernel_private.h"} {
		text, err := files.ReadFile("src/" + name)
		if err != nil {
			panic(err) // the file is embedded
		}
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}
