// SPDX-License-Identifier: Apache-2.0

//go:build vm

package kernels

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/vm"
)

var kernelFlag = flag.String("kernel", strings.Join(Labels(), ","), "labels of the kernels to boot, with commas between")

// perKernel is how long the tests of one VM may take on the host's clock: several times what they need, so that it ends
// only what hangs. The test binary in the VM stops a minute earlier, so that Go shows the goroutines of a test that hangs.
const perKernel = 80 * time.Minute

// expectedSkips lists, by kernel, the tests of test/e2e that skip there.
var expectedSkips = map[string][]string{}

// TestE2E runs all of test/e2e, in VMs with each kernel, for make verify; every test in there is a
// subtest here. -run reaches them too: -run 'TestE2E/6.12/TestLoad'.
func TestE2E(t *testing.T) {
	files, tests := guest(t)
	monitoring, err := prometheus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	monitored := maps.Clone(files) // 180 MB more, with which a boot takes longer
	maps.Copy(monitored, monitoring)
	var ownTime, jobs, installs, others []job
	built := buildPackages(t, "1.0.0", "amd64", "arm64")
	for label := range strings.SplitSeq(*kernelFlag, ",") {
		kernel := find(t, label)
		if kernel == arm64 {
			others = append(others, job{label, func(t *testing.T) { testARM64(t, tests, built) }})
			continue
		}
		spec := vm.Spec{Kernel: kernel, Files: files}
		if label == Labels()[0] {
			spec.Files = monitored
		}
		tested := job{label, func(t *testing.T) { testKernel(t, spec, tests, forKernel(tests, spec)) }}
		if kernel == old {
			others = append(others, tested)
			continue
		}
		jobs = append(jobs, tested)
		if label == Labels()[0] {
			spec := vm.Spec{Kernel: kernel, Files: files, OwnTime: true}
			all := forKernel(tests, spec)
			for part, chosen := range halves(all) {
				if asked(all) && !asked(chosen) {
					continue // the other half has what -run asks for
				}
				ownTime = append(ownTime, job{fmt.Sprintf("own-time-%d", part+1), func(t *testing.T) {
					testKernel(t, spec, tests, chosen)
				}})
			}
			others = append(others, job{"packages", func(t *testing.T) { testPackages(t, kernel, built) }})
		}
		name := "install"
		if withDKMS(kernel) {
			name = "install-with-dkms"
		}
		installs = append(installs, job{name, func(t *testing.T) { testInstall(t, kernel, files, built) }})
	}
	// Two VMs run at a time. A VM in its own time keeps one core of the host busy; a VM on the host's clock mostly waits for
	// the links and timers of its test networks. Short jobs are last, so that both lanes end at about the same time.
	first, kernel := min(1, len(ownTime)), min(1, len(jobs))
	twoAtATime(t, slices.Concat(ownTime[:first], jobs[:kernel], ownTime[first:], jobs[kernel:], installs, others))
}

// A job boots one VM or a few, one after the other.
type job struct {
	name string
	run  func(*testing.T)
}

// twoAtATime runs jobs in their order, which t.Parallel would leave to Go. On two cores a third VM would make all slower
// than one after the other, and fail what is timed.
func twoAtATime(t *testing.T, jobs []job) {
	var lanes sync.WaitGroup
	next := make(chan job)
	for range 2 {
		lanes.Go(func() {
			for job := range next {
				t.Run(job.name, job.run)
			}
		})
	}
	for _, job := range jobs {
		next <- job
	}
	close(next)
	lanes.Wait()
}

func find(t *testing.T, label string) vm.Kernel {
	t.Helper()
	kernel, err := Find(label)
	if err != nil {
		t.Fatal(err)
	}
	return kernel
}

// guest returns the files that the VMs get, and the names of the tests in there.
func guest(t *testing.T) (files map[string]string, tests []string) {
	files, remove, err := ProjectFiles(t.Context(), vm.Kernel{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	listed, err := exec.CommandContext(t.Context(), files[guestTests], "-test.list=.").Output()
	if err != nil {
		t.Fatal(err)
	}
	return files, strings.Fields(string(listed))
}

// isFor says by its name whether a test of test/e2e runs in a VM:
//
//	TestAnyKernel…   with every kernel
//	TestOldKernel…   with the one that is too old for mpcc
//	TestOneKernel…   with the first one, as it is about mpcc, not about the kernel
//	TestNewKernel…   with the second one, for the same reason
//	TestOwnTime…     with the first one in its own time, as a busy host would spoil it
//	TestARM64…       with arm64 only, as that is emulated slowly, and no other test runs there
//	TestHost…        with none: make unit runs them with the machine's own kernel
//	TestVerify…      with none: make verify runs them
//	others           with every kernel that mpcc runs on
func isFor(test string, spec vm.Spec) bool {
	switch {
	case strings.HasPrefix(test, "TestARM64"), spec.Kernel == arm64:
		return strings.HasPrefix(test, "TestARM64") && spec.Kernel == arm64
	case strings.HasPrefix(test, "TestOwnTime"), spec.OwnTime:
		return strings.HasPrefix(test, "TestOwnTime") && spec.OwnTime
	case strings.HasPrefix(test, "TestHost"), strings.HasPrefix(test, "TestVerify"):
		return false
	case strings.HasPrefix(test, "TestAnyKernel"):
		return true
	case strings.HasPrefix(test, "TestOldKernel"):
		return spec.Kernel == old
	case strings.HasPrefix(test, "TestOneKernel"):
		return spec.Kernel.Label == Labels()[0]
	case strings.HasPrefix(test, "TestNewKernel"):
		return spec.Kernel.Label == Labels()[1]
	}
	return spec.Kernel != old
}

// forKernel returns the tests that run in such a VM.
func forKernel(tests []string, spec vm.Spec) (chosen []string) {
	for _, test := range tests {
		if isFor(test, spec) {
			chosen = append(chosen, test)
		}
	}
	return chosen
}

// testARM64 runs the tests for arm64 with the mpcc of the Debian package.
func testARM64(t *testing.T, tests []string, built packages) {
	files, remove, err := ProjectFiles(t.Context(), arm64)
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	tree := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "dpkg-deb", "-x", built.file(t, "mpcc_1.0.0-1_arm64.deb"), tree)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	files[guestBin] = filepath.Join(tree, guestBin)
	spec := vm.Spec{Kernel: arm64, Files: files}
	testKernel(t, spec, tests, forKernel(tests, spec))
}

// halves deals the tests out to two VMs.
func halves(tests []string) (parts [2][]string) {
	for i, test := range tests {
		parts[i%2] = append(parts[i%2], test)
	}
	return parts
}

// asked says whether -run asks for some of the tests.
func asked(tests []string) bool {
	test, _, _ := strings.Cut(innerPattern(), "/")
	return slices.ContainsFunc(tests, regexp.MustCompile(test).MatchString)
}

// testKernel runs the chosen ones of all tests, as far as -run asks for them.
func testKernel(t *testing.T, spec vm.Spec, tests, chosen []string) {
	label, inner := spec.Kernel.Label, innerPattern()
	others := slices.DeleteFunc(slices.Clone(tests), func(test string) bool { return slices.Contains(chosen, test) })
	args := []string{"-test.skip=^(" + strings.Join(others, "|") + ")$", "-test.run=" + inner}
	skipped := map[string]bool{}
	missing := slices.Clone(chosen)
	if bootAndTest(t, spec, args, func(test *guestTest) {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == test.Name })
		replay(t, label, test, test.Name, skipped)
	}) == 0 {
		t.Error("no test ran in the VM")
	}
	if inner == "" {
		if len(missing) > 0 {
			t.Errorf("these did not run in the VM: %s", strings.Join(missing, ", "))
		}
		for _, name := range expectedSkips[label] {
			if !skipped[name] {
				t.Errorf("%s is expected to skip and did not", name)
			}
		}
	}
}

// bootAndTest runs the tests that the arguments choose, calls done with each, and returns how many ran.
func bootAndTest(t *testing.T, spec vm.Spec, args []string, done func(*guestTest)) int {
	ctx, cancel := context.WithTimeoutCause(t.Context(), perKernel,
		errors.New("the tests took more than "+perKernel.String()))
	defer cancel()
	spec.Env = ProjectEnv()
	spec.Cmd = append([]string{
		guestTests, "-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + (perKernel - time.Minute).String(),
	}, args...)

	printed, stdout := io.Pipe()
	spec.Stdout = stdout
	convert := exec.CommandContext(ctx, "go", "tool", "test2json", "-t") // -t: with times
	convert.Stdin = printed
	convert.Stderr = os.Stderr
	events, err := convert.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := convert.Start(); err != nil {
		t.Fatal(err)
	}

	ended := runInBackground(ctx, spec, stdout)
	ran, failed := 0, 0
	rest, err := readTests(events, func(test *guestTest) {
		ran++
		if test.Outcome == "fail" {
			failed++
		}
		done(test)
	})
	if err != nil {
		t.Error(err)
	}
	if err := convert.Wait(); err != nil {
		t.Errorf("go tool test2json: %v", err)
	}
	end := <-ended
	if end.err != nil {
		t.Errorf("%v\n%s", end.err, rest)
		return ran
	}
	t.Logf("Linux %s under %s: booted in %.1fs (start %d), %d tests, %.1fs in all", end.result.Release,
		end.result.Accel, end.result.Boot.Seconds(), end.result.Boots, ran, end.result.Total.Seconds())
	if end.result.Status != 0 && failed == 0 {
		t.Errorf("the tests ended with status %d though none failed:\n%s", end.result.Status, rest)
	}
	return ran
}

// ending is how a VM came to its end.
type ending struct {
	result vm.Result
	err    error
}

// runInBackground runs a VM, and closes stdout, to which its command prints, when it has ended.
func runInBackground(ctx context.Context, spec vm.Spec, stdout io.Closer) <-chan ending {
	ended := make(chan ending, 1)
	go func() {
		result, err := vm.Run(ctx, spec)
		stdout.Close()
		ended <- ending{result, err}
	}()
	return ended
}

// replay reports a test of the VM as a subtest of t, with its subtests.
func replay(t *testing.T, label string, test *guestTest, name string, skipped map[string]bool) {
	t.Run(test.Name, func(t *testing.T) {
		t.Logf("%s in the VM\n%s", test.Duration, test.Output)
		for _, sub := range test.Subtests {
			replay(t, label, sub, path.Join(name, sub.Name), skipped)
		}
		if fault := test.verdict(slices.Contains(expectedSkips[label], name)); fault != "" {
			t.Error(fault)
		} else if test.Outcome == "skip" {
			skipped[name] = true
			t.SkipNow()
		}
	})
}

// innerPattern returns what -run says of the tests inside, below TestE2E/LABEL.
func innerPattern() string {
	parts := strings.SplitN(flag.Lookup("test.run").Value.String(), "/", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[2]
}

// Whatever output, status, environment and results there are come through unchanged.
func TestRunBringsEverythingBack(t *testing.T) {
	t.Parallel() // after the kernels
	results := t.TempDir()
	var out strings.Builder
	result, err := vm.Run(t.Context(), vm.Spec{
		Kernel:  find(t, "6.12"),
		OwnTime: true,
		Env:     map[string]string{"WORD": "it's a \"$HOME\""},
		Files:   map[string]string{"/etc/vm/": "cmd"},
		Cmd: []string{"sh", "-c", `
			printf '%s|%s|' "$WORD" "$MPCC_KERNEL"; printf err >&2
			mkdir /results/sub
			head -c 3000000 /dev/zero | tr '\0' x >/results/sub/big
			test -f /etc/vm/vm/main.go && exit 42`},
		Stdout:     &out,
		ResultsDir: results,
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := `it's a "$HOME"|6.12|err`; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
	if result.Status != 42 {
		t.Errorf("status %d, want 42", result.Status)
	}
	big, err := os.ReadFile(filepath.Join(results, "sub", "big"))
	if err != nil || string(big) != strings.Repeat("x", 3000000) {
		t.Errorf("results came back as %d bytes, error %v", len(big), err)
	}
}

// writerFunc is an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A VM that dies or hangs, or whose kernel warns, gives an error that shows the console.
func TestRunReportsATroubledVM(t *testing.T) {
	t.Parallel() // after the kernels
	for name, test := range map[string]struct{ script, want string }{
		"panic":   {"echo c >/proc/sysrq-trigger", "sysrq triggered crash"},
		"hang":    {"echo still here; while :; do :; done", "context canceled"},
		"warning": {"echo '<4>WARNING: CPU: 0 PID: 1 at made/up.c' >/dev/kmsg; sleep 1", "WARNING: CPU: 0 PID: 1 at made/up.c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var said strings.Builder
			printed := writerFunc(func(p []byte) (int, error) {
				said.Write(p)
				if strings.Contains(said.String(), "still here") {
					cancel() // it hangs: that is as good as a time limit
				}
				return len(p), nil
			})
			_, err := vm.Run(ctx, vm.Spec{Kernel: find(t, "6.12"), OwnTime: true, Cmd: []string{"sh", "-c", test.script}, Stdout: printed})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// mpcc run --vm says what it does, a line each, and brings the results here.
func TestRunCommand(t *testing.T) {
	t.Parallel() // after the kernels
	program := filepath.Join(t.TempDir(), "mpcc")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/mpcc/mpcc/cmd/mpcc").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path, out := filepath.Join(t.TempDir(), "short.yaml"), filepath.Join(t.TempDir(), "results")
	text := `
name: short
title: A short run
source: none
sweep:
  - {name: cc, values: [reno, cubic]}
phases: {measure: 1 s}
hosts: [{name: a}, {name: b}]
links:
  - {name: one, between: [a, b], rate: 10 Mbit/s, delay: 5 ms}
users: [{name: user, from: a, to: b, cc: $(cc), transport: tcp, traffic: bulk}]
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), program, "run", path, "--vm", "--out", out)
	cmd.Stderr = &said
	shown, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	t.Logf("%s%s", said.String(), shown)
	// What the cache lacked comes before.
	if want := "short: booting kernel 6.12\nshort: run 1 of 2, cc reno\nshort: run 2 of 2, cc cubic\n"; !strings.HasSuffix(said.String(), want) {
		t.Errorf("it said %q, want %q at the end", said.String(), want)
	}
	if want := "\nresults in " + out + "\n"; !strings.HasSuffix(string(shown), want) || strings.Count(string(shown), "results in") != 1 {
		t.Errorf("it showed %q, want %q at the end", shown, want)
	}
	results, err := result.Read(out)
	if err != nil || len(results.Runs) != 2 {
		t.Errorf("the results are %+v, %v", results, err)
	}
}
