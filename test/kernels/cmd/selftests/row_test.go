// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTAP(t *testing.T) {
	const text = `01 first        [ OK ]
ok 9 - not yet a result

TAP version 13
1..5
ok 1 - simult_flows: first # time=7985ms
not ok 2 - simult_flows: second - reverse direction # time=7647ms
ok 3 - mptcp_connect: third # SKIP time=1ms
ok 4 - mptcp_connect: multihosts: ns1 MPTCP -> ns2 (10.0.1.2:10006) MPTCP # time=1238ms
ok 5 - simult_flows: fifth # IGNORE Flaky time=3ms
`
	got, err := readTAP(text)
	if err != nil {
		t.Fatal(err)
	}
	want := results{passed: 2, failed: []string{"second - reverse direction", "fifth"}, skipped: []string{"third"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(results{})); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if got.total() != 5 {
		t.Errorf("%d tests, want 5", got.total())
	}
	for _, cut := range []string{"", "01 first  [ OK ]\n", strings.Replace(text, "1..5\n", "", 1),
		strings.Replace(text, "1..5", "1..6", 1), "TAP version 13\n1..0\n"} {
		if got, err := readTAP(cut); err == nil {
			t.Errorf("%q gave %+v and no error", cut, got)
		}
	}
}

// Anything but a pass of every test by the control that was asked for is a fault.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		change     map[string]string // file → content
		kernelsOwn bool
		scheduler  string // default if it is not said
		want       []string
		cells      string
	}{
		"passed":       {cells: "2/2 2/2 2/2 2/2"},
		"kernel's own": {kernelsOwn: true, cells: "2/2 2/2 2/2 2/2"},
		"one test failed": {
			change: map[string]string{"simult_flows-2.log": tap("ok", "not ok"), "simult_flows-2.status": "1\n"},
			want:   []string{"simult_flows-2: failed: test 2", "simult_flows-2: ended with status 1"},
			cells:  "2/2 2/2 1/2 2/2",
		},
		"one test was skipped": {
			change: map[string]string{"mptcp_connect.log": strings.ReplaceAll(tap("ok", "ok"), "2 #", "2 # SKIP")},
			want:   []string{"mptcp_connect: skipped: test 2"},
			cells:  "1/2, 1 skipped 2/2 2/2 2/2",
		},
		"the script was skipped": {
			change: map[string]string{"mptcp_connect.log": "no tc\n", "mptcp_connect.status": "4\n"},
			want:   []string{"mptcp_connect: it printed no results", "mptcp_connect: ended with status 4"},
			cells:  "skipped 2/2 2/2 2/2",
		},
		"status without a failed test": {
			change: map[string]string{"mptcp_connect.status": "124\n"},
			want:   []string{"mptcp_connect: ended with status 124"},
			cells:  "2/2 2/2 2/2 2/2",
		},
		"another default": {
			change: map[string]string{"defaults": "cubic\ndefault\n"},
			want:   []string{"a new namespace had cubic and default as its defaults"},
			cells:  "- - - -",
		},
		"another control's subflows": {
			change: map[string]string{"mptcp_connect.json": totals("reno", 4), "simult_flows-1.json": totals("reno", 8)},
			want: []string{"mptcp_connect: mpcc saw no subflow", "simult_flows-1: mpcc saw no subflow",
				"simult_flows-2: the control ran on 12 sockets of 4"},
			cells: "2/2 2/2 2/2 2/2",
		},
		"another control on one subflow": {
			change: map[string]string{"simult_flows-3.json": totals("lia", 15)},
			want:   []string{"simult_flows-3: the control ran on 3 sockets of 4"},
			cells:  "2/2 2/2 2/2 2/2",
		},
		"mpcc's scheduler": {
			scheduler: "earliest",
			change: map[string]string{"defaults": "lia\nearliest\n", "mptcp_connect.choices": "0\n", "simult_flows-1.choices": "0\n",
				"simult_flows-2.choices": "0\n", "simult_flows-3.choices": "0\n"},
			cells: "2/2 2/2 2/2 2/2",
		},
		"the kernel's scheduler in place of mpcc's": {
			scheduler: "earliest",
			change: map[string]string{"defaults": "lia\nearliest\n", "mptcp_connect.choices": "0\n", "simult_flows-1.choices": "0\n",
				"simult_flows-2.choices": "5\n", "simult_flows-3.choices": "5\n"},
			want:  []string{"simult_flows-2: the kernel's own packet scheduler chose 5 times"},
			cells: "2/2 2/2 2/2 2/2",
		},
		"no socket": {
			kernelsOwn: true,
			change:     map[string]string{"simult_flows-3.sockets": "12\n"},
			want:       []string{"simult_flows-3: no socket was opened"},
			cells:      "2/2 2/2 2/2 2/2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{
				"defaults": "lia\ndefault\n", "start.sockets": "0\n", "start.choices": "0\n", "start.json": totals("lia", 0),
			}
			for i, script := range scriptNames {
				files[script+".log"] = tap("ok", "ok")
				files[script+".status"] = "0\n"
				files[script+".sockets"] = fmt.Sprintln(4 * (i + 1))
				files[script+".choices"] = fmt.Sprintln(9 * (i + 1))
				files[script+".json"] = totals("lia", 4*(i+1))
			}
			dir := t.TempDir()
			for _, files := range []map[string]string{files, test.change} {
				for file, text := range files {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			r := row{cc: "lia", scheduler: kernelsScheduler, mpcc: !test.kernelsOwn}
			if test.scheduler != "" {
				r.scheduler = test.scheduler
			}
			r.fault = r.read(dir)
			if diff := cmp.Diff(test.want, r.faults()); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if got := strings.Join(r.cells(), " "); got != test.cells {
				t.Errorf("cells %q, want %q", got, test.cells)
			}
		})
	}
}

// tap returns what a script prints whose tests have these results.
func tap(tests ...string) string {
	text := fmt.Sprintf("TAP version 13\n1..%d\n", len(tests))
	for i, result := range tests {
		text += fmt.Sprintf("%s %d - script: test %d # time=1ms\n", result, i+1, i+1)
	}
	return text
}

// totals returns what mpcc status shows of two interfaces.
func totals(cc string, opened int) string {
	return fmt.Sprintf(`{"totals": [{"cc": %q, "subflows_opened": %d}, {"cc": %q, "subflows_opened": %d}]}`,
		cc, opened/2, cc, opened-opened/2)
}

// What can be no name of a congestion control is refused before anything is fetched or removed.
func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "../lia", "cc/lia", "lia.o", "--", "a-name-of-sixteen"} {
		if status, err := run([]string{"cubic", name}); status != 2 || err == nil {
			t.Errorf("%q: status %d, error %v", name, status, err)
		}
	}
}
