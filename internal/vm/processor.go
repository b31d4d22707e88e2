// SPDX-License-Identifier: Apache-2.0

package vm

import "cmp"

// processor is what differs between the machines that kernels run on.
type processor struct {
	triplet string   // part of the names of folders and compilers
	qemu    string   // the program that has such machines
	machine []string // its arguments
	cpu     string   // what it emulates
	serial  string   // the console
}

// hostArch is the processor of the machines that VMs run on.
const hostArch = "amd64"

// processors are by their names in Debian.
var processors = map[string]processor{
	hostArch: {
		triplet: "x86_64-linux-gnu", qemu: "qemu-system-x86_64", serial: "ttyS0",
		// With cx16 QEMU 7.2 damages the flags after cmpxchg16b, and the guest dies
		// at random in its memory allocator. Without erms and fsrm the kernel copies
		// words: QEMU emulates rep movsb byte by byte.
		cpu: "max,-cx16,-erms,-fsrm",
	},
	"arm64": {
		triplet: "aarch64-linux-gnu", qemu: "qemu-system-aarch64", serial: "ttyAMA0",
		machine: []string{"-machine", "virt"},
		cpu:     "neoverse-n1", // of servers; what newer ones check pointers with takes QEMU long
	},
}

// GOARCH returns the processor in Go's words, which are Debian's for all that there are here.
func (k Kernel) GOARCH() string { return cmp.Or(k.Arch, hostArch) }

func (k Kernel) processor() processor { return processors[k.GOARCH()] }
