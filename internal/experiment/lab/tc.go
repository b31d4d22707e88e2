// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/netns"
)

// tc returns the qdiscs that make s on dev: their kinds, from the root on, and
// the tc lines that make them or, where these kinds are there already, change
// them.
//
//	with netem                            without
//	root 1: netem  loss, delay            root 2: tbf  rate, queue
//	  └─ 2: netem  rate, queue (packets)
//	     or tbf    rate, queue (bytes)
//	     or tbf    rate
//	        └─ 3: red  └─ 4: red          the same
//	        or 3: codel, fq_codel or pie  the same
//
// netem's rate is the better one: it makes up for late timers, whereas tbf makes
// up for no more than its bucket, and loses much of the rate on a busy virtual
// machine. But netem counts its queue in packets only, and keeps them to itself,
// where a RED below it does not see them. A RED above what limits the rate would
// take each moment in which nothing may be sent for an idle one, and its average
// would shrink.
func (s Shape) tc(dev string, netem bool) (kinds string, script []string) {
	if s.Rate == 0 && !(netem && s.needsNetem()) {
		return "", nil
	}
	handle, parent := queueHandle, "root"
	add := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		script = append(script, fmt.Sprintf("qdisc replace dev %s %s handle %d: %s", dev, parent, handle, line))
		kinds += strings.Fields(line)[0] + " "
		parent = fmt.Sprintf("parent %d:", handle)
		handle++
	}
	if netem {
		handle = delayHandle
		// The limit has to exceed what can be in flight, no more.
		line := "netem limit 1000000"
		if s.Delay > 0 {
			line += fmt.Sprintf(" delay %dus %dus", s.Delay.Microseconds(), s.Jitter.Microseconds())
		}
		if s.Jitter > 0 {
			line += " rate " + s.jitterRate()
		}
		if s.Loss > 0 {
			line += fmt.Sprintf(" loss %g%%", s.Loss)
		}
		add("%s", line)
	}
	if s.Rate == 0 {
		return kinds, script
	}
	queue := s.Queue
	if queue == 0 {
		queue = defaultQueue
	}
	switch {
	case s.RED != nil:
		add("tbf rate %dbit burst %d limit %d", s.Rate, bucket(s.Rate), s.RED.limit())
		for _, line := range s.RED.tc(s.Rate) {
			add("%s", line)
		}
	case s.AQM != "":
		add("tbf rate %dbit burst %d limit %d", s.Rate, max(2*frame, s.Rate/8/1000), queue*frame)
		add(managers[s.AQM], queue)
	case s.QueueBytes > 0:
		burst := bucket(s.Rate)
		if s.Changes {
			burst = max(2*frame, burst/10) // with each change the kernel fills the bucket
		}
		add("tbf rate %dbit burst %d limit %d", s.Rate, burst, s.QueueBytes)
	case netem:
		add("netem rate %dbit limit %d", s.Rate, queue)
	default:
		// A bucket of 1 ms, but at least the two frames without which tbf does not
		// reach the rate.
		add("tbf rate %dbit burst %d limit %d", s.Rate, max(2*frame, s.Rate/8/1000), queue*frame)
	}
	return kinds, script
}

// jitterRate is the rate of the netem that delays. With a rate, netem sends no packet before those that wait
// already; this one is so high that it does nothing else. 0 takes away the rate that an earlier Shape gave.
func (s Shape) jitterRate() string {
	if s.Reorder {
		return "0bit"
	}
	return "1tbit"
}

// managers are the qdiscs that manage a queue, with their limits in packets.
var managers = map[string]string{"codel": "codel limit %d noecn", "fq_codel": "fq_codel limit %d noecn", "pie": "pie limit %d noecn"}

// bucket is 50 ms of tokens, in bytes, which make up for late timers of a busy
// machine. While packets wait it is empty.
func bucket(rate uint64) uint64 { return max(2*frame, rate/8/20) }

// Handles of the qdiscs: of the one that delays, and of the first of those in
// which packets wait for the rate.
const (
	delayHandle = 1
	queueHandle = 2
)

func (r *RED) end() int { return max(r.Max, r.End) }

// limit is in bytes, and never reached: before that everything is dropped.
func (r *RED) limit() int { return 4 * r.end() * frame }

// tc returns the RED qdiscs as tc has them, the outer first.
func (r *RED) tc(rate uint64) []string {
	red := func(from, to int, chance float64) string {
		line := fmt.Sprintf("red limit %d min %d max %d avpkt %d burst %d bandwidth %dbit probability %g",
			r.limit(), from*frame, to*frame, frame, (2*from+to)/3+1, rate, min(chance, 0.9999)) // tc does not take 1
		if r.ECN {
			line += " ecn"
		}
		return line
	}
	if r.end() == r.Max {
		return []string{red(r.Min, r.Max, r.Prob)}
	}
	slope := r.Prob / float64(r.Max-r.Min)
	return []string{
		red(r.Min, r.end(), slope*float64(r.end()-r.Min)),
		red(r.Max, r.end(), 1),
	}
}

// probes are arguments of the qdiscs that tc does not take without any.
var probes = map[string]string{
	"tbf": "tbf rate 1mbit burst 4kb limit 20kb",
	"red": "red limit 400kb min 30kb max 90kb avpkt 1000 burst 55",
}

// Has returns nil if this kernel has the qdisc, whose module is loaded if need
// be, and otherwise an error that says so.
func Has(qdisc string) error {
	args := probes[qdisc]
	if args == "" {
		args = qdisc
	}
	return netns.OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("lab: make a network namespace: %w", err)
		}
		return runTool("tc", strings.Fields("qdisc add dev lo root "+args)...)
	})
}

// batch runs lines of ip or tc inside the host, up to the first that fails.
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
	// What kernels say of a qdisc that they lack: those up to 6.1, and later ones.
	noQdisc = regexp.MustCompile(`Specified qdisc (not found|kind is unknown)`)
	kind    = regexp.MustCompile(`(?:root|parent \d:)(?: handle \d+:)? (\w+)`)
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
