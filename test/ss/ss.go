// SPDX-License-Identifier: Apache-2.0

// Package ss reads what the program ss shows of the sockets in a lab. Tests compare with it what this project
// reads by itself.
package ss

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// Socket is one connection as ss shows it: a TCP socket, which may be an MPTCP
// subflow, or an MPTCP connection. Numbers that ss leaves out are 0.
type Socket struct {
	Proto         string // "tcp" or "mptcp"
	State         string // "ESTAB", "LISTEN", …
	Local, Remote netip.AddrPort

	CC            string // congestion control; "" for an MPTCP connection
	CwndPkts      int
	SSThreshPkts  int           // 0 before the first loss
	RTT, MinRTT   time.Duration // smoothed RTT, and the smallest
	BytesSent     uint64        // retransmissions included
	BytesRetrans  uint64
	BytesAcked    uint64
	BytesReceived uint64

	// Token is this side's token of the MPTCP connection, the same for the
	// connection and for its subflows; 0 for plain TCP.
	Token             uint32
	LocalID, RemoteID uint8  // MPTCP address ids of a subflow
	Flags             string // of a subflow, in ss's letters: b, B for backup

	// Fields has all of ss's "name:value" words.
	Fields map[string]string
}

// Sockets returns a host's TCP sockets and MPTCP connections, except those
// that only listen.
func Sockets(ctx context.Context, h *lab.Host) ([]Socket, error) {
	out, err := h.Command(ctx, "ss", "-tiMnH").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: ss: %w: %s", h.Name(), err, out)
	}
	return parse(string(out))
}

// parse reads what "ss -tiMnH" or, with TCP alone, "ss -tinH" prints.
func parse(text string) ([]Socket, error) {
	var sockets []Socket
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var err error
		if line[0] != ' ' && line[0] != '\t' {
			var s Socket
			s, err = parseSocket(words)
			sockets = append(sockets, s)
		} else if len(sockets) == 0 {
			err = fmt.Errorf("no socket before its details")
		} else {
			err = sockets[len(sockets)-1].parseDetails(words)
		}
		if err != nil {
			return nil, fmt.Errorf("ss printed %q: %w", strings.TrimSpace(line), err)
		}
	}
	return sockets, nil
}

// parseSocket reads "[PROTO] STATE RECVQ SENDQ LOCAL REMOTE".
func parseSocket(words []string) (Socket, error) {
	s := Socket{Proto: "tcp", Fields: map[string]string{}}
	if words[0] == "tcp" || words[0] == "mptcp" {
		s.Proto, words = words[0], words[1:]
	}
	if len(words) < 5 {
		return s, fmt.Errorf("%d columns where 5 are needed", len(words))
	}
	s.State = words[0]
	var err error
	if s.Local, err = parseAddr(words[3]); err != nil {
		return s, err
	}
	s.Remote, err = parseAddr(words[4])
	return s, err
}

// parseAddr reads ADDR[%DEV]:PORT. Either may be *, for any.
func parseAddr(word string) (netip.AddrPort, error) {
	i := strings.LastIndexByte(word, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is not ADDRESS:PORT", word)
	}
	host, _, _ := strings.Cut(word[:i], "%")
	addr := netip.IPv4Unspecified()
	if host = strings.Trim(host, "[]"); host != "*" {
		var err error
		if addr, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, err
		}
	}
	var port uint64
	if word[i+1:] != "*" {
		var err error
		if port, err = strconv.ParseUint(word[i+1:], 10, 16); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}

// optionWords are those that ss prints before the congestion control, without a value.
var optionWords = []string{"ts", "sack", "ecn", "ecnseen", "fastopen"}

func (s *Socket) parseDetails(words []string) error {
	bare := true // still before the first name:value word
	for _, word := range words {
		name, value, ok := strings.Cut(word, ":")
		if !ok {
			if bare && s.Proto == "tcp" && !slices.Contains(optionWords, word) {
				s.CC = word
			}
			continue
		}
		bare = false
		s.Fields[name] = value
		if err := s.parseField(name, value); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

func (s *Socket) parseField(name, value string) (err error) {
	switch name {
	case "cwnd":
		s.CwndPkts, err = strconv.Atoi(value)
	case "ssthresh":
		s.SSThreshPkts, err = strconv.Atoi(value)
	case "rtt":
		rtt, _, _ := strings.Cut(value, "/")
		s.RTT, err = milliseconds(rtt)
	case "minrtt":
		s.MinRTT, err = milliseconds(value)
	case "bytes_sent":
		s.BytesSent, err = strconv.ParseUint(value, 10, 64)
	case "bytes_retrans":
		s.BytesRetrans, err = strconv.ParseUint(value, 10, 64)
	case "bytes_acked":
		s.BytesAcked, err = strconv.ParseUint(value, 10, 64)
	case "bytes_received":
		s.BytesReceived, err = strconv.ParseUint(value, 10, 64)
	case "flags":
		s.Flags = value
	case "token":
		err = s.parseToken(value)
	}
	return err
}

func milliseconds(value string) (time.Duration, error) {
	ms, err := strconv.ParseFloat(value, 64)
	return time.Duration(math.Round(ms * float64(time.Millisecond))), err
}

// parseToken reads a connection's TOKEN, or a subflow's
// REMOTE(id:REMOTEID)/LOCAL(id:LOCALID); tokens are hexadecimal.
func (s *Socket) parseToken(value string) error {
	if s.Proto == "mptcp" {
		token, err := strconv.ParseUint(value, 16, 32)
		s.Token = uint32(token)
		return err
	}
	remote, local, ok := strings.Cut(value, "/")
	if !ok {
		return fmt.Errorf("no remote and local token")
	}
	var err error
	if _, s.RemoteID, err = tokenAndID(remote); err != nil {
		return err
	}
	s.Token, s.LocalID, err = tokenAndID(local)
	return err
}

func tokenAndID(text string) (uint32, uint8, error) {
	text, idText, ok := strings.Cut(strings.TrimSuffix(text, ")"), "(id:")
	if !ok {
		return 0, 0, fmt.Errorf("no address id")
	}
	token, err := strconv.ParseUint(text, 16, 32)
	if err != nil {
		return 0, 0, err
	}
	id, err := strconv.ParseUint(idText, 10, 8)
	return uint32(token), uint8(id), err
}
