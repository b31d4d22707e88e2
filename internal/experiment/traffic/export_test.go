// SPDX-License-Identifier: Apache-2.0

package traffic

import "net"

// Receiver is the receiving end of the present connection.
func (f *Flow) Receiver() *net.TCPConn {
	client, server := f.conns()
	if f.config.Upload {
		return server
	}
	return client
}
