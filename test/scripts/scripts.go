// SPDX-License-Identifier: Apache-2.0

// Package scripts has commands for the scripts in testdata/scripts, of which each is what a user types.
package scripts

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// Exits is "exits CODE COMMAND…", which wants this exit code and, but for 0, one line of complaint by mpcc.
func Exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	ends(ts, args)
	complaint := ts.ReadFile("stderr")
	if args[0] != "0" && (!strings.HasPrefix(complaint, "mpcc: ") || strings.Count(complaint, "\n") != 1) {
		ts.Fatalf("not one line of complaint: %q", complaint)
	}
}

// Tells is "tells CODE COMMAND…", which wants this exit code of a command whose output tells why, and no complaint.
func Tells(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: tells CODE COMMAND [ARGUMENT...]")
	}
	ends(ts, args)
	if complaint := ts.ReadFile("stderr"); complaint != "" {
		ts.Fatalf("it complains: %q", complaint)
	}
}

// ends runs CODE COMMAND… and wants this exit code.
func ends(ts *testscript.TestScript, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
