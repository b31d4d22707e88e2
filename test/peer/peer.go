// SPDX-License-Identifier: Apache-2.0

// Package peer is the far end of MPTCP connections (RFC 8684, version 1), made by hand packet by packet, for tests of what
// Linux does with a peer that is not Linux. It knows just enough of TCP for a wire that loses nothing.
package peer

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// The wire's addresses: one of the host, two of the peer.
var (
	Host = netip.MustParseAddr("10.9.0.1")
	Addr = [2]netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.1.2")}
)

// patience is how long the host may take to say something: no test waits so long unless it fails.
const patience = 20 * time.Second

// Option is what an MPTCP option has after its kind and length. Its first four bits are its subtype.
type Option []byte

// The subtypes.
const (
	Capable   = 0
	Join      = 1
	DSS       = 2
	AddAddr   = 3
	RemAddr   = 4
	Prio      = 5
	Fail      = 6
	FastClose = 7
	Reset     = 8
)

// Segment is a TCP segment with its MPTCP options.
type Segment struct {
	From, To                netip.AddrPort
	Seq, Ack                uint32
	SYN, ACK, FIN, RST, PSH bool
	Options                 []Option
	Payload                 []byte
}

// Option returns the first option of a subtype, nil if there is none.
func (s *Segment) Option(subtype byte) Option {
	for _, o := range s.Options {
		if o[0]>>4 == subtype {
			return o
		}
	}
	return nil
}

func (s *Segment) String() string {
	flags := ""
	for name, set := range map[string]bool{"S": s.SYN, "F": s.FIN, "R": s.RST} {
		if set {
			flags += name
		}
	}
	text := fmt.Sprintf("%v > %v [%s] seq %d ack %d, %d bytes", s.From, s.To, flags, s.Seq, s.Ack, len(s.Payload))
	for _, o := range s.Options {
		text += fmt.Sprintf(" <%d: %x>", o[0]>>4, []byte(o))
	}
	return text
}

// Wire is a link to a host whose far end is the test.
type Wire struct {
	t       testing.TB
	tun     *os.File
	arrived chan *Segment
	Log     []string // all segments both ways, for a test that fails
}

// NewWire gives a host a link to the test, until the test ends.
func NewWire(t testing.TB, h *lab.Host) *Wire {
	t.Helper()
	w := &Wire{t: t, arrived: make(chan *Segment, 1024)}
	const device = "wire0"
	if err := h.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("/dev/net/tun: %w", err)
		}
		w.tun = os.NewFile(uintptr(fd), "tun")
		request, err := unix.NewIfreq(device)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}); err != nil {
		t.Fatal(err)
	}
	// A file that was opened without it takes part in Go's polling only after TUNSETIFF.
	fd, err := unix.Dup(int(w.tun.Fd()))
	if err == nil {
		err = errors.Join(unix.SetNonblock(fd, true), w.tun.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.tun = os.NewFile(uintptr(fd), "tun")
	for _, args := range [][]string{{"address", "add", Host.String() + "/16", "dev", device}, {"link", "set", device, "up"}} {
		if out, err := exec.Command("ip", append([]string{"-n", h.Namespace()}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1<<16)
		for {
			n, err := w.tun.Read(buf)
			if err != nil {
				return // closed
			}
			if s := parse(bytes.Clone(buf[:n])); s != nil {
				w.arrived <- s
			}
		}
	}()
	t.Cleanup(func() {
		w.tun.Close()
		for {
			select {
			case <-w.arrived: // the reader may wait for room
			case <-ended:
				if t.Failed() {
					for _, line := range w.Log {
						t.Log(line)
					}
				}
				return
			}
		}
	})
	return w
}

// parse returns nil for what is no TCP.
func parse(raw []byte) *Segment {
	packet := gopacket.NewPacket(raw, layers.LayerTypeIPv4, gopacket.NoCopy)
	ip, ok := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	if !ok {
		return nil
	}
	if ip.Protocol != layers.IPProtocolTCP {
		return nil
	}
	// Not as a layer of the packet: the package knows MPTCP's options too, and refuses the whole header for one that it
	// holds for wrong.
	tcp := &layers.TCP{}
	_ = tcp.DecodeFromBytes(ip.Payload, gopacket.NilDecodeFeedback)
	address := func(ip []byte, port layers.TCPPort) netip.AddrPort {
		a, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(a.Unmap(), uint16(port))
	}
	s := &Segment{
		From: address(ip.SrcIP.To4(), tcp.SrcPort), To: address(ip.DstIP.To4(), tcp.DstPort), Seq: tcp.Seq, Ack: tcp.Ack,
		SYN: tcp.SYN, ACK: tcp.ACK, FIN: tcp.FIN, RST: tcp.RST, PSH: tcp.PSH, Payload: tcp.Payload,
	}
	for _, o := range tcp.Options {
		if o.OptionType == layers.TCPOptionKindMultipathTCP && len(o.OptionData) > 0 {
			s.Options = append(s.Options, Option(o.OptionData))
		}
	}
	return s
}

// Send sends a segment to the host.
func (w *Wire) Send(s *Segment) {
	w.t.Helper()
	w.Log = append(w.Log, "sent "+s.String())
	ip := &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: s.From.Addr().AsSlice(), DstIP: s.To.Addr().AsSlice(),
	}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(s.From.Port()), DstPort: layers.TCPPort(s.To.Port()), Seq: s.Seq, Ack: s.Ack, Window: 65535,
		SYN: s.SYN, ACK: s.ACK, FIN: s.FIN, RST: s.RST, PSH: s.PSH,
	}
	if s.SYN {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindMSS, OptionData: []byte{0x05, 0xb4}}) // 1460
	}
	for _, o := range s.Options {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindMultipathTCP, OptionData: o})
	}
	buf := gopacket.NewSerializeBuffer()
	err := tcp.SetNetworkLayerForChecksum(ip)
	if err == nil {
		err = gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, tcp, gopacket.Payload(s.Payload))
	}
	if err == nil {
		_, err = w.tun.Write(buf.Bytes())
	}
	if err != nil {
		w.t.Fatalf("send %v: %v", s, err)
	}
}

// next returns the next segment of the host's, nil when there is none for as long as that.
func (w *Wire) next(within time.Duration) *Segment {
	select {
	case s := <-w.arrived:
		w.Log = append(w.Log, "got  "+s.String())
		return s
	case <-time.After(within):
		return nil
	}
}

// Await passes over segments until one is as wanted.
func (w *Wire) Await(what string, wanted func(*Segment) bool) *Segment {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		s := w.next(time.Until(end))
		if s == nil {
			w.t.Fatalf("the host sends no %s within %v", what, patience)
		}
		if wanted(s) {
			return s
		}
	}
}

// Key is one of the two of a connection.
type Key uint64

func (k Key) bytes() []byte          { return binary.BigEndian.AppendUint64(nil, uint64(k)) }
func (k Key) sum() [sha256.Size]byte { return sha256.Sum256(k.bytes()) }
func (k Key) token() uint32          { sum := k.sum(); return binary.BigEndian.Uint32(sum[:]) }
func (k Key) first() uint64          { sum := k.sum(); return binary.BigEndian.Uint64(sum[24:]) + 1 } // of data
func authenticate(a, b Key, message []byte) []byte {
	h := hmac.New(sha256.New, append(a.bytes(), b.bytes()...))
	h.Write(message)
	return h.Sum(nil)
}
