// SPDX-License-Identifier: Apache-2.0

package verified

import (
	"fmt"
	"path/filepath"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// HouseholdsFile is the scenario of Households, in a clone.
const HouseholdsFile = "internal/experiment/own/households.yaml"

// The figures of a record of Households, in Mbit/s: what the user has, and what each of the others on the user's line has.
const (
	HouseholdOwn    = "own"
	HouseholdOthers = "others"
)

// HouseholdControls are the columns of Households: a single TCP connection under the kernel's CUBIC, by the user's first
// way; the kernel's controls on each subflow; and mpcc's.
func HouseholdControls() []string {
	names := []string{"tcp", "cubic", "reno", "bbr"}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			names = append(names, e.Name)
		}
	}
	return names
}

// Homes are the rows of Households.
func Homes(root string) ([]string, error) {
	file, err := scenario.Load(filepath.Join(root, HouseholdsFile))
	if err != nil {
		return nil, err
	}
	for _, axis := range file.Axes(false) {
		if axis.Name == "home" {
			return axis.Values, nil
		}
	}
	return nil, fmt.Errorf("%s sweeps over no home", HouseholdsFile)
}

func householdCells(root string) (cells []Cell, err error) {
	homes, err := Homes(root)
	if err != nil {
		return nil, err
	}
	file, err := Files(root, HouseholdsFile)
	if err != nil {
		return nil, err
	}
	for _, home := range homes {
		for _, cc := range HouseholdControls() {
			digest := file
			if _, err := catalog.Find("cc/" + cc); err == nil {
				object, err := objectDigest("cc/" + cc)
				if err != nil {
					return nil, err
				}
				digest += object
			}
			cells = append(cells, Cell{Row: home, Column: cc, Digest: digest})
		}
	}
	return cells, nil
}
