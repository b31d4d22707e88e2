// SPDX-License-Identifier: Apache-2.0

//go:build vm

package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mpcc/mpcc/internal/vm"
)

// packages is a folder of what deploy/packages/build writes, which it does when the first file is asked for.
type packages func() (dir string, err error)

// buildPackages returns the packages of a version for some processors, until the test ends.
func buildPackages(t *testing.T, version string, archs ...string) packages {
	ctx, dir := t.Context(), t.TempDir()
	return sync.OnceValues(func() (string, error) {
		root, err := clone()
		if err != nil {
			return "", err
		}
		cmd := exec.CommandContext(ctx, filepath.Join(root, "deploy/packages/build"), append([]string{dir}, archs...)...)
		cmd.Env = append(os.Environ(), "VERSION="+version)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return dir, nil
	})
}

func (p packages) file(t *testing.T, name string) string {
	t.Helper()
	dir, err := p()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// testPackages installs the Debian package on a machine with systemd and declares something; restarts the machine, which
// comes up as declared and with the count of a path's quota, although another file was applied to be confirmed and was not;
// upgrades the package and purges it. Then it does the same with the RPM package, without a restart.
func testPackages(t *testing.T, kernel vm.Kernel, built packages) {
	clean := exec.CommandContext(t.Context(), "lintian", "--fail-on=error,warning", built.file(t, "mpcc_1.0.0-1_amd64.deb"),
		built.file(t, "mpcc-dev_1.0.0-1_all.deb"), built.file(t, "mpcc-dkms_1.0.0-1_all.deb"))
	if out, err := clean.CombinedOutput(); err != nil {
		t.Errorf("lintian: %v\n%s", err, out)
	}
	files := map[string]string{}
	for version, built := range map[string]packages{"1.0.0": built, "1.0.1": buildPackages(t, "1.0.1", "amd64")} {
		for _, name := range []string{"mpcc_" + version + "-1_amd64.deb", "mpcc-" + version + "-1.x86_64.rpm"} {
			files["/"+name] = built.file(t, name)
		}
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := vm.NewDisk(t.Context(), disk, func(stage string) { t.Log(stage) }); err != nil {
		t.Fatal(err)
	}
	for _, boot := range []struct{ name, script string }{
		{"install", installPackage},
		{"upgrade and purge, then RPM", upgradePackage + rpmPackage},
	} {
		t.Run(boot.name, func(t *testing.T) {
			var out strings.Builder
			result, err := vm.Run(t.Context(), vm.Spec{
				Kernel: kernel, Disk: disk, Files: files, Stdout: &out,
				Cmd: []string{"bash", "-ec", checks + boot.script},
			})
			files = nil // they stay on the disk
			if err != nil {
				t.Fatal(err)
			}
			if result.Status != 0 {
				t.Fatalf("status %d:\n%s", result.Status, out.String())
			}
			t.Logf("took %.0f s", result.Total.Seconds())
		})
	}
}

// checks are what the scripts do; each tells what is wrong, and ends the script.
const checks = `
	wrong() { echo "$*; the journal:"; journalctl -u 'mpcc*' -n 40 --no-pager; exit 1; }
	is() { [ "$2" = "$3" ] || wrong "$1 is \"$2\", want \"$3\""; }
	gone() { for f; do [ ! -e "$f" ] && [ ! -L "$f" ] || wrong "$f is there"; done; }
	served() { exec 3<>/dev/tcp/127.0.0.1/9956; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; grep -c '^mpcc_' <&3; exec 3>&-; }
	control() { cat /proc/sys/net/ipv4/tcp_congestion_control; }
	declared() {
		is "the exporter" "$(systemctl is-active mpcc-exporter.service)" active
		is "the congestion control" "$(control)" lia
		is "what runs" "$(mpcc config show)" "$(cat /root/declared)"
		[ "$(served)" -gt 0 ] || wrong "the exporter serves nothing"
	}
	counted() { is "what the path has used" "$(mpcc path show | awk '/^remote=/ { print $8 }')" 3.21G; }
	removed() {
		gone /usr/bin/mpcc /etc/mpcc /var/lib/mpcc /run/mpcc /sys/fs/bpf/mpcc /usr/lib/systemd/system/mpcc.service \
			/etc/systemd/system/multi-user.target.wants/mpcc{,-exporter,-paths}.service
		is "the congestion control" "$(control)" cubic
		is "what is offered" "$(cat /proc/sys/net/ipv4/tcp_available_congestion_control)" "reno cubic"
		is "the endpoint" "$(ip mptcp endpoint)" ""
		is "the rules" "$(ip rule | grep -c 1001 || true)" 0
		is "what has failed" "$(systemctl --failed --plain --no-legend)" ""
	}
`

const installPackage = `
	before=$(control)
	dpkg -i /mpcc_1.0.0-1_amd64.deb
	is "the version" "$(mpcc version | cut -d' ' -f2)" 1.0.0
	is "the congestion control" "$(control)" "$before"
	is "mpcc.service" "$(systemctl is-enabled mpcc.service) $(systemctl is-active mpcc.service)" "enabled inactive"
	is "the exporter" "$(systemctl is-enabled mpcc-exporter.service || true)" disabled
	[ -e /usr/share/man/man8/mpcc-load.8.gz ] && [ -e /usr/share/bash-completion/completions/mpcc ]
	mpcc config check /usr/share/doc/mpcc/examples/config.yaml

	cat >/usr/local/bin/wan0 <<-END
		#!/bin/sh -e
		ip link add wan0 type veth peer name peer0
		ip addr add 192.0.2.1/24 dev wan0
		ip link set wan0 up
		ip link set peer0 up
	END
	cat >/etc/systemd/system/wan0.service <<-END
		[Unit]
		Before=network-online.target
		[Service]
		Type=oneshot
		ExecStart=/bin/sh /usr/local/bin/wan0
		[Install]
		WantedBy=network-online.target
	END
	systemctl enable --now wan0.service

	cat >/etc/mpcc/config.yaml <<-END
		algorithms: [{name: lia}]
		defaults: [{cc: lia}]
		uses: [{what: lia, to: 203.0.113.0/24, dev: wan0}]
		energy: [{interface: wan0, profile: wifi-2012}]
		paths: [{path: wan0, rank: 2, quota: 20G/month}, {path: remote=198.51.100.0/24, quota: 5G}]
		mptcp:
		  - limits: {subflows: 5, add_addr_accepted: 5}
		    endpoints: [{address: 192.0.2.1, dev: wan0, flags: [subflow]}]
		source_routes:
		  - {from: 192.0.2.1, table: 1001, routes: [{dev: wan0, via: 192.0.2.2}]}
	END
	systemctl start mpcc.service
	systemctl enable --now mpcc-exporter.service
	mpcc config show >/root/declared
	for part in 'name: lia' 'cc: lia' 'to: 203.0.113.0/24' 'address: 192.0.2.1' 'subflows: 5' 'table: 1001' 'profile: wifi-2012' 'rank: 2'; do
		grep -q "$part" /root/declared || wrong "config show has no $part"
	done
	declared
	is "mpcc.service" "$(systemctl is-active mpcc.service)" active

	# No file has this count before the machine goes down.
	systemctl enable --now mpcc-paths.service
	until [ -e /var/lib/mpcc/paths.json ]; do sleep 0.1; done
	mpcc path set remote=198.51.100.0/24 --used 3.21G
	counted
	cp /proc/sys/kernel/random/boot_id /root/boot_id

	# The machine goes down before this is confirmed.
	cp /etc/mpcc/config.yaml /root/good.yaml
	grep ^paths: /root/good.yaml >/etc/mpcc/config.yaml
	echo 'mptcp: [{limits: {subflows: 1, add_addr_accepted: 1}}]' >>/etc/mpcc/config.yaml
	mpcc apply --confirm 1000s
`

const upgradePackage = `
	[ "$(cat /proc/sys/kernel/random/boot_id)" != "$(cat /root/boot_id)" ] || wrong "the machine was not restarted"
	declared
	counted
	journalctl -u mpcc.service --no-pager | grep -q 'not confirmed; what was before is in place' || wrong "no word of the file"
	cp /root/good.yaml /etc/mpcc/config.yaml
	systemctl restart mpcc.service
	declared
	old=$(systemctl show -P MainPID mpcc-exporter.service)
	dpkg -i /mpcc_1.0.1-1_amd64.deb
	is "the version" "$(mpcc version | cut -d' ' -f2)" 1.0.1
	[ "$(systemctl show -P MainPID mpcc-exporter.service)" != "$old" ] || wrong "the old exporter still runs"
	declared
	counted

	dpkg --purge mpcc
	removed
`

const rpmPackage = `
	rpm -i /mpcc-1.0.0-1.x86_64.rpm
	rpm -V mpcc
	is "the version" "$(mpcc version | cut -d' ' -f2)" 1.0.0
	is "mpcc.service" "$(systemctl is-enabled mpcc.service) $(systemctl is-active mpcc.service)" "enabled inactive"
	is "the exporter" "$(systemctl is-enabled mpcc-exporter.service || true)" disabled
	cp /root/good.yaml /etc/mpcc/config.yaml
	systemctl start mpcc.service
	systemctl enable --now mpcc-exporter.service
	declared
	old=$(systemctl show -P MainPID mpcc-exporter.service)
	rpm -U /mpcc-1.0.1-1.x86_64.rpm
	is "the version" "$(mpcc version | cut -d' ' -f2)" 1.0.1
	[ "$(systemctl show -P MainPID mpcc-exporter.service)" != "$old" ] || wrong "the old exporter still runs"
	declared

	rm /etc/mpcc/config.yaml # the user's: rpm would leave it
	rpm -e mpcc
	is "what rpm knows" "$(rpm -qa)" ""
	rm -r /var/lib/mpcc # the counts of quotas, which rpm has no word to purge
	removed
`
