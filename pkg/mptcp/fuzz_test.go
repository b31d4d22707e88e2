// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/binary"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func attr(kind int, value []byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }

// A kernel may be newer than this program, or older: what it answers is read as far as it goes.
func FuzzReplies(f *testing.F) {
	subflow := append(attr(ulpInfoName, []byte("mptcp\x00")), attr(ulpInfoMPTCP|unix.NLA_F_NESTED,
		append(attr(subflowAttrTokenLoc, u32(7)), attr(subflowAttrIDLoc, []byte{1})...))...)
	socket := append(make([]byte, binary.Size(diagMessage{})), attr(diagULPInfo, subflow)...)
	endpoint := append(make([]byte, nl.SizeofGenlmsg), attr(pmAttrAddr|unix.NLA_F_NESTED,
		append(attr(addrAttrAddr4, []byte{192, 0, 2, 1}), attr(addrAttrFlags, u32(2))...))...)
	bounds := append(make([]byte, nl.SizeofGenlmsg), attr(pmAttrSubflows, u32(8))...)
	for _, reply := range [][]byte{nil, {1, 2, 3}, {0, 0, 0, 0}, socket, endpoint, bounds} {
		f.Add(reply)
		f.Add(append(reply, 5, 0, 1, 0))
		f.Add(append(reply, 0, 0, 0, 0))
		f.Add(append(reply, 255, 255, 1, 0, 1))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		if d, attrs, err := parseDiag(reply); err == nil {
			_, _ = socketOf(d, attrs)
			connectionOf(d, attrs)
		}
		_, _ = parseEndpoint(reply)
		_, _ = parseLimits(reply)
	})
}

// What a kernel counts has a name and a number, or is an error.
func FuzzCounters(f *testing.F) {
	for _, text := range []string{
		"", "MPTcpExt:\nMPTcpExt:\n", "MPTcpExt: A B\nMPTcpExt: 1 2\n", "MPTcpExt: A B\nMPTcpExt: 1\n", "MPTcpExt: A\nMPTcpExt: -1",
		"TcpExt: A\nTcpExt: 1\nMPTcpExt: A\nMPTcpExt: 18446744073709551616\n", "MPTcpExt: A\nMPTcpExt: 1\nMPTcpExt: 2\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		counters, err := mptcpCounters(text)
		if err != nil {
			return
		}
		for name := range counters {
			if name == "" {
				t.Errorf("%v", counters)
			}
		}
	})
}
