// SPDX-License-Identifier: Apache-2.0

// Package said checks what users are told of an error.
package said

import (
	"strings"
	"testing"
)

// InALine fails the test unless the error is one line with this text in it.
func InALine(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	} else if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}
