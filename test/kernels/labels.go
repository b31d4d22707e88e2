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

// Labels returns the labels of the kernels with which mpcc is tested.
func Labels() []string { return append(slices.Clone(vm.Labels()), old.Label) }

// Find returns the kernel of a label; the error names all labels.
func Find(label string) (vm.Kernel, error) {
	if label == old.Label {
		return old, nil
	}
	k, err := vm.Find(label)
	if err != nil {
		err = fmt.Errorf("no kernel called %q: choose from %s", label, strings.Join(Labels(), ", "))
	}
	return k, err
}
