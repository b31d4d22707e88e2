// SPDX-License-Identifier: Apache-2.0

package report

import (
	"reflect"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/test/keydoc"
)

func TestFormatDoc(t *testing.T) {
	elsewhere := []reflect.Type{reflect.TypeFor[result.Scenario](), reflect.TypeFor[result.Select]()}
	keydoc.Check(t, "../../../docs/report-format.md", reflect.TypeFor[Report](), elsewhere)
}
