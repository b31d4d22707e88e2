// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/loaded"
)

// What Linux does under a congestion control of mpcc when the peer is not Linux.
func TestForeignPeer(t *testing.T) {
	loaded.Turn(t)
	lia, err := catalog.Find("lia")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loader.Load(t.Context(), lia, loader.Options{}); err != nil {
		t.Fatal(err)
	}
	Run(t, "lia", func(*lab.Host) error { return nil })
}

// Examples of RFC 1071 and RFC 4231, and of RFC 8684's definitions: of the peer's own arithmetic.
func TestArithmetic(t *testing.T) {
	if sum := checksum([]byte{0x00, 0x01, 0xf2, 0x03}, []byte{0xf4, 0xf5, 0xf6, 0xf7}); sum != ^uint16(0xddf2) {
		t.Errorf("the checksum is %04x, want %04x", sum, ^uint16(0xddf2))
	}
	if odd, even := checksum([]byte{1, 2, 3}), checksum([]byte{1, 2, 3, 0}); odd != even {
		t.Errorf("odd data has the checksum %04x, padded %04x", odd, even)
	}
}
