// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// receivedInterval is the time between two looks at what all TCP sockets of a namespace have received.
const receivedInterval = time.Second

// received is what the TCP sockets of a namespace have received. The maps do not tell of a socket that only
// receives: nothing calls its congestion control.
type received struct {
	at    time.Time
	bytes map[mptcp.Ends]uint64
}

// of returns what a subflow has received, as of the last look.
func (r *received) of(f telemetry.Subflow) uint64 {
	return max(f.BytesReceived, r.bytes[mptcp.Ends{Local: f.Local, Remote: f.Remote}])
}

// look brings the numbers up to date, if it is time to.
func (r *received) look(now time.Time) (err error) {
	if now.Sub(r.at) < receivedInterval {
		return nil
	}
	r.at = now
	r.bytes, err = mptcp.Received()
	return err
}
