// SPDX-License-Identifier: Apache-2.0

package checked

import (
	"net"
	"testing"
	"time"
)

// abyss takes everything and confirms it.
type abyss struct{ net.Conn }

func (abyss) Write(p []byte) (int, error) { return len(p), nil }
func (abyss) Read(p []byte) (int, error)  { clear(p); return len(p), nil }

// A veth link moves some 40 Gbit/s: Fast content has to come much faster.
func TestFastContentIsNotTheBottleneck(t *testing.T) {
	r, err := Send(abyss{}, Transfer{Bytes: 1 << 36, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Rate() < 1e12 {
		t.Errorf("content is made at %.1f Gbit/s", r.Rate()/1e9)
	}
}

// A receiver that gets other content than was sent must say so, and so must
// one whose sender goes away.
func TestReceiveNoticesDamage(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"flipped bit": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut short":   func(b []byte) []byte { return b[:len(b)/2] },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			recorded := make(chan []byte, 1)
			go func() {
				buf := make([]byte, 13+4096+32)
				n := 0
				for n < len(buf) {
					k, err := far.Read(buf[n:])
					if err != nil {
						break
					}
					n += k
				}
				recorded <- buf[:n]
				far.Close()
			}()
			if _, err := Send(near, Transfer{Bytes: 4096, Seed: 3}); err == nil {
				t.Error("Send was content without the receiver's confirmation")
			}
			bytes := damage(<-recorded)

			a, b := net.Pipe()
			defer b.Close()
			go func() {
				_, _ = a.Write(bytes)
				_ = a.SetReadDeadline(time.Now().Add(5 * time.Second))
				_, _ = a.Read(make([]byte, 32))
				a.Close()
			}()
			if name == "cut short" {
				go func() { time.Sleep(200 * time.Millisecond); a.Close() }()
			}
			if _, err := Receive(b); err == nil {
				t.Error("Receive noticed nothing")
			}
		})
	}
}
