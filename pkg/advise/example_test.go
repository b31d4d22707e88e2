// SPDX-License-Identifier: Apache-2.0

package advise_test

import (
	"fmt"

	"github.com/mpcc/mpcc/pkg/advise"
)

func ExampleJudge() {
	r := advise.Judge(&advise.Evidence{MPTCP: true, Ways: []advise.Way{{Interface: "eth0", Kind: advise.Wired}}})
	fmt.Println(r.Row, r.Load == "")
	// Output: line true
}
