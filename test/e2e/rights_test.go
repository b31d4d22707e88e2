// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/test/loaded"
)

// securityDoc is docs/security.md.
func securityDoc(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("MPCC_TESTDATA"), "../docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sentenced is a command of mpcc with other rights than the test's.
func sentenced(dir string, prefix []string, command string) *exec.Cmd {
	words := slices.Concat(prefix, strings.Fields(command))
	cmd := exec.Command("setpriv", words...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(os.Getenv("MPCC_BIN"))+":"+os.Getenv("PATH"))
	return cmd
}

// Each command of the table in docs/security.md works with exactly the capabilities that stand there, and says in a line
// that it is not permitted with one less.
func TestHostLeastRights(t *testing.T) {
	const ns = "mpcc-rights-test"
	loaded.Turn(t)
	untouched(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"scene.json": `{"subflows": [{"cwnd": 10, "srtt_us": 50000}]}`, "rights.yaml": "algorithms: [{name: dts}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := result.Create(filepath.Join(dir, "results"))
	if err == nil {
		err = folder.Write(&result.Result{Scenario: result.Scenario{Name: "none"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		mpcc(t, "apply", os.DevNull)
		mpcc(t, "unload", "--all")
		if out, err := exec.Command("ip", "netns", "del", ns).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})

	rows := regexp.MustCompile("(?m)^\\| `(mpcc [^`]+)` \\| ((?:CAP_\\w+ ?)+|none) \\|$").FindAllStringSubmatch(securityDoc(t), -1)
	if len(rows) < 30 {
		t.Fatalf("the table has %d rows that can be read", len(rows))
	}
	for _, row := range rows {
		command, all := strings.ReplaceAll(row[1], "phone", ns), strings.Fields(row[2])
		if row[2] == "none" {
			all = nil
		}
		for i, less := range all {
			out, err := withCapabilities(dir, command, slices.Delete(slices.Clone(all), i, i+1))
			if err == nil || !regexp.MustCompile(`(no privileges|not permitted).*it takes root`).MatchString(out) || strings.Contains(out, "\nmpcc:") {
				t.Errorf("%s without %s: %v, %q; want a line that says that it is not permitted, and what it takes", command, less, err, out)
			}
		}
		if out, err := withCapabilities(dir, command, all); err != nil {
			t.Errorf("%s with %s: %v: %s", command, row[2], err, out)
		}
	}
}

// withCapabilities runs a command to its end; an exporter, until it listens.
func withCapabilities(dir, command string, all []string) (string, error) {
	bounds := "--bounding-set=-all"
	for _, c := range all {
		bounds += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	cmd := sentenced(dir, []string{bounds}, command)
	if !strings.HasPrefix(command, "mpcc exporter") {
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	_, end, err := listening(cmd)
	return "", errors.Join(err, end())
}

// listening starts an exporter and waits until it listens. It returns the address, and what ends it.
func listening(cmd *exec.Cmd) (address string, end func() error, err error) {
	none := func() error { return nil }
	said, err := cmd.StderrPipe()
	if err != nil {
		return "", none, err
	}
	if err := cmd.Start(); err != nil {
		return "", none, err
	}
	end = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}
	var all strings.Builder
	for lines := bufio.NewScanner(io.TeeReader(said, &all)); lines.Scan(); {
		if found := regexp.MustCompile(`msg="Listening on" address=(\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return found[1], end, nil
		}
	}
	return "", none, errors.Join(errors.New(all.String()), cmd.Wait())
}

// Another user than root, to whom the commands in docs/security.md give the maps, can serve them.
func TestHostExporterOfAnotherUser(t *testing.T) {
	loaded.Turn(t)
	untouched(t)
	mpcc(t, "load", "dts")
	defer mpcc(t, "unload", "dts")
	_, block, _ := strings.Cut(securityDoc(t), "## The exporter as another user")
	_, block, _ = strings.Cut(block, "```\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.NewReplacer("chgrp -R mpcc-exporter", "chgrp -R nogroup", "--reuid mpcc-exporter", "--reuid nobody",
		"--regid mpcc-exporter", "--regid nogroup").Replace(block)
	give, serve, ok := strings.Cut(block, "setpriv ")
	prefix, command, ok2 := strings.Cut(strings.TrimSpace(serve), " mpcc ")
	if !ok || !ok2 || strings.Contains(block, "mpcc-exporter") {
		t.Fatalf("the commands cannot be read: %q", block)
	}
	// Where anybody may execute it: the test's folders are root's.
	program := filepath.Join(t.TempDir(), "mpcc")
	text, err := os.ReadFile(os.Getenv("MPCC_BIN"))
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	for dir := filepath.Dir(program); err == nil && dir != os.TempDir(); dir = filepath.Dir(dir) {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	exporter := func() *exec.Cmd {
		return sentenced("/", strings.Fields(prefix), program+" "+command+" --web.listen-address 127.0.0.1:0")
	}
	if _, _, err := listening(exporter()); err == nil || !strings.Contains(err.Error(), "mpcc: open the maps: not permitted") {
		t.Errorf("before: %v", err)
	}
	st, err := os.Stat("/sys/fs/bpf")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod("/sys/fs/bpf", st.Mode()) }()
	if out, err := exec.Command("sh", "-ec", give).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	address, end, err := listening(exporter())
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Timeout: time.Minute}
	answer, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	metrics, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mpcc_lost_subflows_total 0", `mpcc_collector_success{collector="telemetry"} 1`, `mpcc_collector_success{collector="paths"} 1`} {
		if !strings.Contains(string(metrics), "\n"+want+"\n") {
			t.Errorf("no %s in the scrape", want)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
