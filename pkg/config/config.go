// SPDX-License-Identifier: Apache-2.0

// Package config has the file that declares all of mpcc's settings on a machine, and makes the machine so: algorithms
// with their tunables, defaults, what cgroups use, MPTCP endpoints, limits and source routes, energy profiles, rules for
// paths, and how the exporter is run. docs/config.md describes the file.
//
// Plan tells what is to be changed, and Apply changes it. What an earlier Apply has set and is not declared any more goes
// away, or becomes what it was before; what somebody else has set stays as long as nothing is declared for it.
//
// What it leaves in the system, besides what is declared:
//
//	/run/mpcc/applied.json      what Apply has set since the machine started, and what that was before
//	/run/mpcc/apply.lock        held while something is applied
//	/run/mpcc/guard.lock        held while somebody waits to go back
//	/var/lib/mpcc/pending.json  what to go back to unless the changes are confirmed; it outlives a reboot
package config

import (
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/strictyaml"
	"github.com/mpcc/mpcc/pkg/paths"
)

// File is where the configuration of a machine is.
const File = "/etc/mpcc/config.yaml"

// Config is the file. Each part may be left out: then nothing is declared of it.
type Config struct {
	// Room for live subflows in the maps; without it, by the machine's memory. Maps that are there have to have the same.
	MaxSubflows int `yaml:"max_subflows,omitempty" range:"16..4194304"`
	// Packet schedulers choose for each page of memory, 4 KB, instead of 32 KB.
	SmallPieces  bool          `yaml:"small_pieces,omitempty"`
	Algorithms   []Algorithm   `yaml:"algorithms,omitempty"`    // what is loaded
	Defaults     []Default     `yaml:"defaults,omitempty"`      // what connections get that choose nothing
	Uses         []Use         `yaml:"uses,omitempty"`          // what some applications get
	Energy       []Energy      `yaml:"energy,omitempty"`        // what interfaces draw
	Paths        []paths.Rule  `yaml:"paths,omitempty"`         // which paths to prefer
	MPTCP        []MPTCP       `yaml:"mptcp,omitempty"`         // the kernel's path manager
	SourceRoutes []SourceRoute `yaml:"source_routes,omitempty"` // by which interface packets from an address leave
	Exporter     Exporter      `yaml:"exporter,omitempty"`      // of mpcc exporter; a restart of it reads them anew

	text []byte // it was read from
}

// Algorithm is a congestion control or packet scheduler that is loaded.
type Algorithm struct {
	Name  string `yaml:"name"`            // as mpcc list shows it
	Paper bool   `yaml:"paper,omitempty"` // tunables that are not set have the paper's values
	// Tunables by name; mpcc list -v shows them.
	Set map[string]string `yaml:"set,omitempty"`
}

// Default is what the connections of a network namespace get that choose nothing.
type Default struct {
	Netns     string `yaml:"netns,omitempty"`     // as ip netns names it; without it, mpcc's own
	CC        string `yaml:"cc,omitempty"`        // a congestion control of algorithms
	Scheduler string `yaml:"scheduler,omitempty"` // a packet scheduler of algorithms
}

// Use is what the applications in a cgroup get, or MPTCP connections to some addresses.
type Use struct {
	What   string `yaml:"what"`             // a congestion control of algorithms; mptcp gives MPTCP sockets in place of TCP ones
	Cgroup string `yaml:"cgroup,omitempty"` // below the root of the cgroups, such as system.slice
	To     Prefix `yaml:"to,omitempty"`     // in place of cgroup: the peers' addresses, such as 203.0.113.0/24 or 0.0.0.0/0
	Dev    string `yaml:"dev,omitempty"`    // with to: the interface that they leave by
	Netns  string `yaml:"netns,omitempty"`  // with to: as ip netns names it; without it, mpcc's own
}

// Energy is the power that an interface draws: a profile, figures, or a profile with some figures of your own.
type Energy struct {
	Interface string   `yaml:"interface"`       // such as wlan0
	Netns     string   `yaml:"netns,omitempty"` // as ip netns names it; without it, mpcc's own
	Profile   string   `yaml:"profile,omitempty"`
	Uplink    *float64 `yaml:"uplink_mw_per_mbps,omitempty" range:"0..4294967"`   // sending
	Downlink  *float64 `yaml:"downlink_mw_per_mbps,omitempty" range:"0..4294967"` // receiving
	Base      *float64 `yaml:"base_mw,omitempty" range:"0..4294967"`              // while active
}

// MPTCP is what the kernel's path manager does in a network namespace.
type MPTCP struct {
	Netns     string     `yaml:"netns,omitempty"`     // as ip netns names it; without it, mpcc's own
	Limits    *Limits    `yaml:"limits,omitempty"`    // of each connection
	Endpoints []Endpoint `yaml:"endpoints,omitempty"` // addresses that connections use
}

// Limits are those of each connection.
type Limits struct {
	Subflows        int `yaml:"subflows" range:"0..64"`          // beyond the first
	AddAddrAccepted int `yaml:"add_addr_accepted" range:"0..64"` // addresses announced by the peer that are connected to
}

// Endpoint is an address that connections use.
type Endpoint struct {
	Address Addr     `yaml:"address"`
	Port    uint16   `yaml:"port,omitempty"`                                         // to announce, with signal alone; without it, that of the connection
	ID      int      `yaml:"id,omitempty" range:"1..255"`                            // without it, one that is free
	Dev     string   `yaml:"dev,omitempty"`                                          // interface that its subflows leave by
	Flags   []string `yaml:"flags,omitempty" oneof:"signal|subflow|backup|fullmesh"` // as ip mptcp endpoint names them
}

// SourceRoute says by which routes packets from an address leave.
type SourceRoute struct {
	From     Prefix  `yaml:"from"`                                     // an address, or a prefix
	Table    uint32  `yaml:"table" range:"1..4294967295"`              // a routing table of its own
	Priority uint32  `yaml:"priority,omitempty" range:"1..4294967295"` // of the rule; without it, one below the least there is
	Netns    string  `yaml:"netns,omitempty"`                          // as ip netns names it; without it, mpcc's own
	Routes   []Route `yaml:"routes,omitempty"`                         // of the table
}

// Route is a route of a table.
type Route struct {
	To  Prefix `yaml:"to,omitempty"`  // without it, everything: the default route
	Via Addr   `yaml:"via,omitempty"` // the gateway; without it, what is on the link
	Dev string `yaml:"dev"`           // the interface
}

// Exporter is how mpcc exporter is run. Its flags go before.
type Exporter struct {
	Listen    []string  `yaml:"listen,omitempty"`                           // addresses, such as :9956
	WebConfig string    `yaml:"web_config,omitempty"`                       // file that turns on TLS and basic auth
	MaxSeries *int      `yaml:"max_series,omitempty" range:"0..1000000000"` // most series of single subflows in a scrape; 0 for none
	MinAge    *Duration `yaml:"min_age,omitempty"`                          // age at which a subflow gets series of its own
	// NoPeerAddresses leaves the peers' addresses out, of metrics and of the page.
	NoPeerAddresses bool `yaml:"no_peer_addresses,omitempty"`
}

// Addr is an IP address.
type Addr struct{ netip.Addr }

// IsZero tells whether there is none.
func (a Addr) IsZero() bool { return !a.IsValid() }

// UnmarshalText reads what MarshalText writes.
func (a *Addr) UnmarshalText(text []byte) (err error) {
	if a.Addr, err = netip.ParseAddr(string(text)); err != nil || a.Zone() != "" {
		return fmt.Errorf("%q is no address: give one such as 192.0.2.1 or 2001:db8::1", text)
	}
	a.Addr = a.Unmap()
	return nil
}

// Prefix is an IP prefix, or one address.
type Prefix struct{ netip.Prefix }

// IsZero tells whether there is none.
func (p Prefix) IsZero() bool { return !p.IsValid() }

// String returns an address where the prefix is one.
func (p Prefix) String() string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.Prefix.String()
}

// MarshalText writes what UnmarshalText reads.
func (p Prefix) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a prefix such as 192.0.2.0/24, an address, or default, which is none.
func (p *Prefix) UnmarshalText(text []byte) error {
	if string(text) == "default" {
		*p = Prefix{}
		return nil
	}
	if addr, err := netip.ParseAddr(string(text)); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		p.Prefix = netip.PrefixFrom(addr, addr.BitLen())
		return nil
	}
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil {
		return fmt.Errorf("%q is neither address nor prefix: give one such as 192.0.2.1 or 192.0.2.0/24", text)
	}
	if prefix != prefix.Masked() {
		return fmt.Errorf("%s has bits beyond its length: write %s", text, prefix.Masked())
	}
	p.Prefix = prefix
	return nil
}

// Duration is a time such as 1s.
type Duration time.Duration

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a time.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil || parsed < 0 {
		return fmt.Errorf("%q is no time: give one such as 500ms, 1s or 2m", text)
	}
	*d = Duration(parsed)
	return nil
}

var _ encoding.TextUnmarshaler = (*Duration)(nil)

// Read returns the configuration in a file, checked as by Parse.
func Read(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s; mpcc config show prints what runs now, to start with: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse returns the configuration that a text declares. The error has a line for each thing that is wrong, with its place;
// path is what it calls the file. Whether there are such interfaces and namespaces, Plan tells.
func Parse(path string, text []byte) (*Config, error) {
	c, d, err := decode(path, text)
	if err != nil {
		return nil, err
	}
	if d != nil {
		c.check(d)
		if err := d.Err(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// decode reads a text, and checks each value by itself. The decoder is nil for an empty text.
func decode(path string, text []byte) (*Config, *strictyaml.Decoder, error) {
	c := &Config{text: text}
	root, err := strictyaml.Root(path, text)
	if err != nil || root == nil {
		return c, nil, err
	}
	d := strictyaml.New(path, strictyaml.Hooks{})
	d.Decode(root, c, "the file")
	return c, d, d.Err()
}

// YAML returns a text that Parse reads.
func (c *Config) YAML() []byte {
	text, err := yaml.Marshal(c)
	if err != nil {
		panic("config: " + err.Error()) // the types have nothing that YAML does not
	}
	if strings.TrimSpace(string(text)) == "{}" {
		return nil
	}
	return text
}
