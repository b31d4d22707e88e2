// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/binary"
	"errors"

	"github.com/cilium/ebpf/btf"
)

// sockFields are the offsets of struct tcp_sock's fields.
type sockFields struct {
	size                                                      uint32
	cwnd, cwndCnt, cwndClamp, ssthresh, priorSsthresh         uint32
	srtt, mdev, rttvar, minRtt, rackRtt                       uint32
	packetsOut, sackedOut, lostOut, retransOut, maxPacketsOut uint32
	totalRetrans, rateDelivered, rateInterval                 uint32
	bytesSent, bytesAcked, bytesReceived, bytesRetrans        uint32
	mss, sndUna, sndNxt, writeSeq, highSeq, sndWnd            uint32
	mstamp, pacingRate, pacingStatus, gsoMaxSize, backoff     uint32
	caState, cwndLimited                                      bits
	// Written once.
	isMPTCP, state, family, daddr, net, dst, ops, ulp uint32
}

type subflowFields struct {
	size, node, id, sock, conn            uint32
	backup, requestBackup, stale, closing bits
}

type connectionFields struct{ size, list, token uint32 }

type sampleFields struct{ size, acked, rttUs, inFlight uint32 }

func readSock(sock *layout) sockFields {
	const icsk = "inet_conn."
	const sk = icsk + "icsk_inet.sk."
	const common = sk + "__sk_common."
	return sockFields{
		cwnd: sock.at("snd_cwnd", 4), cwndCnt: sock.at("snd_cwnd_cnt", 4), cwndClamp: sock.at("snd_cwnd_clamp", 4),
		ssthresh: sock.at("snd_ssthresh", 4), priorSsthresh: sock.at("prior_ssthresh", 4),
		srtt: sock.at("srtt_us", 4), mdev: sock.at("mdev_us", 4), rttvar: sock.at("rttvar_us", 4),
		minRtt: sock.at("rtt_min.s.v", 4), rackRtt: sock.at("rack.rtt_us", 4),
		packetsOut: sock.at("packets_out", 4), sackedOut: sock.at("sacked_out", 4), lostOut: sock.at("lost_out", 4),
		retransOut: sock.at("retrans_out", 4), maxPacketsOut: sock.at("max_packets_out", 4),
		totalRetrans: sock.at("total_retrans", 4), rateDelivered: sock.at("rate_delivered", 4),
		rateInterval: sock.at("rate_interval_us", 4),
		bytesSent:    sock.at("bytes_sent", 8), bytesAcked: sock.at("bytes_acked", 8),
		bytesReceived: sock.at("bytes_received", 8), bytesRetrans: sock.at("bytes_retrans", 8),
		mss: sock.at("mss_cache", 4), sndUna: sock.at("snd_una", 4), sndNxt: sock.at("snd_nxt", 4),
		writeSeq: sock.at("write_seq", 4), highSeq: sock.at("high_seq", 4), sndWnd: sock.at("snd_wnd", 4),
		mstamp: sock.at("tcp_mstamp", 8), pacingRate: sock.at(sk+"sk_pacing_rate", 8),
		pacingStatus: sock.at(sk+"sk_pacing_status", 4), gsoMaxSize: sock.at(sk+"sk_gso_max_size", 4),
		backoff: sock.at(icsk+"icsk_backoff", 1), caState: sock.bits(icsk + "icsk_ca_state"),
		cwndLimited: sock.bits("is_cwnd_limited"),
		isMPTCP:     sock.at("is_mptcp", 1), state: sock.at(common+"skc_state", 1), family: sock.at(common+"skc_family", 2),
		daddr: sock.at(common+"skc_daddr", 4), net: sock.at(common+"skc_net.net", 8), dst: sock.at(sk+"sk_dst_cache", 8),
		ops: sock.at(icsk+"icsk_ca_ops", 8), ulp: sock.at(icsk+"icsk_ulp_data", 8),
	}
}

func readSubflow(subflow *layout) subflowFields {
	return subflowFields{
		node: subflow.at("node.next", 8), id: subflow.at("subflow_id", 4), sock: subflow.at("tcp_sock", 8),
		conn: subflow.at("conn", 8), backup: subflow.bits("backup"), requestBackup: subflow.bits("request_bkup"),
		stale: subflow.bits("stale"), closing: subflow.bits("closing"),
	}
}

func (a *Algorithm) readLayouts(types *btf.Spec) error {
	sock, subflow := layoutOf(types, "tcp_sock"), layoutOf(types, "mptcp_subflow_context")
	a.sock, a.subflow = readSock(sock), readSubflow(subflow)
	conn := layoutOf(types, "mptcp_sock")
	a.conn = connectionFields{list: conn.at("conn_list.next", 8), token: conn.at("token", 4)}
	sample := layoutOf(types, "ack_sample")
	a.sample = sampleFields{
		acked: sample.at("pkts_acked", 4), rttUs: sample.at("rtt_us", 4), inFlight: sample.at("in_flight", 4),
	}
	ops := layoutOf(types, "tcp_congestion_ops")
	a.opsName = ops.at("name", 16)
	a.sock.size, a.subflow.size, a.conn.size, a.sample.size, a.opsSize = sock.size, subflow.size, conn.size, sample.size, ops.size
	return errors.Join(a.readShared(types), firstError(sock, subflow, conn, sample, ops))
}

// shareMemory allocates what all sockets point to.
func (a *Algorithm) shareMemory() {
	a.context = a.m.Allocate(24)
	a.ackSample = a.m.Allocate(uint64(a.sample.size))
	a.shareNet()
	a.ops = a.m.Allocate(uint64(a.opsSize))
	copy(a.at(a.ops, a.opsSize)[a.opsName:][:15], a.name)
}

// The kernel's numbers for what never changes in a simulation.
const (
	established = 1 // TCP_ESTABLISHED
	inet        = 2 // AF_INET
)

// newSocket writes what stays the same in a socket's life.
func (a *Algorithm) newSocket(state *State, c *Connection) *Subflow {
	s := &Subflow{a: a, c: c, state: state, sock: a.take(&a.freeSockets, a.sock.size)}
	a.sockets[s.sock] = s
	if c != nil {
		s.context = a.take(&a.freeSubflows, a.subflow.size)
		a.subflow.begin(a.at(s.context, a.subflow.size), s.sock, c.address)
	}
	a.beginSocket(&a.sock, s.sock, s.context, state)
	put64(a.at(s.sock, a.sock.size), a.sock.ops, a.ops)
	return s
}

// beginSocket writes what stays the same in a socket's life. Its context is that of its subflow, 0 if it is not MPTCP's.
func (k *kernel) beginSocket(f *sockFields, sock, context uint64, state *State) {
	dst := k.route(state.Interface)
	b := k.at(sock, f.size)
	b[f.state] = established
	binary.LittleEndian.PutUint16(b[f.family:], inet)
	binary.LittleEndian.PutUint32(b[f.daddr:], state.Peer)
	put64(b, f.net, k.net)
	put64(b, f.dst, dst)
	if context != 0 {
		b[f.isMPTCP] = 1
		put64(b, f.ulp, context)
	}
}

// begin writes what stays the same in the life of a subflow.
func (f *subflowFields) begin(context []byte, sock, conn uint64) {
	put64(context, f.sock, sock)
	put64(context, f.conn, conn)
}

func put64(b []byte, at uint32, v uint64) { binary.LittleEndian.PutUint64(b[at:], v) }

func one(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// write copies the state to the socket.
func (s *Subflow) write(b []byte) {
	s.a.sock.write(b, s.state)
	if s.c != nil {
		s.a.subflow.write(s.a.at(s.context, s.a.subflow.size), s.state)
	}
}

func (f *sockFields) write(b []byte, v *State) {
	le := binary.LittleEndian
	le.PutUint32(b[f.cwnd:], v.Cwnd)
	le.PutUint32(b[f.cwndCnt:], v.CwndCnt)
	le.PutUint32(b[f.cwndClamp:], v.CwndClamp)
	le.PutUint32(b[f.ssthresh:], v.Ssthresh)
	le.PutUint32(b[f.priorSsthresh:], v.PriorSsthresh)
	le.PutUint32(b[f.srtt:], v.SrttUs)
	le.PutUint32(b[f.mdev:], v.MdevUs)
	le.PutUint32(b[f.rttvar:], v.RttvarUs)
	le.PutUint32(b[f.minRtt:], v.MinRttUs)
	le.PutUint32(b[f.rackRtt:], v.RackRttUs)
	le.PutUint32(b[f.packetsOut:], v.PacketsOut)
	le.PutUint32(b[f.sackedOut:], v.SackedOut)
	le.PutUint32(b[f.lostOut:], v.LostOut)
	le.PutUint32(b[f.retransOut:], v.RetransOut)
	le.PutUint32(b[f.maxPacketsOut:], v.MaxPacketsOut)
	le.PutUint32(b[f.totalRetrans:], v.TotalRetrans)
	le.PutUint32(b[f.rateDelivered:], v.RateDelivered)
	le.PutUint32(b[f.rateInterval:], v.RateIntervalUs)
	le.PutUint64(b[f.bytesSent:], v.BytesSent)
	le.PutUint64(b[f.bytesAcked:], v.BytesAcked)
	le.PutUint64(b[f.bytesReceived:], v.BytesReceived)
	le.PutUint64(b[f.bytesRetrans:], v.BytesRetrans)
	le.PutUint32(b[f.mss:], v.MSS)
	le.PutUint32(b[f.sndUna:], v.SndUna)
	le.PutUint32(b[f.sndNxt:], v.SndNxt)
	le.PutUint32(b[f.writeSeq:], v.WriteSeq)
	le.PutUint32(b[f.highSeq:], v.HighSeq)
	le.PutUint32(b[f.sndWnd:], v.SndWnd)
	le.PutUint64(b[f.pacingRate:], v.PacingRate)
	le.PutUint32(b[f.pacingStatus:], v.PacingStatus)
	le.PutUint32(b[f.gsoMaxSize:], v.GSOMaxSize)
	b[f.backoff] = v.Backoff
	f.caState.put(b, v.CAState)
	f.cwndLimited.put(b, one(v.CwndLimited))
}

func (f *subflowFields) write(context []byte, v *State) {
	f.backup.put(context, one(v.Backup))
	f.requestBackup.put(context, one(v.RequestBackup))
	f.stale.put(context, one(v.Stale))
	f.closing.put(context, one(v.Closing))
}

// read copies what callbacks may write from the socket.
func (s *Subflow) read(b []byte) {
	f, v := &s.a.sock, s.state
	le := binary.LittleEndian
	v.Cwnd = le.Uint32(b[f.cwnd:])
	v.CwndCnt = le.Uint32(b[f.cwndCnt:])
	v.Ssthresh = le.Uint32(b[f.ssthresh:])
	v.PacingRate = le.Uint64(b[f.pacingRate:])
	v.PacingStatus = le.Uint32(b[f.pacingStatus:])
}
