// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/loaded"
)

// configuration writes a file, with phone in it being the host's namespace.
func configuration(t *testing.T, h *lab.Host, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "phone", h.Namespace())), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	appliedFile = "/run/mpcc/applied.json"
	pendingFile = "/var/lib/mpcc/pending.json"
)

const wholeConfiguration = `
algorithms: [{name: dts, set: {min_cwnd: 1}}, {name: prefer}]
small_pieces: true
defaults: [{cc: dts, scheduler: prefer, netns: phone}]
uses: [{what: dts, cgroup: mpcc-apply}, {what: mptcp, cgroup: mpcc-apply}]
energy: [{interface: to-server-0, netns: phone, profile: wifi-2012}]
paths: [{path: to-server-1, netns: phone, rank: 2, spill: 100ms}]
mptcp:
  - netns: phone
    limits: {subflows: 4, add_addr_accepted: 3}
    endpoints: [{address: 10.0.1.1, dev: to-server-0, flags: [subflow]}, {address: 10.0.2.1, id: 9, flags: [subflow, backup]}]
source_routes:
  - {from: 10.0.1.1, table: 1001, netns: phone, routes: [{dev: to-server-0, via: 10.0.1.2}, {dev: to-server-0, to: 10.0.1.0/24}]}
`

// A whole file is made so, once: a scheduler and a cgroup among it. Then all of it goes but what is somebody else's.
func TestOneKernelApply(t *testing.T) {
	withSchedulers(t)
	untouched(t)
	n := newTwoPaths(t, [2]lab.Shape{})
	h := n.client
	newCgroup(t, "mpcc-apply")
	foreign := mptcp.Endpoint{ID: 77, Addr: netip.MustParseAddr("10.0.7.7"), Flags: mptcp.EndpointSignal}
	if err := h.Do(func() error { return mptcp.AddEndpoint(foreign) }); err != nil {
		t.Fatal(err)
	}
	endpoints := func() (all []mptcp.Endpoint) {
		t.Helper()
		if err := h.Do(func() (err error) { all, err = mptcp.Endpoints(); return err }); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := string(mpcc(t, "config", "show"))
	whole := wholeConfiguration
	for i, p := range n.paths {
		whole = strings.ReplaceAll(whole, fmt.Sprintf("to-server-%d", i), p.Interface(h))
		whole = strings.ReplaceAll(whole, fmt.Sprintf("10.0.%d.1", i+1), p.Addr(h).String())
		whole = strings.ReplaceAll(whole, fmt.Sprintf("10.0.%d.2", i+1), p.Addr(n.server).String())
	}
	file := configuration(t, h, whole)
	planned := mpcc(t, "apply", "--dry-run", file)
	if now := string(mpcc(t, "config", "show")); now != before {
		t.Errorf("a dry run has changed\n%s to\n%s", before, now)
	}
	if done := mpcc(t, "apply", file); string(done) != string(planned) || strings.Count(string(done), "\n") != 15 {
		t.Errorf("planned was\n%s, done is\n%s", planned, done)
	}
	prints(t, "^nothing to change\n$", "apply", file)
	shown := mpcc(t, "config", "show")
	if err := os.WriteFile(file, shown, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := string(mpcc(t, "apply", "--dry-run", file)); out != "nothing to change\n" {
		t.Errorf("of what is shown it would change %s, shown is\n%s", out, shown)
	}
	all := endpoints()
	if len(all) != 3 || !slices.Contains(all, foreign) {
		t.Errorf("endpoints %+v", all)
	}
	p := n.connect(t, "", "")
	runs(t, p.client, "dts")
	p.close()

	mpcc(t, "apply", configuration(t, h, ""))
	if got := endpoints(); !slices.Equal(got, []mptcp.Endpoint{foreign}) {
		t.Errorf("endpoints %+v", got)
	}
	if now := string(mpcc(t, "config", "show")); now != before {
		t.Errorf("before there was\n%s, in the end there is\n%s", before, now)
	}
}

const smallConfiguration = `
algorithms: [{name: lia}]
defaults: [{cc: lia, netns: phone}]
paths: [{path: lo, netns: phone, rank: 2}]
mptcp: [{netns: phone, limits: {subflows: 5, add_addr_accepted: 5}, endpoints: [{address: 10.0.9.9, flags: [signal]}]}]
source_routes: [{from: 10.0.9.9, table: 1009, netns: phone, routes: [{dev: lo}]}]
`

// An apply that is killed after any change leaves what the next one goes on from, on the way to a file and back.
func TestHostKilledApply(t *testing.T) {
	loaded.Turn(t)
	load(t, "lia") // what a killed load leaves, other tests see
	h := addHost(t, newLab(t), "host")
	before := string(mpcc(t, "config", "show"))
	for _, text := range []string{smallConfiguration, ""} {
		file := configuration(t, h, text)
		for n := 1; ; n++ {
			changes, ended := killed(t, nth(n), "apply", file)
			t.Logf("apply %d made %q", n, changes)
			if ended {
				break
			}
		}
		prints(t, "^nothing to change\n$", "apply", file)
	}
	if now := string(mpcc(t, "config", "show")); now != before {
		t.Errorf("before there was\n%s, in the end there is\n%s", before, now)
	}
}

// Changes that are not confirmed are undone, whoever is killed; and stay when they are.
func TestOneKernelApplyConfirm(t *testing.T) {
	load(t, "lia")
	h := addHost(t, newLab(t), "host")
	t.Cleanup(func() { os.Remove(pendingFile) })
	small := configuration(t, h, smallConfiguration)
	before := string(mpcc(t, "config", "show"))
	gone := func(when string) {
		t.Helper()
		if !eventually(20*time.Second, func() bool {
			_, err := os.Stat(appliedFile)
			return errors.Is(err, os.ErrNotExist)
		}) {
			t.Fatalf("%s: still applied", when)
		}
		if now := string(mpcc(t, "config", "show")); now != before {
			t.Errorf("%s: before there was\n%s, now there is\n%s", when, before, now)
		}
	}

	// With the shell and mpcc killed, the guard does it.
	shell := exec.Command("sh", "-c", os.Getenv("MPCC_BIN")+" apply --confirm 2s "+small+"; echo; sleep 1000")
	shell.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	for buf := make([]byte, 4096); !strings.HasSuffix(said, "\n\n"); {
		n, err := out.Read(buf)
		if said += string(buf[:n]); err != nil {
			t.Fatalf("%v after %q", err, said)
		}
	}
	if err := unix.Kill(-shell.Process.Pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = shell.Wait()
	if !strings.HasSuffix(said, "\nundone in 2s unless you say mpcc confirm\n\n") {
		t.Errorf("it said %q", said)
	}
	gone("the shell killed")

	// With the guard killed too, the next command does it.
	mpcc(t, "apply", "--confirm", "2s", small)
	pid := guard(t)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if _, err := os.Stat(appliedFile); err != nil {
		t.Errorf("nobody is left, and it is undone: %v", err)
	}
	cmd := exec.Command(os.Getenv("MPCC_BIN"), "use")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "were not confirmed, and are undone now\n") {
		t.Errorf("the next command says %q, %v", out, err)
	}
	gone("the guard killed")

	// Confirmed, they stay, and nobody waits any more.
	mpcc(t, "apply", "--confirm", "1000s", small)
	pid = guard(t)
	prints(t, "^the changes stay\n$", "confirm")
	if !eventually(10*time.Second, func() bool { return unix.Kill(pid, 0) != nil || zombie(pid) }) {
		t.Error("the guard still waits")
	}
	prints(t, "^nothing to change\n$", "apply", small)
	mpcc(t, "apply", configuration(t, h, ""))
	gone("nothing declared")
}

// guard is the process that waits to undo changes.
func guard(t *testing.T) (pid int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if text, err := os.ReadFile(path); err == nil && string(text) == "mpcc\x00guard\x00" {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	t.Fatal("there is no guard")
	return 0
}

// zombie tells whether a process has ended and nobody has asked how.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}
