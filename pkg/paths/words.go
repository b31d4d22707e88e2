// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/internal/cgroups"
)

// The kinds of bpf/include/mpcc/path_rules.h.
const (
	byInterface = 1 + iota
	byLocalID
	byRemoteID
	byLocal
	byRemote
)

const (
	onlyAll = iota
	onlyCgroup
	onlyPort
	onlyMark
)

// Path names subflows by something that this host sees of them. ParsePath makes one.
type Path struct {
	kind   uint8 // by…
	name   string
	prefix netip.Prefix
	id     uint8
}

// prefixKinds and idKinds are the words for the kinds that have a prefix, or an id.
var (
	prefixKinds = map[string]uint8{"local": byLocal, "remote": byRemote}
	idKinds     = map[string]uint8{"local-id": byLocalID, "remote-id": byRemoteID}
)

// ParsePath reads the name of an interface that they leave through, such as lte0; or local=ADDRESS[/BITS],
// remote=ADDRESS[/BITS], or the ids of these addresses (as ss -M shows them), local-id=N or remote-id=N.
func ParsePath(text string) (Path, error) {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		if text == "" || len(text) > 15 || strings.ContainsAny(text, "/: \t\n") {
			return Path{}, fmt.Errorf("%q is not the name of an interface", text)
		}
		return Path{kind: byInterface, name: text}, nil
	}
	if kind, ok := prefixKinds[key]; ok {
		prefix, err := parsePrefix(value)
		if err != nil {
			return Path{}, fmt.Errorf("%s: give an address such as 192.0.2.1, or a prefix such as 192.0.2.0/24", text)
		}
		return Path{kind: kind, prefix: prefix}, nil
	}
	if kind, ok := idKinds[key]; ok {
		id, err := strconv.ParseUint(value, 10, 8)
		if err != nil {
			return Path{}, fmt.Errorf("%s: give an address id, 0 to 255", text)
		}
		return Path{kind: kind, id: uint8(id)}, nil
	}
	return Path{}, fmt.Errorf("%s: name a path by its interface, or by local=ADDRESS, remote=ADDRESS, local-id=N or remote-id=N", text)
}

func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		return netip.PrefixFrom(addr.Unmap().WithZone(""), addr.Unmap().BitLen()), err
	}
	p, err := netip.ParsePrefix(text)
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), err
}

func (p Path) String() string {
	for word, kind := range prefixKinds {
		switch {
		case p.kind == kind && p.prefix.IsSingleIP():
			return fmt.Sprintf("%s=%v", word, p.prefix.Addr())
		case p.kind == kind:
			return fmt.Sprintf("%s=%v", word, p.prefix)
		}
	}
	for word, kind := range idKinds {
		if p.kind == kind {
			return fmt.Sprintf("%s=%d", word, p.id)
		}
	}
	return p.name
}

// MarshalText is String.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePath.
func (p *Path) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePath(string(text))
	return err
}

func (p Path) toMap(r *obj.MapsMpccPathRule) {
	r.Kind, r.AddressId = p.kind, p.id
	copy(r.Ifname[:], p.name)
	if !p.prefix.IsValid() {
		return
	}
	bits, address := p.prefix.Bits(), p.prefix.Addr().As16()
	if p.prefix.Addr().Is4() {
		bits += 96 // it is mapped into IPv6
	}
	var mask [16]byte
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	r.Prefix = uint8(bits)
	for i := range r.Address {
		r.Address[i] = binary.NativeEndian.Uint32(address[4*i:])
		r.Mask[i] = binary.NativeEndian.Uint32(mask[4*i:])
	}
}

func pathOf(r obj.MapsMpccPathRule) Path {
	name, _, _ := strings.Cut(string(r.Ifname[:]), "\x00")
	p := Path{kind: r.Kind, name: name, id: r.AddressId}
	if p.kind != byLocal && p.kind != byRemote {
		return p
	}
	var address [16]byte
	for i, word := range r.Address {
		binary.NativeEndian.PutUint32(address[4*i:], word)
	}
	addr, bits := netip.AddrFrom16(address), int(r.Prefix)
	if addr.Is4In6() && bits >= 96 {
		addr, bits = addr.Unmap(), bits-96
	}
	p.prefix = netip.PrefixFrom(addr, bits)
	return p
}

// Only tells which connections a rule is for: by one of its fields. The zero value is for all.
type Only struct {
	Mark   uint32 // SO_MARK
	Port   uint16 // at either end
	Cgroup string // below the root of cgroup v2; the sockets' own, not those below it
}

// ParseOnly reads mark=N, port=N or cgroup=PATH; "" is all.
func ParseOnly(text string) (o Only, err error) {
	key, value, _ := strings.Cut(text, "=")
	switch key {
	case "":
		return o, nil
	case "mark":
		n, err := strconv.ParseUint(value, 0, 32)
		if err != nil || n == 0 {
			return o, fmt.Errorf("%s: give a mark, 1 to %d, or 0x1 to 0xffffffff", text, uint32(math.MaxUint32))
		}
		o.Mark = uint32(n)
	case "port":
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 {
			return o, fmt.Errorf("%s: give a port, 1 to 65535", text)
		}
		o.Port = uint16(n)
	case "cgroup":
		o.Cgroup = strings.Trim(filepath.Clean("/"+value), "/")
		if o.Cgroup == "" {
			return o, fmt.Errorf("%s: give a cgroup such as system.slice/backup.service", text)
		}
	default:
		return o, fmt.Errorf("%s: give mark=N, port=N or cgroup=PATH", text)
	}
	return o, nil
}

func (o Only) String() string {
	switch {
	case o.Mark != 0:
		return fmt.Sprintf("mark=%d", o.Mark)
	case o.Port != 0:
		return fmt.Sprintf("port=%d", o.Port)
	case o.Cgroup != "":
		return "cgroup=" + o.Cgroup
	}
	return ""
}

// IsZero is for YAML, where omitempty leaves it out.
func (o Only) IsZero() bool { return o == Only{} }

// MarshalText is String.
func (o Only) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is ParseOnly.
func (o *Only) UnmarshalText(text []byte) (err error) {
	*o, err = ParseOnly(string(text))
	return err
}

// check returns an error if the cgroup is not there.
func (o Only) check() error {
	if o.Cgroup == "" {
		return nil
	}
	_, err := cgroups.Find(o.Cgroup)
	return err
}

func (o Only) toMap(r *obj.MapsMpccPathRule) {
	switch {
	case o.Mark != 0:
		r.Only, r.Mark = onlyMark, o.Mark
	case o.Port != 0:
		r.Only, r.Port = onlyPort, o.Port
	case o.Cgroup != "":
		r.Only = onlyCgroup
		if g, err := cgroups.Find(o.Cgroup); err == nil {
			r.Cgroup = g.ID
		}
	}
}

func onlyOf(r obj.MapsMpccPathRule) Only {
	switch r.Only {
	case onlyMark:
		return Only{Mark: r.Mark}
	case onlyPort:
		return Only{Port: r.Port}
	case onlyCgroup:
		return Only{Cgroup: cgroupOf(r.Cgroup)}
	}
	return Only{}
}

// cgroupOf returns the cgroup with this id; "id N" if it has gone.
func cgroupOf(id uint64) string {
	groups, _ := cgroups.All()
	return cmp.Or(groups[id].Path, fmt.Sprintf("id %d", id))
}

// Spill tells whether a path takes new data while better ranks are alive. The zero value never does.
type Spill struct {
	On    bool
	Above time.Duration // once the queue of each better path has reached it; 0: once they are full
}

// ParseSpill reads never, or a time such as 100ms.
func ParseSpill(text string) (s Spill, err error) {
	if text == "never" {
		return s, nil
	}
	above, err := time.ParseDuration(text)
	if err != nil || above < 0 || above >= math.MaxUint32*time.Microsecond {
		return s, fmt.Errorf("%q: give never, 0s for when better paths are full, or a time such as 100ms", text)
	}
	return Spill{true, above.Truncate(time.Microsecond)}, nil
}

func (s Spill) String() string {
	if !s.On {
		return "never"
	}
	return s.Above.String()
}

// IsZero is for YAML, where omitempty leaves it out.
func (s Spill) IsZero() bool { return !s.On }

// MarshalText is String.
func (s Spill) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSpill.
func (s *Spill) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSpill(string(text))
	return err
}

func (s Spill) us() uint32 {
	if !s.On {
		return math.MaxUint32
	}
	return uint32(s.Above.Microseconds())
}

func spillOf(us uint32) Spill {
	if us == math.MaxUint32 {
		return Spill{}
	}
	return Spill{true, time.Duration(us) * time.Microsecond}
}

// Rate is a rate cap in bytes per second.
type Rate uint64

// Units, as providers count: powers of 1000.
var rateUnits = []struct {
	suffix string
	bits   float64
}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}

// ParseRate reads a rate such as 800kbit or 5mbit, of at least 8kbit; none is 0.
func ParseRate(text string) (Rate, error) {
	if text == "none" {
		return 0, nil
	}
	for _, unit := range rateUnits {
		number, ok := strings.CutSuffix(strings.ToLower(text), unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if bits := n * unit.bits; err == nil && bits >= 8e3 && bits <= 1e12 {
			return Rate(bits / 8), nil
		}
	}
	return 0, fmt.Errorf("%q: give a rate such as 800kbit, 5mbit or 1gbit, at least 8kbit, or none", text)
}

func (r Rate) String() string {
	if r == 0 {
		return "none"
	}
	at := 0
	for at+1 < len(rateUnits) && float64(r)*8 >= rateUnits[at+1].bits {
		at++
	}
	return strconv.FormatFloat(float64(r)*8/rateUnits[at].bits, 'f', -1, 64) + rateUnits[at].suffix
}

// MarshalYAML is String.
func (r Rate) MarshalYAML() (any, error) { return r.String(), nil }

// UnmarshalText is ParseRate.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// Quota is how many bytes a path may be handed before it is a backup.
type Quota struct {
	Bytes   uint64 `json:"bytes"`   // 0 for no quota
	Monthly bool   `json:"monthly"` // anew from the first of each month, local time
}

// ParseQuota reads bytes such as 500M or 20G/month; none is no quota.
func ParseQuota(text string) (q Quota, err error) {
	if text == "none" {
		return q, nil
	}
	number, monthly := strings.CutSuffix(text, "/month")
	if q.Bytes, err = ParseBytes(number); err != nil || q.Bytes == 0 {
		return Quota{}, fmt.Errorf("%q: give bytes above 0, such as 500M or 20G/month, or none", text)
	}
	q.Monthly = monthly
	return q, nil
}

var byteUnits = []string{"K", "M", "G", "T"}

// ParseBytes reads bytes, with K, M, G or T for powers of 1000, as providers count them.
func ParseBytes(text string) (uint64, error) {
	number, scale := text, 1.
	for i, unit := range byteUnits {
		if before, found := strings.CutSuffix(text, unit); found {
			number, scale = before, math.Pow10(3*(i+1))
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n >= 0 && n*scale <= 1e18) {
		return 0, fmt.Errorf("%q: give bytes, such as 500M or 1.2G", text)
	}
	return uint64(n * scale), nil
}

// FormatBytes is the reverse of ParseBytes, to four digits.
func FormatBytes(n uint64) string {
	scaled, unit := float64(n), ""
	for _, next := range byteUnits {
		if scaled < 1000 {
			break
		}
		scaled, unit = scaled/1000, next
	}
	return strconv.FormatFloat(scaled, 'g', 4, 64) + unit
}

func (q Quota) String() string {
	if q.Bytes == 0 {
		return "none"
	}
	n, unit := q.Bytes, ""
	for _, next := range byteUnits {
		if n%1000 != 0 {
			break
		}
		n, unit = n/1000, next
	}
	text := fmt.Sprintf("%d%s", n, unit)
	if q.Monthly {
		text += "/month"
	}
	return text
}

// IsZero is for YAML, where omitempty leaves it out.
func (q Quota) IsZero() bool { return q.Bytes == 0 }

// MarshalYAML is String.
func (q Quota) MarshalYAML() (any, error) { return q.String(), nil }

// UnmarshalText is ParseQuota.
func (q *Quota) UnmarshalText(text []byte) (err error) {
	*q, err = ParseQuota(string(text))
	return err
}

// begin is when the quota's present count began at the latest.
func (q Quota) begin(now time.Time) time.Time {
	if !q.Monthly {
		return time.Time{}
	}
	return time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.Local)
}

// noClock is before any time that mpcc can run at: a clock that says less has not been set since the machine started.
var noClock = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns a count and its begin as they are now: begun anew with a month. One that was begun while the clock was far
// ahead would not be for as long; it is kept, and begins now. While the clock has not been set, nothing is told by it.
func (q Quota) at(now time.Time, bytes uint64, since time.Time) (uint64, time.Time) {
	switch begun := q.begin(now); {
	case since.Before(begun):
		return 0, begun
	case q.Monthly && now.After(noClock) && since.After(now.AddDate(0, 1, 0)):
		return bytes, now
	}
	return bytes, since
}
