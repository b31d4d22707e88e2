#!/bin/sh
# PID 1 of a VM with a disk: makes systemd of the disk PID 1, with a service that runs /run-me when all else has
# started, and sends what it printed; then the machine shuts down, and in the end sends the status and /results.
# A command that fails here ends PID 1, and the kernel's panic ends the VM.
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in virtio_pci virtio_console virtio_blk ext4; do modprobe $module; done
until [ -b /dev/vda ] && [ -c /dev/vport0p1 ] && [ -c /dev/vport0p2 ]; do sleep 0.1; done
mkdir /disk
mount -t ext4 /dev/vda /disk

[ -e "/disk/usr/lib/modules/$(uname -r)" ] || { mkdir -p /disk/usr/lib/modules; cp -a /usr/lib/modules/. /disk/usr/lib/modules; }
[ ! -d /files ] || cp -a /files/. /disk
rm -rf /disk/results
mkdir /disk/results
cp /run-me /disk/run-me
echo mpcc >/disk/etc/hostname

cat >/disk/run-and-shut-down <<END
echo "$MPCC_MARK $(uname -r)" >/dev/vport0p1
status=0
sh /run-me </dev/null >/dev/vport0p1 2>&1 || status=\$?
echo \$status >/status
printf %s "$MPCC_MARK" >/dev/vport0p1
systemctl poweroff --no-block
END
cat >/disk/etc/systemd/system/run-me.service <<'END'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
Environment=HOME=/root LANG=C.UTF-8
ExecStart=/bin/sh /run-and-shut-down
END
cat >/disk/etc/systemd/system/run-me.target <<'END'
[Unit]
Requires=multi-user.target
Wants=run-me.service
AllowIsolate=yes
END
# Nobody logs in, and without udev systemd would wait for the terminals in vain.
ln -sf /dev/null /disk/etc/systemd/system/getty.target
# What systemd runs last of all, when nothing can be written to the disk any more.
mkdir -p /disk/usr/lib/systemd/system-shutdown
cat >/disk/usr/lib/systemd/system-shutdown/run-me <<'END'
#!/bin/sh
{ cat /status; tar -C /results -cf - .; } >/dev/vport0p2
END
chmod 755 /disk/usr/lib/systemd/system-shutdown/run-me

umount /proc /sys
mount --move /dev /disk/dev
exec switch_root /disk /sbin/init
