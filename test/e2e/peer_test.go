// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/test/peer"
)

// A peer that is not Linux, with a packet scheduler of mpcc choosing on the Linux side; package peer tests it without one.
func TestOneKernelForeignPeer(t *testing.T) {
	load(t, "lia", "sched/minrtt")
	must(t, "modprobe", "tun")
	peer.RunScheduled(t, "lia", func(h *lab.Host) error { return h.Sysctl("net.mptcp.scheduler", "minrtt") })
}
