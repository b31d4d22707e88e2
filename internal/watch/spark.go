// SPDX-License-Identifier: Apache-2.0

package watch

import "slices"

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last values in so many characters, against the largest of them. It begins on the right.
func sparkline(values []float64, width int) string {
	line := slices.Repeat([]rune{' '}, width)
	values = values[max(0, len(values)-width):]
	if len(values) == 0 {
		return string(line)
	}
	largest := slices.Max(values)
	for i, v := range values {
		level := 0
		if largest > 0 {
			level = int(v / largest * float64(len(bars)-1))
		}
		line[width-len(values)+i] = bars[level]
	}
	return string(line)
}
