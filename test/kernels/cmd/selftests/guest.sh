# SPDX-License-Identifier: Apache-2.0
#
# Runs in the VM: the kernel's scripts with a congestion control and a packet scheduler as the defaults of every namespace
# that the scripts make. Arguments: the name of the row, the control's name in the kernel, the scheduler's name, and the name by
# which mpcc knows the control, empty for one of the kernel's own.
set -eu
name=$1 cc=$2 scheduler=$3 ours=$4
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
# Its packet scheduler is always the kernel's own: so the scripts find an ip command that also sets mpcc's scheduler in each
# namespace that it adds.
if [ "$scheduler" != default ]; then
	modprobe mpcc_sched
	"$MPCC_BIN" load "sched/$scheduler"
	mkdir /tmp/bin
	cat >/tmp/bin/ip <<-END
		#!/bin/sh
		$(command -v ip) "\$@" || exit
		[ "\$1 \$2" != "netns add" ] || $(command -v ip) netns exec "\$3" sysctl -qw net.mptcp.scheduler=$scheduler
	END
	chmod +x /tmp/bin/ip
	PATH=/tmp/bin:$PATH
fi
ip netns add fresh
ip netns exec fresh sysctl -n net.ipv4.tcp_congestion_control net.mptcp.scheduler >/results/defaults
ip netns delete fresh

# Counts the sockets that the kernel gives any congestion control, and the choices of the kernel's own packet scheduler.
echo 'p:sockets tcp_init_congestion_control' >$tracing/kprobe_events
echo 'p:choices mptcp_subflow_get_send' >>$tracing/kprobe_events
echo 1 >$tracing/events/kprobes/enable

# count writes how many there were of both, and mpcc's totals.
count() {
	for what in sockets choices; do
		awk -v what=$what '$1 == what { print $2 }' $tracing/kprobe_profile >"/results/$1.$what"
	done
	[ -z "$ours" ] || "$MPCC_BIN" status --json >"/results/$1.json"
}

# run runs a script and keeps what it prints, and its status. The script rolls dice for delay, loss, and sizes of
# files: the dice fall alike in every VM.
run() {
	echo "$name: $1"
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
