// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// text is the text of a C array up to its first zero byte.
func text(b []uint8) string { return printable(unix.ByteSliceToString(b)) }

// printable writes each byte that is not part of a printable character of UTF-8 as \xNN. The kernel takes
// almost any bytes for the name of an interface.
func printable(name string) string {
	var out strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			out.WriteString(name[:size])
		} else {
			for _, b := range []byte(name[:size]) {
				fmt.Fprintf(&out, `\x%02x`, b)
			}
		}
		name = name[size:]
	}
	return out.String()
}
