// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/verified"
)

// TestVerify… are run by make verify alone, which reads what they leave in -verify-results.

var (
	verifyObjects = flag.String("verify-objects", "", "objects for TestVerifyKernel, commands for TestVerifyKills, with commas between")
	verifyResults = flag.String("verify-results", "", "`file` that gets what TestVerify… find, as records")
)

// keep writes records for make verify.
func keep(t *testing.T, records verified.Table) {
	t.Helper()
	text, err := json.Marshal(records)
	if err == nil {
		err = os.WriteFile(*verifyResults, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Every object is verified and attached, and carries a transfer where that takes nothing more; a kernel that is too old
// says so. What a kernel says of one object is a record, no failure of the test: the others are to be tried as well.
func TestVerifyKernel(t *testing.T) {
	try := tryObject
	if os.Getenv("MPCC_KERNEL") == verified.OldKernel {
		try = tryOnOldKernel
	}
	var records verified.Table
	for id := range strings.SplitSeq(*verifyObjects, ",") {
		records = append(records, try(t, id))
	}
	keep(t, records)
}

func tryObject(t *testing.T, id string) verified.Record {
	r := verified.Record{Column: id, State: verified.Failed}
	entry, err := catalog.Find(id)
	algorithm := err == nil
	if algorithm && entry.Kind == catalog.Sched {
		if out, err := exec.Command("modprobe", module).CombinedOutput(); err != nil {
			t.Logf("%s: %v: %s", id, err, out)
			r.State, r.Said = verified.NotRun, "no module for packet schedulers"
			return r
		}
	}
	spec, err := verified.Spec(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	if multipath := obj.UseProgMpccUseMptcp; spec.Programs[multipath] != nil {
		alone := spec.Copy()
		maps.DeleteFunc(alone.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != multipath })
		coll, err := ebpf.NewCollection(alone)
		switch {
		case err == nil:
			coll.Close()
		case errors.Is(err, os.ErrPermission): // as mpcc doctor says there
			r.Said = "without --multipath, which this kernel forbids"
			delete(spec.Programs, multipath)
		}
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		r.Said = err.Error()
		return r
	}
	defer coll.Close()
	most := 0.0
	for _, p := range coll.Programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); ok {
			most = max(most, float64(n))
		}
	}
	r.Figures = map[string]float64{"verified_instructions": most}
	if algorithm {
		err = carryUnder(t, entry, coll)
	} else if iter := coll.Programs["mpcc_sockets"]; iter != nil {
		var l *link.Iter
		if l, err = link.AttachIter(link.IterOptions{Program: iter}); err == nil {
			l.Close()
		}
	}
	if err != nil {
		r.Said = err.Error()
		return r
	}
	r.State = verified.Passed
	return r
}

// carryUnder attaches an algorithm and moves 1 MB through an MPTCP connection that has it, on the loopback of a host.
func carryUnder(t *testing.T, e catalog.Entry, coll *ebpf.Collection) error {
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps[e.Name]})
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	defer l.Close()
	network, err := lab.New()
	if err != nil {
		return err
	}
	defer network.Close()
	h, err := network.Host("alone")
	if err != nil {
		return err
	}
	options := mptcp.Options{CC: e.Name}
	if e.Kind == catalog.Sched {
		options.CC = ""
		if err := h.Sysctl("net.mptcp.scheduler", e.Name); err != nil {
			return err
		}
	}
	return h.Do(func() error {
		listener, err := mptcp.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0), options.CC)
		if err != nil {
			return err
		}
		defer listener.Close()
		received := make(chan error, 1)
		go func() {
			conn, err := listener.Accept(t.Context())
			if err == nil {
				defer conn.Close()
				_, err = checked.Receive(conn)
			}
			received <- err
		}()
		conn, err := mptcp.Dial(t.Context(), listener.Addr(), options)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = checked.Send(conn, checked.Transfer{Bytes: 1 << 20, Seed: 1})
		return errors.Join(err, <-received)
	})
}

// tooOld is what mpcc says on a kernel that lacks struct_ops links.
var tooOld = regexp.MustCompile(`^mpcc: this kernel \(6\.1\.\S+\) cannot run (\S+): it has no lasting BPF algorithms \(struct_ops links\): they came with Linux 6\.4; [^\n]*\n$`)

func tryOnOldKernel(t *testing.T, id string) verified.Record {
	r := verified.Record{Column: id, State: verified.Failed}
	cmd := exec.Command(os.Getenv("MPCC_BIN"), "load", id)
	out, err := cmd.CombinedOutput()
	entry, found := catalog.Find(id)
	if found != nil {
		t.Fatal(found)
	}
	said := tooOld.FindStringSubmatch(string(out))
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 4 && said != nil && said[1] == entry.String() {
		r.State = verified.Refused
	} else {
		r.Said = fmt.Sprintf("%v: %s", err, out)
	}
	return r
}

// doing is a command that changes something, and the one that undoes it.
type doing struct{ do, undo []string }

// doings are commands by name, on a machine with lia and a namespace.
func doings(t *testing.T, ns string) map[string]doing {
	t.Helper()
	object := filepath.Join(t.TempDir(), "stranger.o")
	if err := os.WriteFile(object, strangerObject, 0o600); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields
	return map[string]doing{
		"energy set":     {words("energy set lo lte-2012"), words("energy unset lo")},
		"path set":       {words("path set lo --rank 2"), words("path reset lo")},
		"use --cgroup":   {words("use lia --cgroup /"), words("use --remove --cgroup /")},
		"use --to":       {words("use lia --to 192.0.2.0/24"), words("use --remove --to 192.0.2.0/24")},
		"use --netns":    {words("use lia --netns " + ns), words("use --remove --netns " + ns)},
		"load":           {words("load olia"), words("unload olia")},
		"load --default": {words("load olia --default --netns " + ns), words("unload olia")},
		"load of a file": {[]string{"load", object}, words("unload stranger")},
	}
}

// killedAndDone kills a command after each of its changes, and so the one that undoes it: each is simply done again, and
// in the end all is as before. It returns how often that was.
func killedAndDone(t *testing.T, d doing) (kills int) {
	t.Helper()
	settings := string(mpcc(t, "config", "show"))
	before := footprint(t)
	back := func(after []string) {
		t.Helper()
		cleaned(t, before, after)
		if now := string(mpcc(t, "config", "show")); now != settings {
			t.Errorf("killed after %q: before there was\n%s, in the end there is\n%s", after, settings, now)
		}
	}
	for n := 1; ; n++ {
		changes, ended := killedAt(t, true, nth(n), d.do...)
		understood(t, changes)
		mpcc(t, d.do...)
		mpcc(t, d.undo...)
		back(changes)
		if ended {
			t.Logf("%s changes %q", strings.Join(d.do, " "), changes)
			break
		}
		kills++
	}
	for n := 1; ; n++ {
		mpcc(t, d.do...)
		changes, ended := killedAt(t, true, nth(n), d.undo...)
		understood(t, changes)
		if !ended {
			// Where all was undone already it may say that there is nothing to undo.
			out, err := exec.Command(os.Getenv("MPCC_BIN"), d.undo...).CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || strings.Count(string(out), "\n") != 1) {
				t.Errorf("killed after %q: %s: %v: %s", changes, strings.Join(d.undo, " "), err, out)
			}
		}
		back(changes)
		if ended {
			t.Logf("%s changes %q", strings.Join(d.undo, " "), changes)
			return kills
		}
		kills++
	}
}

// killing runs some of the doings.
func killing(t *testing.T, names ...string) (records verified.Table) {
	loaded.Turn(t)
	load(t, "lia")
	h := addHost(t, newLab(t), "host")
	all := doings(t, h.Namespace())
	if known := slices.Sorted(maps.Keys(all)); !slices.Equal(known, verified.KilledCommands) {
		t.Fatalf("there are %q to kill, and rows for %q", known, verified.KilledCommands)
	}
	for _, name := range names {
		r := verified.Record{Row: name, State: verified.Failed}
		if t.Run(name, func(t *testing.T) { r.Figures = map[string]float64{"kills": float64(killedAndDone(t, all[name]))} }) {
			r.State = verified.Passed
		}
		records = append(records, r)
	}
	return records
}

// Commands that other tests do not kill, after each change; make verify has all.
func TestHostKilledCommands(t *testing.T) { killing(t, "energy set", "use --to") }

func TestVerifyKills(t *testing.T) { keep(t, killing(t, strings.Split(*verifyObjects, ",")...)) }
