// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// noNetns is an inode number that no namespace has.
const noNetns = 1

// One steer at a time has the file, which holds the flags to clear, and is removed when none is left.
func TestRecord(t *testing.T) {
	path := filepath.Join(stateDir, "1.json")
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	open := func() *record {
		t.Helper()
		r, err := openRecord(t.Context(), noNetns)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	expect := func(r *record, want []held) {
		t.Helper()
		if got, err := r.read(); err != nil || !slices.Equal(got, want) {
			t.Errorf("read %+v, %v, want %+v", got, err, want)
		}
	}
	endpoint := held{lever{Endpoint: 3, Local: netip.MustParseAddrPort("10.0.0.1:0")}, "wlan0"}
	single := held{lever{
		Token: 0xfedcba98, Local: netip.MustParseAddrPort("[2001:db8::1]:1234"), Remote: netip.MustParseAddrPort("[2001:db8::2]:80"),
	}, "wwan0"}

	r := open()
	expect(r, nil)
	for _, all := range [][]held{{endpoint, single}, {single}, {}, {endpoint}} {
		if err := r.write(all); err != nil {
			t.Fatal(err)
		}
		expect(r, all)
	}
	if _, err := openRecord(t.Context(), noNetns); err == nil || !strings.Contains(err.Error(), "another mpcc steer is at work") {
		t.Errorf("a second one opens it: %v", err)
	}
	if err := r.close(false); err != nil {
		t.Fatal(err)
	}
	r = open()
	expect(r, []held{endpoint})
	if err := r.close(true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}

	r = open()
	if _, err := r.lock.File().WriteString("[{"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(); err == nil || !strings.Contains(err.Error(), path+", the note of the backup flags to clear, is damaged") {
		t.Errorf("a damaged one: %v", err)
	}
	if err := r.close(true); err != nil {
		t.Fatal(err)
	}
}
