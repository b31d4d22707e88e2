// SPDX-License-Identifier: Apache-2.0

// Package nearest guesses which name somebody meant who mistyped it.
package nearest

import "github.com/agnivade/levenshtein"

// tolerated is how many letters may be wrong, missing or too many; two letters in the wrong order count as two.
const tolerated = 2

// Name returns the name that is most like the one that was typed, the first of several; "" if none is.
func Name(typed string, names []string) string {
	best, least := "", tolerated+1
	for _, name := range names {
		d := levenshtein.ComputeDistance(typed, name)
		// With as many wrong letters as the name has, nothing is alike.
		if d < least && d < len(typed) && d < len(name) {
			best, least = name, d
		}
	}
	return best
}
