// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// How long a command may take; and one that is expected to fail, since the kernel lacks something.
const (
	longest = 2 * time.Minute
	shorter = 10 * time.Second
)

// session is a shell in a sandbox.
type session struct {
	dir     string // has the sandbox's folders
	shell   *exec.Cmd
	in      *os.File
	results chan string // an exit code after each command
	ended   chan struct{}
	n       int

	patience time.Duration
}

// install has in a folder what make install puts into its PREFIX, and what only the sandbox needs.
func install(prefix, mpcc, headers string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Join(prefix, "bin")
	if err := os.MkdirAll(filepath.Join(prefix, "include"), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"serve", "traffic"} {
		if err := os.Symlink("sandbox", filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for name, file := range map[string]string{"mpcc": mpcc, "sandbox": self} {
		if err := copyFile(file, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return os.CopyFS(filepath.Join(prefix, "include", "mpcc"), os.DirFS(headers))
}

// open makes a sandbox with the mpcc that is installed at prefix, and with folders of its own in dir.
func open(dir, prefix string, network Network) (*session, error) {
	s := &session{dir: dir, results: make(chan string, 1), ended: make(chan struct{}), patience: longest}
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	results, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	said := filepath.Join(dir, "sandbox.log")
	log, err := os.Create(said)
	if err != nil {
		return nil, err
	}
	s.shell, s.in = exec.Command(filepath.Join(prefix, "bin", "sandbox"), prefix, dir, network.String()), in
	s.shell.Stdin, s.shell.Stdout, s.shell.Stderr = stdin, log, log
	s.shell.ExtraFiles = []*os.File{out}
	s.shell.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL, // and with the first process of a PID namespace all others end
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread that has started it
		err := s.shell.Start()
		started <- err
		if err == nil {
			_ = s.shell.Wait()
			close(s.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	stdin.Close()
	out.Close()
	log.Close()
	go func() {
		lines := bufio.NewScanner(results)
		for lines.Scan() {
			s.results <- lines.Text()
		}
		close(s.results)
	}()
	if _, _, err := s.run(Step{Command: "set -m; ip link set lo up; ip netns exec server serve & disown"}); err != nil {
		text, _ := os.ReadFile(said)
		return nil, errors.Join(fmt.Errorf("the sandbox: %w: %s", err, text), s.close())
	}
	return s, nil
}

// close ends the sandbox with all that runs in it.
func (s *session) close() error {
	s.in.Close()
	_ = s.shell.Process.Kill()
	<-s.ended
	return removeCgroups()
}

// run runs a command in the shell, and returns its exit code, and the lines that it has printed.
func (s *session) run(step Step) (code int, lines []string, err error) {
	s.n++
	file := func(kind string) string { return filepath.Join(s.dir, fmt.Sprintf("%d.%s", s.n, kind)) }
	if err := os.WriteFile(file("sh"), []byte(step.Command+"\n"), 0o600); err != nil {
		return 0, nil, err
	}
	output := func() []string {
		text, _ := os.ReadFile(file("out"))
		if len(text) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	call := fmt.Sprintf(". %s >%s 2>&1 </dev/null; echo $? >&3\n", file("sh"), file("out"))
	if step.Interrupt {
		call = fmt.Sprintf("(. %[1]s) >%[2]s 2>&1 </dev/null & job=$!; "+
			"(until [ -e %[3]s ]; do sleep 0.05; done; kill -INT -$job) & "+
			"wait $job; echo $? >&3; touch %[3]s\n", file("sh"), file("out"), file("stop"))
	}
	if _, err := s.in.WriteString(call); err != nil {
		return 0, nil, err
	}
	patience := time.After(s.patience)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case result, ok := <-s.results:
			if !ok {
				return 0, output(), errors.New("the shell has ended")
			}
			code, err = strconv.Atoi(result)
			return code, output(), err
		case <-look.C:
			if step.Interrupt && agrees(step.Want[:step.Until], output()) {
				step.Interrupt = false
				if err := os.WriteFile(file("stop"), nil, 0o600); err != nil {
					return 0, output(), err
				}
			}
		case <-patience:
			return 0, output(), fmt.Errorf("it has not ended, or not come to what the page shows, in %v", s.patience)
		}
	}
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}
