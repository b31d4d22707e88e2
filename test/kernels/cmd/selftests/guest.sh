# SPDX-License-Identifier: Apache-2.0
#
# Runs in the VM: the kernel's scripts with a congestion control as the default of every namespace that they make.
# Arguments: its name, and for one of mpcc its name there.
set -eu
cc=$1 ours=${2-}
tracing=/sys/kernel/tracing
export SELFTESTS_MPTCP_LIB_EXPECT_ALL_FEATURES=1 # a feature that the kernel lacks is a failure
export SELFTESTS_MPTCP_LIB_OVERRIDE_FLAKY=1      # and so is a test that the kernel's own CI lets fail

# A new namespace takes the default of the first one.
if [ "$ours" ]; then
	"$MPCC_BIN" load "$ours" --default
else
	sysctl -qw net.ipv4.tcp_congestion_control="$cc" || {
		echo "$cc: no congestion control of mpcc or of Linux $(uname -r)"
		exit 1
	}
fi
ip netns add fresh
ip netns exec fresh sysctl -n net.ipv4.tcp_congestion_control >/results/default
ip netns delete fresh

# Counts the sockets that the kernel gives a congestion control, whichever that is.
echo 'p:sockets tcp_init_congestion_control' >$tracing/kprobe_events
echo 1 >$tracing/events/kprobes/sockets/enable

# count writes how many sockets there were, and mpcc's totals.
count() {
	awk '$1 == "sockets" { print $2 }' $tracing/kprobe_profile >"/results/$1.sockets"
	[ -z "$ours" ] || "$MPCC_BIN" status --json >"/results/$1.json"
}

# run runs a script and keeps what it prints, and its status. The script rolls dice for delay, loss, and sizes of
# files: they fall alike for each congestion control.
run() {
	echo "$cc: $1"
	status=0
	timeout "$limit" bash -c 'RANDOM=1; . "$0"' "$2" >"/results/$1.log" 2>&1 || status=$?
	echo $status >"/results/$1.status"
	count "$1"
}

cd /selftests/net/mptcp
limit=$(sed -n 's/^timeout=//p' settings) # seconds
count start
run mptcp_connect ./mptcp_connect.sh
for i in 1 2 3; do
	run simult_flows-$i ./simult_flows.sh
done
