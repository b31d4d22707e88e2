// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// The version that Go notes in a binary comes from Go itself here: it builds a small module in a clone, in each
// state in which mpcc may be built.
func TestVersionOfBuilds(t *testing.T) {
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOENV=off", "GOFLAGS=", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := func(flags ...string) *debug.BuildInfo {
		t.Helper()
		run("go", append(append([]string{"build"}, flags...), "-o", "program")...)
		info, err := buildinfo.ReadFile(filepath.Join(dir, "program"))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	want := func(pattern string, info *debug.BuildInfo) {
		t.Helper()
		if got := versionOf(info); !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
			t.Errorf("version %q, want %s", got, pattern)
		}
	}
	write("go.mod", "module example.org/program\n\ngo 1.26\n")
	write("main.go", "package main\n\nfunc main() {}\n")
	write(".gitignore", "/program\n")

	want("unknown", build()) // of an unpacked archive
	run("git", "init", "-q")
	run("git", "add", ".")
	run("git", "commit", "-q", "-m", "First")
	commit := run("git", "rev-parse", "HEAD")
	want(`v0\.0\.0-\d{14}-`+commit[:12], build())
	write("main.go", "package main\n\nfunc main() { println() }\n")
	want(`v0\.0\.0-\d{14}-`+commit[:12]+`\+dirty`, build())
	run("git", "commit", "-q", "-a", "-m", "Second")
	run("git", "tag", "v1.2.3")
	want(`v1\.2\.3`, build())
	want("unknown", build("-buildvcs=false"))

	// Where Go could not make a version of the commit, it leaves the bare one.
	info := build()
	info.Main.Version = "(devel)"
	want(run("git", "rev-parse", "HEAD"), info)
	write("main.go", "package main\n\nfunc main() {}\n")
	info = build()
	info.Main.Version = "(devel)"
	want(run("git", "rev-parse", "HEAD")+"-dirty", info)
}
