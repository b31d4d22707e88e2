// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"slices"
	"strings"
)

// Cause is why a connection does not send on all of its paths at once, or, if OK, that it does.
type Cause struct {
	Name string // stable, for programs
	Says string // with {…} for what differs
	Mend string // commands and advice, with {…} too; "" where there is nothing to mend
	OK   bool   // nothing is wrong with the paths
}

// Causes are all that there are, in the order of docs/why.md.
var Causes = []Cause{
	// No connection that could have several subflows.
	{Name: "mptcp-disabled", Says: "MPTCP is switched off in this network namespace",
		Mend: "sysctl -w net.mptcp.enabled=1"},
	{Name: "no-connections", Says: "there is no connection to judge", Mend: "run it while one is open", OK: true},
	{Name: "plain-tcp", Says: "the application uses a TCP socket, not an MPTCP one",
		Mend: "mptcpize run COMMAND, or mpcc use --multipath --cgroup PATH, and restart it"},

	// The connection has become TCP.
	{Name: "peer-without-mptcp", Says: "fallen back to TCP: the peer, or a middlebox on the way, speaks no MPTCP",
		Mend: "at the peer: sysctl net.mptcp.enabled, and an MPTCP socket (mptcpize run); if it has both, a middlebox takes the options away: try another network or port"},
	{Name: "syn-blocked", Says: "fallen back to TCP: a middlebox drops the first packets of MPTCP, and those of TCP not",
		Mend: "have {remote} opened for TCP option 30; then sysctl -w net.mptcp.blackhole_timeout=0, or wait an hour, for MPTCP to be tried again"},
	{Name: "options-stripped", Says: "fallen back to TCP: a middlebox takes MPTCP's options away after the handshake",
		Mend: "have it let TCP option 30 pass in all packets, or go round it by another network or port"},
	{Name: "checksum-failed", Says: "fallen back to TCP: a middlebox changes the content, and the checksum has shown it",
		Mend: "switch off what rewrites content on the way (an application gateway, a proxy), or encrypt"},

	// Only one subflow.
	{Name: "no-data-yet", Says: "only one subflow: a second one can join only after the first data is acknowledged",
		Mend: "run it again while data is sent", OK: true},
	{Name: "userspace-pm", Says: "only one subflow: a program is to open subflows here (net.mptcp.pm_type 1), and has opened none",
		Mend: "look at that program (mptcpd), or sysctl -w net.mptcp.pm_type=0"},
	{Name: "limit-subflows", Says: "only one subflow: the path manager's limit allows no other",
		Mend: "ip mptcp limits set subflows 2 add_addr_accepted 2"},
	{Name: "limit-add-addr", Says: "only one subflow: the peer announces an address, and the limit has it passed over",
		Mend: "ip mptcp limits set subflows 2 add_addr_accepted 2"},
	{Name: "endpoint-not-subflow", Says: "only one subflow: {address} is an endpoint, but not one that opens subflows",
		Mend: "ip mptcp endpoint del id {id}; ip mptcp endpoint add {address} dev {interface} subflow"},
	{Name: "no-endpoint", Says: "only one subflow: the path manager has not been told of {address}",
		Mend: "ip mptcp endpoint add {address} dev {interface} subflow"},
	{Name: "no-second-address", Says: "only one subflow: this host has one address that leads there, and the peer has announced no other",
		Mend: "bring up a second interface; or, at the peer: ip mptcp endpoint add ADDRESS signal"},
	{Name: "link-down", Says: "{interface} is down, and with it the path from {address}",
		Mend: "ip link set {interface} up, or plug it in"},
	{Name: "no-route", Says: "only one subflow: no route leads from {address} to {remote}", Mend: "{route}"},
	{Name: "source-route", Says: "packets from {address}, of {interface}, leave through {device}", Mend: "{route}"},
	{Name: "join-blocked", Says: "only one subflow: nobody answers the packets by which a second one asks to join from {address}",
		Mend: "ping -I {address} {remote}; if that is answered, have a firewall on that path let TCP option 30 pass"},
	{Name: "join-stripped", Says: "only one subflow: a middlebox takes the option away by which a second one asks to join",
		Mend: "have the path from {address} let TCP option 30 pass, or give the path a tunnel"},
	{Name: "join-refused", Says: "only one subflow: the peer refuses a second one",
		Mend: "at the peer: ip mptcp limits set subflows 2"},
	{Name: "join-reset", Says: "only one subflow: a second one from {address} was answered by a reset",
		Mend: "look for a firewall on that path, and whether the peer listens at all its addresses (0.0.0.0), or sends joins to another host"},
	{Name: "peer-opens-none", Says: "only one subflow: it is for the peer to open another one",
		Mend: "run mpcc why at the peer; if it has one address, announce one of this host: ip mptcp endpoint add ADDRESS signal"},

	// Several subflows.
	{Name: "path-dead", Says: "the path from {address} has died: nothing is acknowledged there",
		Mend: "ping -I {address} {remote} tells when it is back; until then, ip link set {interface} down spares the attempts"},
	{Name: "backup", Says: "the subflow from {address} is a backup, and waits for all others to fail",
		Mend: "{unbackup}"},
	{Name: "redundant", Says: "the scheduler sends the same content on several subflows",
		Mend: "sysctl -w net.mptcp.scheduler=default, and reconnect"},
	{Name: "idle", Says: "nothing is being sent", Mend: "run it while data is sent", OK: true},
	{Name: "application", Says: "the application gives less than the paths can carry",
		Mend: "nothing here: have it write more at a time, or not wait for answers"},
	{Name: "send-buffer", Says: "the send buffer is too small for the paths",
		Mend: "sysctl -w net.ipv4.tcp_wmem=\"4096 65536 {bytes}\", and have the application not set SO_SNDBUF"},
	{Name: "held-up", Says: "the path from {address} holds up the others: the stream waits for what lies there",
		Mend: "a packet scheduler that sends this again on the others: mpcc load earliest --default, and reconnect"},
	{Name: "receive-buffer", Says: "the peer's receive buffer is too small for the paths",
		Mend: "at the peer: sysctl -w net.ipv4.tcp_rmem=\"4096 131072 {bytes}\", and have the application not set SO_RCVBUF"},
	{Name: "peer-reads-slowly", Says: "the application at the peer reads more slowly than data could come",
		Mend: "nothing here: look at what the program at {remote} waits for"},
	{Name: "reads-slowly", Says: "the application here reads more slowly than data could come",
		Mend: "look at what it waits for: processor, disk, a lock"},
	{Name: "path-rule", Says: "a rule of mpcc path keeps the scheduler off the subflow from {address}: {rule}",
		Mend: "mpcc path reset {path}"},
	{Name: "energy-price", Says: "{cc} shifts traffic off the subflow from {address}, whose energy is dearer",
		Mend: "mpcc energy show; load a congestion control without prices: mpcc load dwc"},
	{Name: "loss", Says: "the path from {address} is held down by loss",
		Mend: "mend the link, or use a congestion control that does not take each loss for congestion: mpcc load lia --default, or sysctl -w net.ipv4.tcp_congestion_control=bbr"},
	{Name: "rtt", Says: "the path from {address} is held down by its round-trip time",
		Mend: "a congestion control that does not depend on it: sysctl -w net.ipv4.tcp_congestion_control=cubic (or bbr)"},
	{Name: "scheduler", Says: "the packet scheduler leaves room unused on the subflow from {address}",
		Mend: "sysctl -w net.mptcp.scheduler=default, and reconnect; mpcc status tells what a scheduler of mpcc decided"},
	{Name: "path-rate", Says: "the path from {address} carries little, and is full",
		Mend: "nothing here: it gives what it has"},
	{Name: "shared-interface", Says: "the subflows all leave through {interface}",
		Mend: "ip mptcp endpoint add ADDRESS dev INTERFACE subflow, for an address of another interface"},
	{Name: "shared-bottleneck", Says: "the subflows share a bottleneck: together they get no more than one path has",
		Mend: "use a path that leaves by another provider; coupling them is fair to others: mpcc load dwc"},
	{Name: "peer-decides", Says: "this host receives, and the peer sends little from {remote} to {address}",
		Mend: "run mpcc why at the peer"},

	{Name: "aggregating", Says: "aggregating: {shares}", OK: true},
}

// Find returns the cause of a name; false if there is none.
func Find(name string) (Cause, bool) {
	i := slices.IndexFunc(Causes, func(c Cause) bool { return c.Name == name })
	if i < 0 {
		return Cause{}, false
	}
	return Causes[i], true
}

// words are what {…} stands for in a cause.
type words map[string]string

// finding puts a cause into words.
func (v *view) finding(name string, w words, evidence ...string) Finding {
	c, ok := Find(name)
	if !ok {
		panic("no cause " + name) // a test calls for all of them
	}
	if w == nil {
		w = words{}
	}
	mend := w.fill(c.Mend)
	if v.Netns != "" {
		mend = inside(v.Netns, mend)
	}
	return Finding{Cause: name, OK: c.OK, Says: w.fill(c.Says), Evidence: evidence, Mend: mend}
}

func (w words) fill(text string) string {
	for key, value := range w {
		text = strings.ReplaceAll(text, "{"+key+"}", value)
	}
	return text
}

// peer begins what is to be done there.
const peer = "at the peer: "

// inside has the commands of a remedy done in a network namespace, but for those at the peer.
func inside(name, mend string) string {
	mend, other, peers := strings.Cut(mend, peer)
	for from, to := range map[string]string{
		"ip mptcp ":        fmt.Sprintf("ip -n %s mptcp ", name),
		"ip link ":         fmt.Sprintf("ip -n %s link ", name),
		"ip route ":        fmt.Sprintf("ip -n %s route ", name),
		"ip rule ":         fmt.Sprintf("ip -n %s rule ", name),
		"sysctl ":          fmt.Sprintf("ip netns exec %s sysctl ", name),
		"ping ":            fmt.Sprintf("ip netns exec %s ping ", name),
		"mpcc path reset ": fmt.Sprintf("mpcc path reset --netns %s ", name),
		" --default":       fmt.Sprintf(" --default --netns %s", name),
	} {
		mend = strings.ReplaceAll(mend, from, to)
	}
	if peers {
		mend += peer + other
	}
	return mend
}
