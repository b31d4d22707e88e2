#!/bin/sh
# PID 1 of the VM: makes the usual file systems, runs /run-me, sends back
# what it printed, its status and /results, then waits for the host to stop the VM.
# A command that fails here ends PID 1, and the kernel's panic ends the VM.
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
for dir in /dev/shm /tmp /run; do mount -t tmpfs tmpfs $dir; done
ln -s /proc/self/fd /dev/fd
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing

echo mpcc >/proc/sys/kernel/hostname
echo '127.0.0.1 localhost mpcc' >/etc/hosts
ip link set lo up
ulimit -Hn 524288 # what systemd gives; the kernel's own 4096 is no user's limit

# No udev here to load what the channel to the host needs where it is a module.
modprobe virtio_pci
modprobe virtio_console
until [ -c /dev/vport0p1 ] && [ -c /dev/vport0p2 ]; do sleep 0.1; done

mkdir -p /results /root
cd /root
exec 3>/dev/vport0p1
echo "$MPCC_MARK $(uname -r)" >&3
status=0
sh /run-me </dev/null >&3 2>&1 3>&- || status=$?
printf %s "$MPCC_MARK" >&3
{ echo "$status"; tar -C /results -cf - .; } >/dev/vport0p2
while :; do sleep 3600; done
