// SPDX-License-Identifier: Apache-2.0

// Package vm boots stock Debian kernels under QEMU, and runs commands in there as
// root. README.md says how.
package vm

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec is one command to run in a VM of its own.
type Spec struct {
	Kernel Kernel
	Cmd    []string          // program, which is looked for in the guest's PATH, and arguments
	Env    map[string]string // beside PATH, HOME, LANG, MPCC_KERNEL (the label) and MachineVariable

	// Files that the guest gets: path in the guest → file or folder of the host.
	Files map[string]string

	// Stdout gets what the command prints on its standard output and error; nil drops it.
	Stdout io.Writer

	// ResultsDir is an existing folder of the host that gets what the command
	// leaves in the guest's /results; "" drops that.
	ResultsDir string

	// Disk is a file that NewDisk has written; "" for none. The command is then a service of the disk's systemd,
	// which runs when all others have started, and at its end the machine shuts down as it should. What is changed
	// on the disk is there in the next run.
	Disk string

	// Build gives the guest what building the module in bpf/kmod takes (the kernel's headers, a
	// compiler, DKMS) instead of the module itself.
	Build bool

	// OwnTime has the clock of an emulated VM count the instructions that it runs, instead of following the
	// host's clock. On a busy host the command then takes longer, but measures the same.
	OwnTime bool

	// Instruction is how long an instruction takes in a VM's own time: a power of two of nanoseconds, 0 for 4 ns. With
	// 1 ns the guest is as fast as a usual machine, and a time that the guest measures is a number of instructions; a
	// second of the guest's takes the host four times as long.
	Instruction time.Duration

	// Alike starts an emulated VM in its own time at the same date and with the same seed of random numbers in each run.
	Alike bool

	// Limit is how long the command may run, on the host's clock; 0: as long as it takes.
	Limit time.Duration

	// Interactive ties the command to this terminal instead of Stdout.
	Interactive bool

	// Stage is told, in a few words, what comes next: fetching and building, which the cache spares later
	// runs, and booting. It may be nil.
	Stage func(string)
}

// Result says how a command ended.
type Result struct {
	Status  int           // the command's exit status, 127 when it was not found
	Release string        // of the kernel, as uname -r
	Accel   string        // kvm or tcg
	Boots   int           // how many boots it took until the command began
	Boot    time.Duration // from the start of QEMU to that of the command
	Total   time.Duration // from the start of QEMU to the last of the results
}

// MachineVariable is an environment variable of the command. It says in a line what machine it runs on.
const MachineVariable = "MPCC_MACHINE"

const (
	memory      = "3072" // MiB
	cpus        = "2"
	bootTimeout = 10 * time.Minute // a boot takes some seconds on an idle machine, and ten times that on a busy one
	consoleTail = 40               // lines of the console in an error

	// In about one boot of a hundred the kernel dies in its first seconds: QEMU's emulation of two CPUs
	// can let one run an instruction that the other one is just patching.
	maxBoots = 3
)

// Run boots the kernel, runs the command and brings its results back. The
// error is about the VM: it died, ctx ended, or the kernel warned of a bug in
// itself (Result is filled then). A command that fails is no error but a Status.
func Run(ctx context.Context, spec Spec) (Result, error) {
	c, err := openCache(spec.Stage)
	if err != nil {
		return Result{}, err
	}
	m, accel, remove, err := c.prepare(ctx, spec)
	if err != nil {
		return Result{}, err
	}
	defer remove()
	c.say("booting kernel " + spec.Kernel.Label)
	result, err := m.run(ctx, accel)
	text, read := os.ReadFile(m.console())
	err = errors.Join(err, read)
	bugs := kernelBugs(text)
	// The console is kept, since the error shows only its end: of the last VM, and of each one in trouble.
	name := "console-" + spec.Kernel.Label
	if err != nil || len(bugs) > 0 {
		name += "-" + m.mark
	}
	log := c.path(name + ".log")
	if renamed := os.Rename(m.console(), log); renamed != nil {
		return result, errors.Join(err, renamed)
	}
	if err != nil {
		return result, fmt.Errorf("VM with kernel %s: %w\nits console (%s) ends:\n%s", spec.Kernel.Label, err, log, tail(text, consoleTail))
	}
	if len(bugs) > 0 {
		return result, fmt.Errorf("kernel %s complained (all of it in %s):\n%s", result.Release, log, strings.Join(bugs, "\n"))
	}
	return result, nil
}

// prepare returns a machine that can be booted, and how QEMU can run it: kvm or tcg.
func (c cache) prepare(ctx context.Context, spec Spec) (m machine, accel string, remove func(), err error) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return m, "", nil, err
	}
	defer unlock()
	if accel, err = c.accel(ctx, spec.Kernel); err != nil {
		return m, "", nil, err
	}
	var layers []string
	if !spec.Kernel.NoModule && !spec.Build {
		module, err := c.module(ctx, spec.Kernel, accel)
		if err != nil {
			return m, "", nil, err
		}
		layers = []string{filepath.Join(module, "module.cpio")}
	}
	env := map[string]string{MachineVariable: spec.machine(accel)}
	maps.Copy(env, spec.Env)
	spec.Env = env
	m, remove, err = c.stage(ctx, spec, layers...)
	return m, accel, remove, err
}

// machine returns the value of MachineVariable.
func (s Spec) machine(accel string) string {
	switch {
	case accel == "kvm":
		return "VM with KVM"
	case s.OwnTime:
		return fmt.Sprintf("emulated VM, in its own time (%d ns an instruction)", s.instruction())
	}
	return "emulated VM"
}

// instruction returns how long an instruction takes in the VM's own time.
func (s Spec) instruction() time.Duration { return cmp.Or(s.Instruction, 4*time.Nanosecond) }

// errNotBegun is wrapped if a VM died before the command began.
var errNotBegun = errors.New("the VM ended before it ran the command")

// machine is a folder with all that one boot needs.
type machine struct {
	dir  string
	mark string // random text at the beginning and at the end of the command's output
	spec Spec
}

func (m machine) console() string { return filepath.Join(m.dir, "console.log") }

// qemuArgs returns the command line of QEMU. The command's output comes through
// file descriptor 3, its status and results through 4.
func (m machine) qemuArgs(accel string) []string {
	p := m.spec.Kernel.processor()
	args := append(slices.Clone(p.machine), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", memory,
		"-kernel", filepath.Join(m.dir, "vmlinuz"), "-initrd", filepath.Join(m.dir, "initrd"),
		// loglevel=5 shows warnings, among them those in which the kernel reports a bug.
		"-append", "console="+p.serial+" loglevel=5 panic=-1 mitigations=off "+patience+" rdinit=/init systemd.unit=run-me.target MPCC_MARK="+m.mark,
		// No more ports and events than needed: the main loop looks at each of them whenever it wakes.
		"-device", "virtio-serial-pci,max_ports=3,ioeventfd=off",
		"-chardev", "file,id=out,path=/dev/fd/3", "-device", "virtserialport,nr=1,chardev=out",
		"-chardev", "file,id=end,path=/dev/fd/4", "-device", "virtserialport,nr=2,chardev=end",
		"-serial", "chardev:console")
	if m.spec.Disk != "" {
		// Nobody cares for the disk if the host goes down.
		args = append(args, "-drive", "if=none,id=disk,format=raw,cache=unsafe,file="+m.spec.Disk, "-device", "virtio-blk-pci,drive=disk")
	}
	if m.spec.Interactive {
		args = append(args, "-chardev", "stdio,signal=off,id=console,logfile="+m.console())
	} else {
		args = append(args, "-chardev", "file,id=console,path="+m.console())
	}
	if accel == "kvm" {
		return append(args, "-smp", cpus, "-accel", "kvm", "-cpu", "host")
	}
	args = append(args, "-cpu", p.cpu)
	if m.spec.OwnTime {
		// The guest's sleep takes no time of the host's. A second CPU would gain nothing: they would take turns.
		shift := bits.TrailingZeros64(uint64(m.spec.instruction()))
		args = append(args, "-smp", "1", "-accel", "tcg,thread=single", "-icount", fmt.Sprintf("shift=%d,sleep=off,align=off", shift))
		if m.spec.Alike {
			return append(args, "-rtc", "base=2026-01-01,clock=vm", "-seed", "1")
		}
		return append(args, "-rtc", "clock=vm")
	}
	return append(args, "-smp", cpus, "-accel", "tcg,thread=multi")
}

// run boots the VM, again if it dies before the command begins, and waits for its end.
func (m machine) run(ctx context.Context, accel string) (result Result, err error) {
	for boots := 1; boots <= maxBoots; boots++ {
		result, err = m.boot(ctx, accel)
		result.Boots = boots
		if accel != "tcg" || !errors.Is(err, errNotBegun) {
			break
		}
	}
	return result, err
}

// boot runs the VM until the command's results are here.
func (m machine) boot(ctx context.Context, accel string) (result Result, err error) {
	// Stay on this thread: Pdeathsig kills QEMU when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var complaint bytes.Buffer
	start := time.Now()
	unpin := func() {}
	if m.spec.OwnTime && accel == "tcg" {
		cpu, leave, err := takeCPU("mpcc-vm")
		if err != nil {
			return result, err
		}
		defer leave()
		if unpin, err = pin(cpu); err != nil {
			return result, err
		}
	}
	qemu, out, end, err := m.start(ctx, accel, &complaint)
	unpin()
	if err != nil {
		return result, err
	}
	defer out.Close()
	defer end.Close()
	late := time.AfterFunc(bootTimeout, func() {
		cancel(fmt.Errorf("did not boot within %s", bootTimeout))
	})
	defer late.Stop()

	// Both come to their end when QEMU dies.
	result.Accel = accel
	printed := make(chan error)
	go func() {
		printed <- m.readOutput(out, func(release string) {
			late.Stop()
			result.Boot, result.Release = time.Since(start), release
			if limit := m.spec.Limit; limit > 0 {
				go func() {
					select {
					case <-ctx.Done():
					case <-time.After(limit):
						cancel(fmt.Errorf("the command took more than %v", limit))
					}
				}()
			}
		})
	}()
	var results error
	result.Status, results = m.readResults(end)
	err = errors.Join(<-printed, results)
	result.Total = time.Since(start)

	cause := context.Cause(ctx)
	cancel(nil)
	waited := qemu.Wait()
	switch {
	case err == nil:
		return result, nil // QEMU was stopped on purpose
	case cause != nil:
		return result, cause
	}
	if errors.Is(waited, context.Canceled) {
		waited = nil
	}
	return result, errors.Join(err, explain(qemu, waited, complaint.String()))
}

// start starts QEMU. out gives the command's output, end its status and results.
func (m machine) start(ctx context.Context, accel string, complaint io.Writer) (qemu *exec.Cmd, out, end *os.File, err error) {
	if err := os.WriteFile(m.console(), nil, 0o644); err != nil {
		return nil, nil, nil, err
	}
	out, outW, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer outW.Close()
	end, endW, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, errors.Join(err, out.Close())
	}
	defer endW.Close()
	qemu = command(ctx, m.spec.Kernel.processor().qemu, m.qemuArgs(accel)...)
	qemu.Cancel = func() error { return qemu.Process.Signal(syscall.SIGTERM) } // QEMU then resets the terminal
	qemu.WaitDelay = 5 * time.Second
	qemu.ExtraFiles = []*os.File{outW, endW}
	qemu.Stderr = complaint
	if m.spec.Interactive {
		qemu.Stdin, qemu.Stdout = os.Stdin, os.Stdout
	}
	if err := qemu.Start(); err != nil {
		return nil, nil, nil, errors.Join(explain(qemu, err, ""), out.Close(), end.Close())
	}
	return qemu, out, end, nil
}

// takeCPU reserves a place for a VM on a CPU until leave is called: of the CPUs that this process may use, on the one with the
// fewest places reserved. A reservation is a listening abstract Unix socket whose name ends in the numbers of the place and
// the CPU: other processes cannot bind the same name, and the kernel closes the socket when its process ends, however that ends.
func takeCPU(name string) (cpu int, leave func(), err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, nil, fmt.Errorf("which CPUs there are: %w", err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < allowed.Count(); cpu++ {
		if allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	for place := 0; ; place++ {
		for _, cpu := range cpus {
			reservation, err := net.Listen("unix", fmt.Sprintf("@%s-%d-%d", name, place, cpu))
			if err == nil {
				return cpu, func() { _ = reservation.Close() }, nil
			}
			if !errors.Is(err, unix.EADDRINUSE) {
				return 0, nil, fmt.Errorf("reserve CPU %d for a VM: %w", cpu, err)
			}
		}
	}
}

// pin keeps this thread, and QEMU when the thread starts it, on one CPU until unpin is called. In its own time an
// emulated VM takes turns with QEMU's main loop, which it wakes at each of its timers. On two CPUs both spend their
// time waiting for each other: the VM takes twice as long, and two CPUs instead of one.
func pin(cpu int) (unpin func(), err error) {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("which CPUs there are: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("keep QEMU on one CPU: %w", err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &allowed) }, nil
}

// readOutput copies the command's output to Spec.Stdout, up to the mark. began is called when the guest's first
// line, which comes before the command, is there.
func (m machine) readOutput(r io.Reader, began func(release string)) error {
	in := bufio.NewReader(r)
	line, err := in.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return errNotBegun
	}
	if err != nil {
		return err
	}
	release, ok := strings.CutPrefix(strings.TrimSpace(line), m.mark+" ")
	if !ok {
		return fmt.Errorf("the VM began with %q", line)
	}
	began(release)
	out := m.spec.Stdout
	if out == nil {
		out = io.Discard
	}
	err = copyUntil(out, in, m.mark)
	if errors.Is(err, io.EOF) {
		return errors.New("the VM ended while the command ran")
	}
	return err
}

// copyUntil copies r to w up to a mark, which it reads but does not copy. It
// copies at once what cannot be the beginning of the mark. The error is io.EOF if
// no mark comes.
func copyUntil(w io.Writer, r io.Reader, mark string) error {
	var held []byte
	chunk := make([]byte, 64<<10)
	for {
		n, err := r.Read(chunk)
		held = append(held, chunk[:n]...)
		if before, _, found := bytes.Cut(held, []byte(mark)); found {
			_, err := w.Write(before)
			return err
		}
		keep := min(len(held), len(mark)-1)
		for !strings.HasPrefix(mark, string(held[len(held)-keep:])) {
			keep--
		}
		if err != nil {
			keep = 0
		}
		if _, err := w.Write(held[:len(held)-keep]); err != nil {
			return err
		}
		held = slices.Clone(held[len(held)-keep:])
		if err != nil {
			return err
		}
	}
}

// readResults returns the command's status, and unpacks the results, which follow it.
func (m machine) readResults(r io.Reader) (int, error) {
	in := bufio.NewReader(r)
	line, err := in.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return 0, nil // readOutput has the error
	}
	if err != nil {
		return 0, err
	}
	status, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return 0, fmt.Errorf("the command's status: %w", err)
	}
	if err := untar(in, m.spec.ResultsDir); err != nil {
		return 0, fmt.Errorf("the results: %w", err)
	}
	return status, nil
}

// accel returns kvm or tcg. A boot shows whether KVM works here: there may be a
// /dev/kvm that cannot run a stock kernel. It has only the host's processor. Call it with the cache locked.
func (c cache) accel(ctx context.Context, k Kernel) (string, error) {
	if k.GOARCH() != hostArch {
		if _, err := exec.LookPath(k.processor().qemu); err != nil {
			return "", fmt.Errorf("%w, on Debian: apt install qemu-system-arm", err)
		}
		return "tcg", nil
	}
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		return "tcg", nil
	} else {
		f.Close()
	}
	version, err := output(command(ctx, processors[hostArch].qemu, "--version"))
	if err != nil {
		return "", err
	}
	host, err := os.ReadFile("/proc/version")
	if err != nil {
		return "", err
	}
	dir, err := c.entry("accel", version+string(host), false, func(dir string) error {
		c.say("trying whether KVM can boot a kernel here")
		m, remove, err := c.stage(ctx, Spec{Kernel: k, Cmd: []string{"true"}})
		if err != nil {
			return err
		}
		defer remove()
		probe, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		verdict := "kvm"
		if _, err := m.boot(probe, "kvm"); err != nil {
			verdict = "tcg"
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // the boot was cut short, and shows nothing
		}
		return os.WriteFile(filepath.Join(dir, "verdict"), []byte(verdict), 0o644)
	})
	if err != nil {
		return "", err
	}
	verdict, err := os.ReadFile(filepath.Join(dir, "verdict"))
	return string(verdict), err
}

// patience is how long the kernel waits before it reports that a CPU stands still, in seconds: its longest. A CPU of a VM
// stands still for the usual 21 when the host has too much to do, and for ever when the kernel has a fault.
const patience = "rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60"

// bug matches a line in which the kernel reports a fault of its own.
var bug = regexp.MustCompile(`^\[ *\d+\.\d+\].*(WARNING:|BUG:|Oops|general protection|rcu: INFO|INFO: task .* blocked|unregister_netdevice: waiting)`)

// kernelBugs returns the lines of the console that report a fault of the kernel.
func kernelBugs(console []byte) []string {
	var bugs []string
	for line := range bytes.Lines(console) {
		if line = bytes.TrimSpace(line); bug.Match(line) {
			bugs = append(bugs, string(line))
		}
	}
	return bugs
}

// tail returns the last n lines of a console, and more where a panic began before them: that line gives its reason.
func tail(console []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(console)), "\n")
	from := max(0, len(lines)-n)
	panicked := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "Kernel panic") })
	if panicked >= 0 {
		from = min(from, panicked)
	}
	return strings.Join(lines[from:], "\n")
}
