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

// Version returns a hash of the module's source, by which mpcc tells whether a module is of the same version;
// Kbuild writes the same one into the module.
func Version() string {
	text, err := files.ReadFile("src/mpcc_sched.c")
	if err != nil {
		panic(err) // it is embedded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:12]
}
