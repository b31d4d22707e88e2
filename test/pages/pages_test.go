// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// All pages can be read: none has a session that is not run, or a comment that says nothing.
func TestRead(t *testing.T) {
	all, err := Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, page := range all {
		for _, b := range page.Blocks {
			commands += len(b.Steps)
		}
	}
	if commands < 50 {
		t.Errorf("%d pages have %d commands", len(all), commands)
	}
}

func TestParse(t *testing.T) {
	page, err := parse("page.md", strings.ReplaceAll(`# Title
<!-- network: dsl0 lte0; phone is a namespace -->
~~~yaml title="a.yaml"
a: 1
~~~
<!-- needs: netem, schedulers -->
<!-- before: traffic 2 -->
~~~console
# mpcc load dts      # a comment
dts: loaded
# cat <<'END'
> x
> END
x
$ mpcc watch
…
^C
over
~~~
- in a list:

  ~~~sh
  make
  ~~~
~~~
TOKEN  ID
~~~
`, "~~~", "```"))
	if err != nil {
		t.Fatal(err)
	}
	want := Page{
		Name:    "page.md",
		Network: Network{Beside: true, Names: [2]string{"dsl0", "lte0"}},
		Blocks: []Block{
			{Line: 3, File: "a.yaml", Text: "a: 1\n"},
			{Line: 8, Needs: []string{"netem", "schedulers"}, Before: []string{"traffic 2"}, Steps: []Step{
				{Line: 9, Command: "mpcc load dts      # a comment", Compared: true, Want: []string{"dts: loaded"}, First: 10},
				{Line: 11, Command: "cat <<'END'\nx\nEND", Compared: true, Want: []string{"x"}, First: 14},
				{Line: 15, Command: "mpcc watch", Compared: true, Want: []string{"…", "over"}, First: 16, Interrupt: true, Until: 1},
			}},
			{Line: 22, Steps: []Step{{Line: 23, Command: "set -e\nmake\nset +e"}}, Text: "make\n"},
		},
	}
	page.Blocks[1].Text = ""
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPagesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"~~~\n# mpcc status\n~~~":                "a command that is not run",
		"~~~\nmpcc status\n~~~":                  "a command that is not run",
		"~~~bash\nls\n~~~":                       "a block of bash",
		"~~~console\nls\n~~~":                    "a session begins with a command",
		"<!-- needs: luck -->\n~~~sh\nls\n~~~":   `"luck" is none of the reasons`,
		"<!-- needs: netem -->\nText\n":          "about no block",
		"<!-- needs: netem -->\n~~~\nTOKEN\n~~~": "about one that is not run",
		"<!-- network: one -->\n":                "neither the names of two links",
		"~~~sh\nls\n":                            "has no end",
	} {
		_, err := parse("page.md", strings.ReplaceAll(text, "~~~", "```"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestAgrees(t *testing.T) {
	for _, row := range []struct {
		want, got string
		agree     bool
	}{
		{"TOKEN     ID\nf3fd52c2  1", "TOKEN  ID\n0a0b0c0d      2", true},
		{"10.0.1.1:50550 > 10.0.1.2:5201", "10.0.1.1:9 > 10.0.30.2:77", true},
		{"by wlan0: 18.8 Mbit/s, RTT 67.3 ms", "by wlan0: 900 kbit/s, RTT 1.2 s", true},
		{"it carried 1.34 MB in 2.07 s, 21.9 % of all", "it carried 880 kB in 2 s, 3 % of all", true},
		{"KERNEL 6.12.107+deb13-cloud-amd64", "KERNEL 6.18.44-fc-v445", true},
		{"c  4da46d5  simulated", "c  abcdefa-dirty  simulated", true},
		{"lte0  -  2  never", "lte0  3  2  never", true},
		{"none  3.21G  20G/month", "none  0  5M/month", true},
		{"undone in 1m0s unless", "undone in 59s unless", true},
		{"at 2026-11-23 12:02:38; 2", "at 2027-01-01 00:00:00; 0", true},
		{"a\n…\nz", "a\nb\nc\nz", true},
		{"a\n…\nz", "a\nz", true},
		{"mine: switched; …", "mine: switched; new connections", true},
		{"dts: loaded", "lia: loaded", false},
		{"by wlan0: 18.8 Mbit/s", "by lte0: 18.8 Mbit/s", false},
		{"by wlan0: 18.8 Mbit/s", "by wlan0: nothing", false},
		{"a\nb", "a", false},
		{"a", "a\nb", false},
		{"b\na", "a\nb", false},
		{"a\n…\nz", "a\nb", false},
		{"decade", "facade", false},
	} {
		if got := agrees(strings.Split(row.want, "\n"), strings.Split(row.got, "\n")); got != row.agree {
			t.Errorf("%q and %q: %v", row.want, row.got, got)
		}
	}
	if agrees(nil, []string{"anything"}) || !agrees(nil, nil) {
		t.Error("a command that the page shows no output of may print some")
	}
}

// What a command did is judged by what the page shows: also that it fails.
func TestWrong(t *testing.T) {
	refused := Step{Compared: true, Want: []string{"mpcc: no such thing"}}
	loaded := Step{Compared: true, Want: []string{"loaded"}}
	for what, err := range map[string]error{
		"a failure that is shown":     refused.wrong(1, refused.Want, nil),
		"success":                     loaded.wrong(0, loaded.Want, nil),
		"success, whatever it prints": Step{}.wrong(0, []string{"much"}, nil),
		"an interrupt":                Step{Interrupt: true}.wrong(130, nil, nil),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"a failure that is not shown":   loaded.wrong(1, loaded.Want, nil),
		"success where it was to fail":  refused.wrong(0, refused.Want, nil),
		"another output":                loaded.wrong(0, []string{"lost"}, nil),
		"an exit code of 130 by itself": Step{}.wrong(130, nil, nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// A reason that no kernel decides is only for commands of its kind.
func TestUnneeded(t *testing.T) {
	make := Block{Needs: []string{"clone"}, Steps: []Step{{Command: "set -e\nmake packages\nset +e"}}}
	if err := (&session{}).unneeded(make, make.lacks()); err != nil {
		t.Error(err)
	}
	status := Block{Needs: []string{"clone"}, Steps: []Step{{Command: "mpcc status"}}}
	if err := (&session{}).unneeded(status, status.lacks()); err == nil {
		t.Error("mpcc status does not need a clone")
	}
	for name, reason := range Reasons {
		if (reason.Lacks == nil) == (reason.Does == (*regexp.Regexp)(nil)) || reason.Why == "" {
			t.Errorf("%s: a reason is what a kernel lacks, or what commands do, and says why", name)
		}
	}
}

// A page is mended line by line: its other outputs, and all else, stay.
func TestMend(t *testing.T) {
	page := Page{Path: t.TempDir() + "/page.md"}
	old := "Text\n```console\n# a\nold\nolder\n# b\nstays\n```\nText\n"
	if err := os.WriteFile(page.Path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := page.mend(map[int][]string{4: {"new"}}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page.Path)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"Text", "```console", "# a", "new", "# b", "stays", "```", "Text", ""}; !slices.Equal(strings.Split(string(got), "\n"), want) {
		t.Errorf("%q", got)
	}
}
