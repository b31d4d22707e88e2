// SPDX-License-Identifier: Apache-2.0

package ss

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What the files in testdata say; the values were read off them.
var (
	first = Socket{
		Proto: "tcp", State: "ESTAB",
		Local:  netip.MustParseAddrPort("10.0.2.1:51107"),
		Remote: netip.MustParseAddrPort("10.0.2.2:5000"),
		CC:     "bbr", CwndPkts: 400, SSThreshPkts: 136,
		RTT: 93 * time.Microsecond, MinRTT: 4 * time.Microsecond,
		BytesSent: 46584560, BytesAcked: 46584561,
		Token: 0xd93dcb52, LocalID: 1, RemoteID: 1, Flags: "Jjec",
	}
	second = Socket{
		Proto: "tcp", State: "ESTAB",
		Local:  netip.MustParseAddrPort("10.0.1.1:52396"),
		Remote: netip.MustParseAddrPort("10.0.1.2:5000"),
		CC:     "bbr", CwndPkts: 238, SSThreshPkts: 294,
		RTT: 45 * time.Microsecond, MinRTT: 3 * time.Microsecond,
		BytesSent: 838386688, BytesAcked: 838282513, BytesRetrans: 38640,
		Token: 0xd93dcb52, Flags: "Mmec",
	}
	connection = Socket{
		Proto: "mptcp", State: "ESTAB", Local: second.Local, Remote: second.Remote,
		Token: 0xd93dcb52,
	}
	newerFirst = Socket{
		Proto: "tcp", State: "ESTAB",
		Local:  netip.MustParseAddrPort("10.0.1.1:50804"),
		Remote: netip.MustParseAddrPort("10.0.1.2:44311"),
		CC:     "cubic", CwndPkts: 96, SSThreshPkts: 72,
		RTT: 47245 * time.Microsecond, MinRTT: 21606 * time.Microsecond,
		BytesSent: 6006821, BytesAcked: 5986886, BytesRetrans: 19936,
		Token: 0x1b215d26, Flags: "Mmec",
	}
	newerSecond = Socket{
		Proto: "tcp", State: "ESTAB",
		Local:  netip.MustParseAddrPort("10.0.2.1:51965"),
		Remote: netip.MustParseAddrPort("10.0.2.2:44311"),
		CC:     "cubic", CwndPkts: 100, SSThreshPkts: 64,
		RTT: 142048 * time.Microsecond, MinRTT: 41709 * time.Microsecond,
		BytesSent: 5558856, BytesAcked: 5547465, BytesRetrans: 11392,
		Token: 0x1b215d26, LocalID: 1, RemoteID: 1, Flags: "Jjec",
	}
	newerConnection = Socket{
		Proto: "mptcp", State: "ESTAB", Local: newerFirst.Local, Remote: newerFirst.Remote,
		BytesSent: 12582925, BytesAcked: 12090725, Token: 0x1b215d26,
	}
	plain = []Socket{ // without -M: TCP alone, and no protocol column
		{
			Proto: "tcp", State: "ESTAB", Local: first.Local, Remote: first.Remote,
			CC: "bbr", CwndPkts: 482, SSThreshPkts: 136,
			RTT: 181 * time.Microsecond, MinRTT: 4 * time.Microsecond,
			BytesSent: 48287424, BytesAcked: 48154929,
			Token: 0xd93dcb52, LocalID: 1, RemoteID: 1, Flags: "Jjec",
		},
		{
			Proto: "tcp", State: "ESTAB", Local: second.Local, Remote: second.Remote,
			CC: "bbr", CwndPkts: 746, SSThreshPkts: 294,
			RTT: 137 * time.Microsecond, MinRTT: 3 * time.Microsecond,
			BytesSent: 843302896, BytesAcked: 843133217, BytesRetrans: 38640,
			Token: 0xd93dcb52, Flags: "Mmec",
		},
	}
)

// The files are what ss of that iproute2 release printed.
func TestParse(t *testing.T) {
	for file, want := range map[string][]Socket{
		"ss-6.1-tiM.txt":  {first, second, connection},
		"ss-6.1-ti.txt":   plain,
		"ss-6.15-tiM.txt": {newerFirst, newerSecond, newerConnection},
	} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		diff := cmp.Diff(want, got,
			cmpopts.IgnoreFields(Socket{}, "Fields"), cmpopts.EquateComparable(netip.AddrPort{}))
		if diff != "" {
			t.Errorf("%s (- want, + got):\n%s", file, diff)
		}
		if got[0].Fields["advmss"] != "1448" {
			t.Errorf("%s: fields %v", file, got[0].Fields)
		}
	}
}

func TestParseOtherLines(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Socket
	}{
		"listening": {
			"tcp   LISTEN 0      128     0.0.0.0:5000  0.0.0.0:*\n\t bbr cwnd:10 tcp-ulp-mptcp\n",
			Socket{Proto: "tcp", State: "LISTEN", Local: netip.MustParseAddrPort("0.0.0.0:5000"),
				Remote: netip.MustParseAddrPort("0.0.0.0:0"), CC: "bbr", CwndPkts: 10},
		},
		"no protocol column, mapped addresses, options before the name": {
			"ESTAB 0 0 [::ffff:10.0.1.2]:5000 [::ffff:10.0.1.1]:4000\n\t ts sack ecn ecnseen cubic wscale:7,7 rto:204 rtt:20.25/1.5 cwnd:10\n",
			Socket{Proto: "tcp", State: "ESTAB", Local: netip.MustParseAddrPort("10.0.1.2:5000"),
				Remote: netip.MustParseAddrPort("10.0.1.1:4000"), CC: "cubic", CwndPkts: 10, RTT: 20250 * time.Microsecond},
		},
		"bound to a device, no details": {
			"tcp SYN-SENT 0 1 10.0.1.2%eth0:5000 10.0.1.1:4000\n",
			Socket{Proto: "tcp", State: "SYN-SENT", Local: netip.MustParseAddrPort("10.0.1.2:5000"),
				Remote: netip.MustParseAddrPort("10.0.1.1:4000")},
		},
	} {
		got, err := parse(c.text)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
			continue
		}
		diff := cmp.Diff(c.want, got[0],
			cmpopts.IgnoreFields(Socket{}, "Fields"), cmpopts.EquateComparable(netip.AddrPort{}))
		if diff != "" {
			t.Errorf("%s (- want, + got):\n%s", name, diff)
		}
	}

	for text, want := range map[string]string{
		"tcp ESTAB 0 0\n":                                   "columns",
		"tcp ESTAB 0 0 10.0.1.2:x 10.0.1.1:4000\n":          "invalid syntax",
		"\t cubic cwnd:10\n":                                "no socket before its details",
		"ESTAB 0 0 10.0.1.2:1 10.0.1.1:2\n\t reno cwnd:x\n": "cwnd:x",
		"ESTAB 0 0 10.0.1.2:1 10.0.1.1:2\n\t token:12\n":    "no remote and local token",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if got, err := parse(""); err != nil || len(got) != 0 {
		t.Errorf("nothing gave %v, %v", got, err)
	}
}
