// SPDX-License-Identifier: Apache-2.0

// Package obj holds what the programs in bpf/cc and bpf/sched compile to, and Go's types of the maps. Both
// follow the C sources and change with them: nothing in here is a promise to other modules, whose way to
// the programs is package loader, and to the maps package telemetry.
package obj

import (
	"bytes"
	"embed"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/mpcc/mpcc/bpf/catalog"
)

//go:embed cc-*.o sched-*.o
var files embed.FS

// Variant tells apart the objects of one algorithm.
type Variant string

// The variants.
const (
	// Stock objects are for stock kernels; a packet scheduler's is for the type that bpf/kmod registers.
	Stock Variant = ""
	// Native objects are packet schedulers for kernels that have a type for them themselves.
	Native Variant = "-native"
)

// Load parses the object of an algorithm. Only packet schedulers have a Native one.
func Load(k catalog.Kind, name string, v Variant) (*ebpf.CollectionSpec, error) {
	text, err := files.ReadFile(fmt.Sprintf("%s-%s%s.o", k, name, v))
	if err != nil {
		return nil, err
	}
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(text))
}
