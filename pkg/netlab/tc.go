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
//	with netem                          without
//	root 1: netem  loss, delay          root 2: tbf  rate, queue
//	  └─ 2: netem  rate, queue
//
// netem's rate keeps a clock of its own, so that packets sent late because a
// timer was late do not slow the next ones; tbf loses what exceeds its bucket,
// much of the rate on a busy virtual machine.
func (s Shape) tc(dev string, netem bool) (kinds string, script []string) {
	if s.Rate == 0 && !(netem && len(s.netemWords()) > 0) {
		return "", nil
	}
	queue := s.Queue
	if queue == 0 {
		queue = defaultQueue
	}
	if !netem {
		// A bucket of 1 ms, and of the two frames at least that it takes to
		// reach the rate.
		return "tbf", []string{fmt.Sprintf("qdisc replace dev %s root handle 2: tbf rate %dbit burst %d limit %d",
			dev, s.Rate, max(2*frame, s.Rate/8/1000), queue*frame)}
	}
	// The limit only has to exceed what can be in flight.
	line := fmt.Sprintf("qdisc replace dev %s root handle 1: netem limit 1000000", dev)
	if s.Delay > 0 {
		line += fmt.Sprintf(" delay %dus %dus", s.Delay.Microseconds(), s.Jitter.Microseconds())
	}
	if s.Loss > 0 {
		line += fmt.Sprintf(" loss %g%%", s.Loss)
	}
	if s.Rate == 0 {
		return "netem", []string{line}
	}
	return "netem netem", []string{line,
		fmt.Sprintf("qdisc replace dev %s parent 1: handle 2: netem rate %dbit limit %d", dev, s.Rate, queue)}
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
