// SPDX-License-Identifier: Apache-2.0

package loader

import "encoding/binary"

var nativeEndian = binary.NativeEndian

func putUint(b []byte, size int, v uint64) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		nativeEndian.PutUint16(b, uint16(v))
	case 4:
		nativeEndian.PutUint32(b, uint32(v))
	case 8:
		nativeEndian.PutUint64(b, v)
	}
}

func getUint(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(nativeEndian.Uint16(b))
	case 4:
		return uint64(nativeEndian.Uint32(b))
	}
	return nativeEndian.Uint64(b)
}
