// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// Feature is something that mpcc needs of the kernel.
type Feature struct {
	Name    string `json:"name"`
	Present bool   `json:"present"`
	Origin  string `json:"origin,omitempty"` // whose it is, where it may be the kernel's or mpcc's
	Mend    string `json:"mend,omitempty"`   // how to get it, where it is absent
	Limits  string `json:"limits,omitempty"` // what mpcc's algorithms cannot do with it
}

// kernelFeature is a feature that the kernel's types (BTF) show. Its version does not: distributions backport.
type kernelFeature struct {
	name, mend string
	inBTF      func(*btf.Spec) bool
}

// types is the BTF of the kernel and of its modules. A process reads each once, as that takes a good part of a load:
// it has to be started anew when another version of mpcc's module is installed.
var types = btf.NewCache()

// The struct_ops types of packet schedulers in BTF: the kernel's own, and that of mpcc's module, which is there
// while the module is loaded.
const (
	nativeSchedType = "bpf_struct_ops_mptcp_sched_ops"
	moduleSchedType = "bpf_struct_ops_mptcp_xsched_ops"
	schedModule     = "mpcc_sched"
	// What this mpcc's module has and older ones have not.
	moduleLatest = "mptcp_xsched_grow_buffer"
)

func hasStruct(name string) func(*btf.Spec) bool {
	return func(s *btf.Spec) bool {
		var t *btf.Struct
		return s.TypeByName(name, &t) == nil
	}
}

func hasFunc(name string) func(*btf.Spec) bool {
	return func(s *btf.Spec) bool {
		var t *btf.Func
		return s.TypeByName(name, &t) == nil
	}
}

var (
	hasMPTCP = kernelFeature{"Multipath TCP", "it is built without CONFIG_MPTCP", hasStruct("mptcp_subflow_context")}
	hasLinks = kernelFeature{"lasting BPF algorithms (struct_ops links)", "they came with Linux 6.4", hasStruct("bpf_struct_ops_link")}
	hasCast  = kernelFeature{"BPF reads of sibling subflows (bpf_rdonly_cast)", "they came with Linux 6.2", hasFunc("bpf_rdonly_cast")}
)

// features are what an algorithm of a kind needs of the kernel's types.
var features = map[catalog.Kind][]kernelFeature{
	catalog.CC: {
		hasMPTCP,
		{"BPF congestion control", "it is built without CONFIG_BPF_JIT or CONFIG_BPF_SYSCALL", hasStruct("bpf_struct_ops_tcp_congestion_ops")},
		hasLinks, hasCast,
	},
	catalog.Sched: {
		hasMPTCP, hasLinks, hasCast,
		{"packet schedulers by name (net.mptcp.available_schedulers)", "they came with Linux 6.10", hasFunc("mptcp_get_available_schedulers")},
	},
}

// Probe returns the features that an algorithm of this kind needs, and which of them this kernel has.
func Probe(k catalog.Kind) []Feature {
	spec, err := types.Kernel()
	if err != nil {
		return []Feature{{Name: "BTF (type information)", Mend: "it is built without CONFIG_DEBUG_INFO_BTF"}}
	}
	found := []Feature{{Name: "BTF (type information)", Present: true}}
	for _, f := range features[k] {
		got := Feature{Name: f.name, Present: f.inBTF(spec)}
		if !got.Present {
			got.Mend = f.mend
		}
		found = append(found, got)
	}
	if k == catalog.Sched {
		found = append(found, probeSchedType(!slices.ContainsFunc(found, func(f Feature) bool { return !f.Present })))
	}
	// Only the machine's own network namespace shows the setting.
	jit := Feature{Name: "BPF JIT", Present: true}
	if b, err := os.ReadFile("/proc/sys/net/core/bpf_jit_enable"); err == nil && strings.TrimSpace(string(b)) == "0" {
		jit = Feature{Name: jit.Name, Mend: "turn it on: sysctl net.core.bpf_jit_enable=1"}
	}
	return append(found, jit)
}

// probeSchedType returns the feature of the packet schedulers' struct_ops type: whose it is or, where it is
// missing, how to get it. fit says that this kernel has all else, so that it can take mpcc's module.
func probeSchedType(fit bool) Feature {
	f := Feature{Name: "BPF packet schedulers"}
	spec, err := types.Module(schedModule)
	loaded := err == nil && hasStruct(moduleSchedType)(spec)
	switch {
	case hasNativeScheds():
		f.Present, f.Origin, f.Limits = true, "the kernel's own", nativeLimits()
	case loaded && hasFunc(moduleLatest)(spec):
		f.Present, f.Origin = true, "mpcc's kernel module"
	case loaded:
		f.Mend = "the kernel module that is loaded is of an older mpcc; mpcc sched install brings this one's"
	case fit:
		f.Mend = "mpcc sched install gives it a kernel module that has them"
	default:
		f.Mend = "mpcc's kernel module adds them, but only to kernels that have all else"
	}
	return f
}

// What packet schedulers cannot do on kernels with a struct_ops type of their own, which have no functions for it: see
// SCHED_CAN_RESEND in sched_kernel.h.
var nativeLimit = map[string]string{
	"earliest":  "sends nothing again before a timeout",
	"prefer":    "does not reach the cap where all paths of a connection have one",
	"redundant": "copies at timeouts only",
}

const nativeBuffers = "send buffers do not grow"

// nativeLimits returns, in one line, the limits of all schedulers.
func nativeLimits() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(nativeLimit)) {
		all = append(all, name+" "+nativeLimit[name])
	}
	return strings.Join(append(all, nativeBuffers), "; ")
}

// limits returns what an algorithm of mpcc's cannot do on kernels with a struct_ops type of their own; "" if nothing.
func limits(e catalog.Entry) string {
	switch own := nativeLimit[e.Name]; {
	case e.Kind != catalog.Sched:
		return ""
	case own != "":
		return own + "; " + nativeBuffers
	}
	return nativeBuffers
}

// Limits returns what an algorithm of mpcc's cannot do on this kernel, in words that follow its name; "" if nothing.
func Limits(e catalog.Entry) string {
	if !hasNativeScheds() {
		return ""
	}
	return limits(e)
}

func hasNativeScheds() bool {
	spec, err := types.Kernel()
	return err == nil && nativeScheds(spec)
}

// nativeScheds reports whether the kernel's own type of packet schedulers is there, and mpcc's programs fit it: until 2025
// MPTCP's development tree had one callback, get_subflow, in place of get_send and get_retrans.
func nativeScheds(spec *btf.Spec) bool {
	var ops *btf.Struct
	return hasStruct(nativeSchedType)(spec) && spec.TypeByName("mptcp_sched_ops", &ops) == nil &&
		slices.ContainsFunc(ops.Members, func(m btf.Member) bool { return m.Name == "get_retrans" })
}

// lacks returns, in words, the features that algorithms of a kind need and this kernel lacks; "" if none.
func lacks(k catalog.Kind) string {
	var all []string
	for _, f := range Probe(k) {
		if !f.Present {
			all = append(all, fmt.Sprintf("no %s: %s", f.Name, f.Mend))
		}
	}
	return strings.Join(all, "; ")
}

// Check returns nil if an algorithm could be attached here, and attaches nothing. The error wraps
// ErrUnsupported if the kernel cannot run it; it is the same for all algorithms of a kind if the kernel lacks
// what all of them need.
func Check(e catalog.Entry) error { return check(source{Entry: e}) }

// Check is as the function of that name.
func (o *Object) Check() error { return check(source{o.Entry, o}) }

func check(from source) error {
	if without := lacks(from.Kind); without != "" {
		return unsupported("this kernel (%s) has %s", Release(), without)
	}
	if err := checkRights(); err != nil {
		return err
	}
	return verify(from, nil)
}

// Release returns the release of the running kernel, such as 6.12.107+deb13-cloud-amd64.
func Release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// checkRights returns an error if this process lacks the capabilities. It is called before anything else, so
// that an unprivileged user gets one clear line.
func checkRights() error {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, ok := strings.Cut(string(b), "\nCapEff:")
	if !ok {
		return errors.New("/proc/self/status has no CapEff")
	}
	line, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return err
	}
	has := func(c uint) bool { return caps&(1<<c) != 0 }
	admin := has(unix.CAP_SYS_ADMIN)
	if (has(unix.CAP_BPF) || admin) && (has(unix.CAP_PERFMON) || admin) && has(unix.CAP_NET_ADMIN) {
		return nil
	}
	return errors.New("no privileges: it takes root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN")
}
