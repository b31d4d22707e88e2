// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Each total of a packet scheduler is in the column of its name.
func TestStatusOfSchedulers(t *testing.T) {
	s := status{Loaded: []string{"sched/earliest"}}
	s.SchedTotals = []telemetry.SchedTotal{{
		Scheduler: "earliest", NetnsName: "home", Opened: 2, Decisions: 31, Waits: 43, Retransmissions: 57, Repeats: 11,
		Bytes: 900,
	}}
	var out bytes.Buffer
	if err := s.print(&out); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "\nTOTAL")
	lines := strings.Split("TOTAL"+table, "\n")
	if len(lines) < 2 {
		t.Fatalf("no totals:\n%s", &out)
	}
	header, row := strings.Fields(lines[0]), strings.Fields(lines[1])
	want := map[string]string{
		"TOTAL": "earliest", "NETNS": "home", "CONNECTIONS": "2", "DECISIONS": "31", "WAITS": "43", "AGAIN": "57",
		"REPEATED": "11", "BYTES": "900",
	}
	if len(header) != len(want) {
		t.Errorf("the columns are %q", header)
	}
	for i, column := range header {
		if row[i] != want[column] {
			t.Errorf("%s: %s, want %q", column, row[i], want[column])
		}
	}
}
