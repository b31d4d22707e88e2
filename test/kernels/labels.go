// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/vm"
)

// old is too old for mpcc. What mpcc says there is tested.
var old = vm.Kernel{Label: "6.1", Suite: "bookworm", NoModule: true}

// arm64 is emulated, also where there is KVM: only TestARM64… run there. Building the module would take longer than they do.
var arm64 = vm.Kernel{Label: "arm64", Suite: "trixie", Arch: "arm64", NoModule: true}

// soaked are kernels that few people run, for faults that others would not show. Tests of the schedulers run there by
// make soak, not by make test.
var soaked = []vm.Kernel{
	{Label: "debug", Suite: "trixie", Debug: true},
	{Label: "rt", Suite: "trixie", Flavour: "rt"}, // PREEMPT_RT
}

// Labels returns the labels of the kernels with which mpcc is tested.
func Labels() []string { return append(slices.Clone(vm.Labels()), old.Label, arm64.Label) }

// Find returns the kernel of a label; the error names all labels.
func Find(label string) (vm.Kernel, error) {
	labels := vm.Labels()
	for _, k := range append([]vm.Kernel{old, arm64}, soaked...) {
		if k.Label == label {
			return k, nil
		}
		labels = append(labels, k.Label)
	}
	k, err := vm.Find(label)
	if err != nil {
		err = fmt.Errorf("no kernel called %q: choose from %s", label, strings.Join(labels, ", "))
	}
	return k, err
}
