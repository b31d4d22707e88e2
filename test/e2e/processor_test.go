// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import "testing"

// The kernel of another processor takes every congestion control, and compiles it for itself: connections over two
// paths under three that are unlike in their arithmetic, LIA's products of 64 bits, MPCUBIC's cube roots and the table
// of DTS.
func TestARM64Transfer(t *testing.T) {
	load(t, listed(t, "cc/")...)
	sideBySide(t, []string{"lia", "mpcubic", "dts"}, carries)
}
