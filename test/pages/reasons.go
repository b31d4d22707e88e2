// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/loader"
)

// Reason is why a block may not run here. Either a kernel lacks something, and the VMs run the block; or the commands do
// what a test must not do, and are run by another one, or by none.
type Reason struct {
	Lacks func() error   // what this kernel lacks; nil in what no kernel decides
	Does  *regexp.Regexp // what at least one of the block's commands has to match
	Why   string
}

// Reasons are all there are.
var Reasons = map[string]Reason{
	"netem":      {Lacks: func() error { return lab.Has("netem") }, Why: "a link with delay or loss takes netem"},
	"schedulers": {Lacks: schedulers, Why: "packet schedulers take a kernel that has a type for them, or mpcc's module"},
	"multipath":  {Lacks: multipath, Why: "MPTCP for programs that know only TCP takes a kernel with fmod_ret"},
	"clone": {Does: regexp.MustCompile(`^(git clone|make|go) `),
		Why: "it works on a clone, where make test does it"},
	"packages": {Does: regexp.MustCompile(`\b(apt|dpkg|rpm|dnf|systemctl|journalctl)\b`),
		Why: "it installs packages or runs services, as the test of the packages does in a VM"},
	"module": {Does: regexp.MustCompile(`^mpcc sched (install|remove)`),
		Why: "it builds a kernel module, as the tests of installing do in a VM"},
	"cluster": {Does: regexp.MustCompile(`^(kubectl|ansible-playbook|sbatch) `),
		Why: "it is about many hosts, whose parts other tests run"},
	"vm":      {Does: regexp.MustCompile(` --vm\b`), Why: "it boots a VM"},
	"minutes": {Does: regexp.MustCompile(`^mpcc (run|energy learn) |^iperf3 |; iperf3 `), Why: "it takes minutes"},
	"others":  {Does: regexp.MustCompile(`/bpf_\w+\.o\b`), Why: "it takes objects that are not mpcc's"},
}

func schedulers() error {
	entry, err := catalog.Find("sched/blest")
	if err != nil {
		return err
	}
	return loader.Check(entry)
}

func multipath() error {
	for _, f := range loader.ProbeUse() {
		if !f.Present {
			return fmt.Errorf("%s: %s", f.Name, f.Mend)
		}
	}
	return nil
}

// lacks is why a block cannot run here; nil if it can. The error of a reason that no kernel decides is a notRun.
func (b Block) lacks() error {
	var lacks error
	for _, name := range b.Needs {
		r := Reasons[name]
		if r.Lacks == nil {
			return notRun{name, r.Why}
		}
		if err := r.Lacks(); err != nil {
			lacks = errors.Join(lacks, fmt.Errorf("%s: %w", name, err))
		}
	}
	return lacks
}

type notRun struct{ name, why string }

func (n notRun) Error() string { return n.name + ": " + n.why }
