// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"
)

// A debug kernel has all modules that the VM needs: one that it lacks shows only after the kernel was built.
func TestDebugConfigHasNeededModules(t *testing.T) {
	options := strings.NewReplacer("sch_", "net_sch_", "cls_", "net_cls_", "act_", "net_act_",
		"tcp_diag", "inet_tcp_diag", "mptcp_diag", "inet_mptcp_diag", "tcp_bbr", "tcp_cong_bbr", "tcp_dctcp", "tcp_cong_dctcp")
	for _, module := range neededModules {
		line := "CONFIG_" + strings.ToUpper(options.Replace(module)) + "=y\n"
		if !strings.Contains(debugConfig, "\n"+line) {
			t.Errorf("%s: debug.config lacks %s", module, line)
		}
	}
}
