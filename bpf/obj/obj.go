// SPDX-License-Identifier: Apache-2.0

// Package obj holds the objects that the programs in bpf/cc and bpf/sched compile to, and the Go types of the
// maps. Both change with the C sources, without notice to other modules: these get at the programs through package
// loader, and at the maps through package telemetry.
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
