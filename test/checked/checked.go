// SPDX-License-Identifier: Apache-2.0

// Package checked moves content through a connection and makes sure that it arrives unchanged, for tests.
package checked

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// Transfer is what a sender moves.
type Transfer struct {
	Bytes int64  // of content
	Seed  uint64 // of the pseudo-random content; the same seed, the same bytes
	// Fast repeats one block and leaves the checksum out: otherwise making the
	// content may take longer than sending it.
	Fast bool
}

// Result is what was moved, also when an error cut it short.
type Result struct {
	Bytes int64 // of content
	// Duration is, for the sender, from the first byte until the receiver has
	// confirmed the last; for the receiver, from the announcement of the
	// content to its last byte.
	Duration time.Duration
	SHA256   [sha256.Size]byte // of the content, equal on both sides; zero if Fast
}

// Rate is the goodput in bit/s.
func (r Result) Rate() float64 { return float64(r.Bytes) * 8 / r.Duration.Seconds() }

// A transfer on the wire: the header, the content, its SHA-256 by the sender;
// and back, the SHA-256 by the receiver.
type header struct {
	Magic [4]byte
	Fast  bool
	Bytes int64
}

var magic = [4]byte{'m', 'p', 'c', 'c'}

const blockSize = 1 << 20

// sum is the checksum of the content; with Fast nothing is summed.
func sum(fast bool) hash.Hash {
	if fast {
		return nil
	}
	return sha256.New()
}

// Send moves content to a Receive at the other end of conn, and returns when
// all of it has arrived there unchanged.
func Send(conn net.Conn, t Transfer) (Result, error) {
	var r Result
	block := make([]byte, blockSize)
	random := rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), t.Seed)))
	_, _ = random.Read(block) // never fails
	digest := sum(t.Fast)

	start := time.Now()
	err := binary.Write(conn, binary.BigEndian, header{Magic: magic, Fast: t.Fast, Bytes: t.Bytes})
	for err == nil && r.Bytes < t.Bytes {
		part := block[:min(blockSize, t.Bytes-r.Bytes)]
		var n int
		n, err = conn.Write(part)
		r.Bytes += int64(n)
		if digest != nil {
			digest.Write(part)
			_, _ = random.Read(block)
		}
	}
	if digest != nil {
		digest.Sum(r.SHA256[:0])
	}
	if err == nil {
		_, err = conn.Write(r.SHA256[:])
	}
	var theirs [sha256.Size]byte
	if err == nil {
		_, err = io.ReadFull(conn, theirs[:])
	}
	r.Duration = time.Since(start)
	if err == nil && theirs != r.SHA256 {
		err = fmt.Errorf("the receiver's SHA-256 is %x, the sender's %x", theirs, r.SHA256)
	}
	if err != nil {
		err = fmt.Errorf("send, after %d of %d bytes: %w", r.Bytes, t.Bytes, err)
	}
	return r, err
}

// Receive takes in the content of one Send at the other end of conn, and
// checks it.
func Receive(conn net.Conn) (Result, error) {
	var r Result
	var h header
	if err := binary.Read(conn, binary.BigEndian, &h); err != nil {
		return r, fmt.Errorf("receive: %w", err)
	}
	if h.Magic != magic || h.Bytes < 0 {
		return r, errors.New("receive: the other end does not send by checked.Send")
	}
	block := make([]byte, blockSize)
	digest := sum(h.Fast)

	start := time.Now()
	var err error
	for err == nil && r.Bytes < h.Bytes {
		var n int
		n, err = conn.Read(block[:min(blockSize, h.Bytes-r.Bytes)])
		r.Bytes += int64(n)
		if digest != nil {
			digest.Write(block[:n])
		}
	}
	r.Duration = time.Since(start)
	if digest != nil {
		digest.Sum(r.SHA256[:0])
	}
	var theirs [sha256.Size]byte
	if err == nil {
		_, err = io.ReadFull(conn, theirs[:])
	}
	if err == nil {
		_, err = conn.Write(r.SHA256[:])
	}
	if err == nil && theirs != r.SHA256 {
		err = fmt.Errorf("the sender's SHA-256 is %x, the receiver's %x", theirs, r.SHA256)
	}
	if err != nil {
		err = fmt.Errorf("receive, after %d of %d bytes: %w", r.Bytes, h.Bytes, err)
	}
	return r, err
}
