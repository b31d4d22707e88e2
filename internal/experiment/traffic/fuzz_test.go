// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"strings"
	"testing"
)

// Whatever iperf3 prints, counting ends with its output, and says why.
func FuzzIntervals(f *testing.F) {
	for _, text := range []string{
		"", "{}\n", `{"event":"interval","data":{"sum":{"bytes":1000}}}`, `{"event":"interval","data":{"sum":{"bytes":-1}}}`,
		`{"event":"interval"}`, `{"event":"error","data":"a\nb"}`, `{"event":"interval","data":[]}`, "iperf3: error", "\x00", strings.Repeat(" ", 70_000),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		flow, ready := &Flow{}, 0
		if err := flow.countIntervals(strings.NewReader(text), func() { ready++ }); err == nil {
			t.Error("iperf3 ended, and that is no error")
		}
		if ready > 1 || flow.received.Load() > 0 && ready == 0 {
			t.Errorf("ready %d times, %d bytes", ready, flow.received.Load())
		}
	})
}
