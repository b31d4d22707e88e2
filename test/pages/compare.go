// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"regexp"
	"strings"
)

// What differs between two runs of a session, in the order in which it is taken out.
var (
	blank   = regexp.MustCompile(`[ \t]+`)
	release = regexp.MustCompile(`\b\d+\.\d+[.\d]*[-+][\w.+~-]*[a-z][\w.+~-]*`)
	token   = regexp.MustCompile(`\b[0-9a-f]{6,10}(-dirty)?\b`) // of a connection, or a commit
	figure  = regexp.MustCompile(`[-+−]?\b\d+(?:[.,:]\d+|-\d\d)*(?:e[-+]?\d+)?` +
		`(?:[KMGT]\b| ?(?:[kMGTmµnp]?(?:bit/s|B/s|B|J|W|s|m|h)|kbit|mW/Mbps|mW|%)(?:\d+[.\d]*m?s)?(?:/|\b|$|\s))?`)
	absent = regexp.MustCompile(`(^| )-( |$)`)
)

// blur takes out of a line of output what the machine and the moment make different: any number with its unit and
// prefix, also an address, a time, a version and a token, becomes "#", and so does a figure that a table does not have
// yet ("-"); columns lose their width.
func blur(line string) string {
	line = strings.TrimSpace(blank.ReplaceAllString(line, " "))
	line = release.ReplaceAllString(line, "#")
	line = token.ReplaceAllStringFunc(line, func(s string) string {
		if len(s) > len("decade") || strings.ContainsAny(s, "0123456789") {
			return "#"
		}
		return s
	})
	line = figure.ReplaceAllStringFunc(line, func(s string) string {
		if strings.HasSuffix(s, " ") {
			return "# "
		}
		return "#"
	})
	for absent.MatchString(line) {
		line = absent.ReplaceAllString(line, "$1#$2")
	}
	return line
}

// agrees compares output with what a page shows of it. A line "…" of the page stands for any lines, and "…" in a line
// for any text.
func agrees(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == "…" {
		for i := 0; i <= len(got); i++ {
			if agrees(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && alike(blur(want[0]), blur(got[0])) && agrees(want[1:], got[1:])
}

func alike(want, got string) bool {
	parts := strings.Split(want, "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}
