// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// A failure of another test means something only where this one passes.
func TestAnyKernelHasWhatTheTestsNeed(t *testing.T) {
	t.Run("mptcp", func(t *testing.T) {
		enabled, err := os.ReadFile("/proc/sys/net/mptcp/enabled")
		if err != nil || strings.TrimSpace(string(enabled)) != "1" {
			t.Errorf("net.mptcp.enabled is %q, %v", enabled, err)
		}
	})

	t.Run("queues", func(t *testing.T) {
		must(t, "ip", "link", "add", "queues0", "type", "dummy")
		t.Cleanup(func() { must(t, "ip", "link", "del", "queues0") })
		for _, queue := range []string{
			"root netem delay 1ms",
			"root tbf rate 1mbit burst 10kb latency 10ms",
			"root red limit 60000 avpkt 1000 bandwidth 10mbit",
			"root htb",
			"root fq",
			"root fq_codel",
			"clsact",
		} {
			words := strings.Fields(queue)
			must(t, "tc", append([]string{"qdisc", "add", "dev", "queues0"}, words...)...)
			must(t, "tc", "qdisc", "del", "dev", "queues0", words[0])
		}
	})

	t.Run("links", func(t *testing.T) {
		must(t, "ip", "netns", "add", "links")
		t.Cleanup(func() { must(t, "ip", "netns", "del", "links") })
		must(t, "ip", "link", "add", "links0", "type", "veth", "peer", "name", "links1", "netns", "links")
		must(t, "ip", "-n", "links", "link", "add", "ifb0", "type", "ifb")
	})

	t.Run("congestion control", func(t *testing.T) {
		const file = "/proc/sys/net/ipv4/tcp_congestion_control"
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"bbr", "dctcp", strings.TrimSpace(string(before))} {
			if err := os.WriteFile(file, []byte(name), 0); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("diagnostics", func(t *testing.T) {
		must(t, "modprobe", "mptcp_diag")
		must(t, "modprobe", "tcp_diag")
		must(t, "ss", "-tiM")
	})

	t.Run("struct_ops links", func(t *testing.T) {
		kernel, err := btf.LoadKernelSpec()
		if err != nil {
			t.Fatal(err)
		}
		// The type came with the links, in Linux 6.4.
		var link *btf.Struct
		err = kernel.TypeByName("bpf_struct_ops_link", &link)
		if os.Getenv("MPCC_KERNEL") == "6.1" {
			if !errors.Is(err, btf.ErrNotFound) {
				t.Errorf("kernel 6.1 stands for kernels without struct_ops links, but looking for them gave %v", err)
			}
		} else if err != nil {
			t.Error(err)
		}
	})
}

// must runs a command; its complaint is the test's.
func must(t *testing.T, name string, arg ...string) {
	t.Helper()
	if out, err := exec.Command(name, arg...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(arg, " "), err, out)
	}
}
