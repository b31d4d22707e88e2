// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelLog reads what the kernel says after it was opened.
type kernelLog struct{ fd int }

func openKernelLog() (kernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return kernelLog{}, fmt.Errorf("/dev/kmsg: %w", err)
	}
	_, err = unix.Seek(fd, 0, unix.SEEK_END)
	return kernelLog{fd}, err
}

// lines returns the messages that begin with prefix, without it.
func (l kernelLog) lines(prefix string) []string {
	var lines []string
	record := make([]byte, 8192) // each read returns one
	for {
		n, err := unix.Read(l.fd, record)
		if err != nil {
			return lines
		}
		_, text, _ := strings.Cut(string(record[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		if said, ok := strings.CutPrefix(text, prefix); ok {
			lines = append(lines, said)
		}
	}
}

func (l kernelLog) close() { unix.Close(l.fd) }
