// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tc gives the queues of s on dev: their kinds from the root on, and the tc
// lines that make them, or change them where these kinds are in place.
//
//	root 1: netem  loss, delay            where the kernel has it
//	  └─ 2: tbf    rate, and the queue    where there is a rate
func (s Shape) tc(dev string, netem bool) (kinds string, script []string) {
	if s.Rate == 0 && !(netem && len(s.netemWords()) > 0) {
		return "", nil
	}
	parent := "root"
	if netem {
		// The limit only has to exceed what can be in flight.
		line := fmt.Sprintf("qdisc replace dev %s root handle 1: netem limit 1000000", dev)
		if s.Delay > 0 {
			line += fmt.Sprintf(" delay %dus %dus", s.Delay.Microseconds(), s.Jitter.Microseconds())
		}
		if s.Loss > 0 {
			line += fmt.Sprintf(" loss %g%%", s.Loss)
		}
		kinds, parent, script = "netem", "parent 1:", append(script, line)
	}
	if s.Rate > 0 {
		queue := s.Queue
		if queue == 0 {
			queue = defaultQueue
		}
		// A bucket of 1 ms makes up for late timers and still adds next to
		// nothing to a burst; two frames are the least that reaches the rate.
		burst := max(2*frame, s.Rate/8/1000)
		script = append(script, fmt.Sprintf("qdisc replace dev %s %s handle 2: tbf rate %dbit burst %d limit %d",
			dev, parent, s.Rate, burst, queue*frame))
		kinds += " tbf"
	}
	return kinds, script
}

// probes are the least arguments with which tc takes a qdisc of that kind.
var probes = map[string]string{
	"tbf": "tbf rate 1mbit burst 4kb limit 20kb",
	"red": "red limit 400kb min 30kb max 90kb avpkt 1000 burst 55",
}

// Has returns nil when this kernel has the qdisc (loading its module, if need
// be), and an error that says so when it has not.
func Has(qdisc string) error {
	args := probes[qdisc]
	if args == "" {
		args = qdisc
	}
	done := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with the goroutine and takes
		// the nameless namespace along.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("netlab: make a network namespace: %w", err)
			return
		}
		done <- runTool("tc", strings.Fields("qdisc add dev lo root "+args)...)
	}()
	return <-done
}

// batch runs a script of ip or tc inside the host, up to the first failure.
func (h *Host) batch(tool string, script []string) error {
	if len(script) == 0 {
		return nil
	}
	cmd := h.Command(h.lab.ctx, tool, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(script, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	failed := strings.Join(script, "; ")
	if m := failedLine.FindSubmatch(out); m != nil {
		if n, convErr := strconv.Atoi(string(m[1])); convErr == nil && n <= len(script) {
			failed = script[n-1]
		}
		out = bytes.Replace(out, m[0], nil, 1)
	}
	return toolError(tool, failed, out, err)
}

var failedLine = regexp.MustCompile(`(?m)^Command failed -:(\d+)\n?`)

// runTool runs ip or tc in the namespace of the present thread.
func runTool(tool string, args ...string) error {
	out, err := exec.Command(toolPath(tool), args...).CombinedOutput()
	if err != nil {
		return toolError(tool, strings.Join(args, " "), out, err)
	}
	return nil
}

// toolPath finds a program, also where root's PATH lacks the sbin folders.
func toolPath(name string) string {
	if _, err := exec.LookPath(name); err != nil {
		for _, dir := range []string{"/usr/sbin", "/sbin"} {
			if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return p
			}
		}
	}
	return name
}

var (
	// What kernels up to 6.1 and later ones say of a qdisc they have not.
	noQdisc = regexp.MustCompile(`Specified qdisc (not found|kind is unknown)`)
	kind    = regexp.MustCompile(`(?:root|parent 1:)(?: handle \d+:)? (\w+)`)
)

// toolError says in one line what failed, in the user's words where they are
// known.
func toolError(tool, args string, out []byte, err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s not found: install iproute2", tool)
	}
	if m := kind.FindStringSubmatch(args); m != nil && noQdisc.Match(out) {
		return fmt.Errorf("this kernel has no sch_%s", m[1])
	}
	said := strings.Join(strings.Fields(strings.TrimSpace(string(out))), " ")
	if said == "" {
		said = err.Error()
	}
	return fmt.Errorf("%s %s: %s", tool, args, said)
}
