// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"flag"
	"os"
	"testing"

	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/pages"
)

var mend = flag.Bool("mend", false, "write what commands print into the pages that show something else")

// The commands of the documentation do what it says.
func TestHostPages(t *testing.T) {
	loaded.Turn(t)
	pages.Run(t, os.Getenv("MPCC_PAGES"), os.Getenv("MPCC_BIN"), *mend, func(pages.Page) bool { return true })
}

// So do those that the machine of TestHostPages may have no kernel for.
func TestOwnTimePages(t *testing.T) {
	untouched(t)
	withSchedulers(t)
	pages.Run(t, os.Getenv("MPCC_PAGES"), os.Getenv("MPCC_BIN"), *mend, pages.Page.NeedsKernel)
}
