// SPDX-License-Identifier: Apache-2.0

package verified

// What is expected of the kernel's selftests, written before they were run for the table: of mptcp_connect.sh 68 tests of
// 68, of simult_flows.sh three times 10 of 10.
const allSelftests = "68/68 10/10 10/10 10/10"

// SelftestExceptions are the controls that are not expected to pass all, and why. simult_flows.sh wants two paths full
// within a time that leaves hardly any room, also where one has a third of the other's rate or a longer delay.
var SelftestExceptions = map[string]string{
	"lia":     "9 of 10 were measured before: its increase is small on a path of lower rate",
	"olia":    "as lia: its increase is LIA's but for alpha",
	"balia":   "as lia",
	"coupled": "all traffic goes to the path with fewer losses",
	"wvegas":  "it keeps queues short, and needs long to fill a path after a loss",
	"cdd":     "it cuts the path that is slower",
	"ecmtcp":  "it moves traffic by price, not by what is free",
	"emreno":  "as ecmtcp",
	"dts":     "9 of 10 were measured before: it leaves a path whose queue grows",
	"dtsx":    "as dts",
	"mpcubic": "8 of 10 were measured before",
}

// Expected says whether what came of the selftests is what was expected of a control: all, or all of mptcp_connect.sh.
func Expected(control, row string) bool {
	if row == allSelftests {
		return true
	}
	_, exempt := SelftestExceptions[control]
	return exempt && len(row) > 5 && row[:5] == allSelftests[:5]
}
