// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestSourcePackage(t *testing.T) {
	for release, want := range map[string]string{
		"6.12.107+deb13-cloud-amd64":      "linux-source-6.12",
		"7.2+deb14-cloud-amd64":           "linux-source-7.2",
		"7.3.1+deb13+bpo-cloud-amd64-rt7": "linux-source-7.3",
	} {
		if got, err := sourcePackage(release); got != want || err != nil {
			t.Errorf("%s: %q, error %v, want %q", release, got, err, want)
		}
	}
	if got, err := sourcePackage("cloud-amd64"); err == nil {
		t.Errorf("a release without a version gave %q", got)
	}
}

// Debian splits a kernel into packages in two ways.
func TestKernelPackages(t *testing.T) {
	archive := map[string]string{
		"linux-image-cloud-amd64/whole": "Depends: linux-image-6.12.9+deb13-cloud-amd64 (= 6.12.9-1)",
		"linux-image-6.12.9+deb13-cloud-amd64": "Depends: kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool\n" +
			"Recommends: linux-image-1.2",
		"linux-image-cloud-amd64/split": "Package: linux-image-cloud-amd64\nDepends: linux-base-cloud-amd64 (= 7.2-1), linux-image-7.2-cloud-amd64 (= 7.2-1)",
		"linux-image-7.2-cloud-amd64":   "Depends: dracut | linux-initramfs-tool, linux-base-7.2-cloud-amd64 (= 7.2-1), linux-binary-7.2-cloud-amd64 (= 7.2-1), linux-modules-7.2-cloud-amd64 (= 7.2-1)",
		"linux-base-7.2-cloud-amd64":    "Section: kernel",
		"linux-binary-7.2-cloud-amd64":  "Depends: linux-base-7.2-cloud-amd64 (= 7.2-1)",
		"linux-modules-7.2-cloud-amd64": "Depends: kmod, linux-base-7.2-cloud-amd64 (= 7.2-1)",
		"empty":                         "Depends: libc6",
	}
	show := func(names ...string) (string, error) {
		var texts []string
		for _, n := range names {
			text, ok := archive[n]
			if !ok {
				return "", errors.New("no package " + n)
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, "\n\n"), nil
	}
	for _, test := range []struct {
		meta string
		want []string
	}{
		{"linux-image-cloud-amd64/whole", []string{"linux-image-6.12.9+deb13-cloud-amd64"}},
		{"linux-image-cloud-amd64/split", []string{"linux-base-7.2-cloud-amd64", "linux-binary-7.2-cloud-amd64",
			"linux-image-7.2-cloud-amd64", "linux-modules-7.2-cloud-amd64"}},
	} {
		got, err := kernelPackages(test.meta, show)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v, packages (-want +got):\n%s", test.meta, err, diff)
		}
	}
	if got, err := kernelPackages("empty", show); err == nil {
		t.Errorf("a metapackage of no kernel gave %q", got)
	}
}

func TestMissingModules(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	builtin := ""
	for _, m := range neededModules[3:] {
		builtin += "kernel/some/" + m + ".ko\n"
	}
	write("modules.builtin", builtin)
	write("kernel/net/sched/sch_netem.ko.xz", "")
	write("kernel/net/sched/"+strings.ReplaceAll(neededModules[1], "_", "-")+".ko", "")
	got, err := missingModules(dir)
	if diff := cmp.Diff(neededModules[2:3], got); diff != "" || err != nil {
		t.Errorf("error %v, missing (-want +got):\n%s", err, diff)
	}
}

func TestCopyUntil(t *testing.T) {
	const mark = "aab"
	for _, test := range []struct {
		in, out string
		err     error
	}{
		{"text" + mark, "text", nil},
		{mark, "", nil},
		{"aa" + mark + "rest", "aa", nil},
		{"a" + mark, "a", nil},
		{"abab" + mark, "abab", nil},
		{"no mark aa", "no mark aa", io.EOF},
		{"", "", io.EOF},
	} {
		for name, reader := range map[string]io.Reader{
			"whole":        strings.NewReader(test.in),
			"byte by byte": iotest.OneByteReader(strings.NewReader(test.in)),
		} {
			var out strings.Builder
			err := copyUntil(&out, reader, mark)
			if out.String() != test.out || !errors.Is(err, test.err) {
				t.Errorf("%q %s: %q, %v; want %q, %v", test.in, name, out.String(), err, test.out, test.err)
			}
		}
	}
}

func TestKernelBugs(t *testing.T) {
	console := "[    0.1] calm\r\n" +
		"[   12.345678] WARNING: CPU: 1 PID: 9 at net/mptcp/protocol.c:1\r\n" +
		"user says WARNING: nothing\r\n" +
		"[    3.000000] BUG: unable to handle page fault\n" +
		"[    3.000001] Oops: 0002 [#1] SMP\n" +
		"[    4.000000] traps: general protection fault\n" +
		"[   60.000000] rcu: INFO: rcu_preempt self-detected stall on CPU\n" +
		"[   60.500000] INFO: task iperf3:99 blocked for more than 120 seconds.\n" +
		"[   60.600000] unregister_netdevice: waiting for lo to become free. Usage count = 2\n" +
		"[   61.000000] ACPI BIOS Warning (bug): harmless\n"
	want := []string{
		"[   12.345678] WARNING: CPU: 1 PID: 9 at net/mptcp/protocol.c:1",
		"[    3.000000] BUG: unable to handle page fault",
		"[    3.000001] Oops: 0002 [#1] SMP",
		"[    4.000000] traps: general protection fault",
		"[   60.000000] rcu: INFO: rcu_preempt self-detected stall on CPU",
		"[   60.500000] INFO: task iperf3:99 blocked for more than 120 seconds.",
		"[   60.600000] unregister_netdevice: waiting for lo to become free. Usage count = 2",
	}
	if diff := cmp.Diff(want, kernelBugs([]byte(console))); diff != "" {
		t.Errorf("bugs (-want +got):\n%s", diff)
	}
}

// The script is judged by the shell that will run it.
func TestTail(t *testing.T) {
	const panic = "[    9.2] Kernel panic - not syncing: sysrq triggered crash"
	trace := strings.Repeat("[    9.2]  a line\n", 50)
	for name, test := range map[string]struct{ console, want string }{
		"short":            {"one\ntwo\n", "one\ntwo"},
		"long":             {"one\n" + trace + "two\nthree\n", "[    9.2]  a line\ntwo\nthree"},
		"a panic":          {"one\n" + panic + "\n" + trace, panic + "\n" + strings.TrimSpace(trace)},
		"a panic, shortly": {"one\ntwo\n" + panic + "\nthree\n", "two\n" + panic + "\nthree"},
	} {
		if got := tail([]byte(test.console), 3); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestRunScript(t *testing.T) {
	script := runScript(Spec{
		Kernel: Kernel{Label: "6.12"},
		Env:    map[string]string{"A": "it's $HOME\n\"two\" lines"},
		Cmd:    []string{"printf", "%s,%s,%s,%s", "it's", "", "$A", `\`},
	})
	out, err := exec.Command("sh", "-c", strings.Replace(script, "exec ", "printf '%s,%s:' \"$A\" \"$MPCC_KERNEL\"; exec ", 1)).Output()
	if want := "it's $HOME\n\"two\" lines,6.12:it's,,$A,\\"; string(out) != want || err != nil {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}

// The bytes are as the format's description lays them out.
func TestCpioLayout(t *testing.T) {
	var buf bytes.Buffer
	w := newCpioWriter(&buf)
	if err := errors.Join(w.file("a/b", 0o755, 5, strings.NewReader("hello")), w.close()); err != nil {
		t.Fatal(err)
	}
	const zero = "00000000"
	header := func(inode, mode, size, nameSize string) string {
		return "070701" + inode + mode + zero + zero + "00000001" + zero + size + zero + zero + zero + zero + nameSize + zero
	}
	want := header("00000001", "000041ED", zero, "00000002") + "a\x00" +
		header("00000002", "000081ED", "00000005", "00000004") + "a/b\x00" + "\x00\x00" + "hello\x00\x00\x00" +
		header("00000003", zero, zero, "0000000B") + "TRAILER!!!\x00" + "\x00\x00\x00"
	if got := buf.String(); got != want {
		t.Errorf("archive\n%q\nwant\n%q", got, want)
	}
	if err := w.file("short", 0o644, 9, strings.NewReader("hello")); err == nil {
		t.Error("a file shorter than announced went unnoticed")
	}
}

func TestUntar(t *testing.T) {
	archive := func(h tar.Header, body string) io.Reader {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		h.Size = int64(len(body))
		err := w.WriteHeader(&h)
		_, wrote := io.WriteString(w, body)
		if err := errors.Join(err, wrote, w.Close()); err != nil {
			t.Fatal(err)
		}
		return &buf
	}
	dir := filepath.Join(t.TempDir(), "results")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := untar(archive(tar.Header{Name: "./f", Typeflag: tar.TypeReg, Mode: 0o600}, "body"), dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "f")); string(got) != "body" || err != nil {
		t.Errorf("f: %q, %v", got, err)
	}
	for name, h := range map[string]tar.Header{
		"outside": {Name: "../f", Typeflag: tar.TypeReg},
		"device":  {Name: "null", Typeflag: tar.TypeChar},
	} {
		if err := untar(archive(h, ""), dir); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// VMs side by side have CPUs of their own, in whatever order they end. More of them than CPUs spread evenly.
func TestVMsSideBySide(t *testing.T) {
	take := func() (int, func()) {
		cpu, leave, err := takeCPU("mpcc-test-" + strconv.Itoa(os.Getpid()))
		if err != nil {
			t.Fatal(err)
		}
		return cpu, leave
	}
	first, leaveFirst := take()
	second, leaveSecond := take()
	if runtime.NumCPU() > 1 && first == second {
		t.Errorf("two VMs on CPU %d", first)
	}
	leaveFirst()
	third, leaveThird := take()
	if third != first {
		t.Errorf("beside a VM on CPU %d, after one on CPU %d has ended, the next one is on CPU %d", second, first, third)
	}
	leaveSecond()
	leaveThird()

	on := map[int]int{}
	for range 2 * runtime.NumCPU() {
		cpu, leave := take()
		defer leave()
		on[cpu]++
	}
	for cpu, vms := range on {
		if vms != 2 {
			t.Errorf("%d VMs on CPU %d, two for each CPU", vms, cpu)
		}
	}
}
