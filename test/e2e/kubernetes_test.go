// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/test/loaded"
)

// pod is of a DaemonSet what makes its one container's privileges.
type pod struct {
	image       string // the image's files
	HostNetwork bool   `yaml:"hostNetwork"`
	Containers  []struct {
		Args            []string
		SecurityContext struct {
			RunAsUser                uint32 `yaml:"runAsUser"`
			Privileged               bool
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop, Add []string }
			SeccompProfile           struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	Volumes []struct {
		Name      string
		ConfigMap *struct{ Name string } `yaml:"configMap"`
		HostPath  *struct{ Path string } `yaml:"hostPath"`
	}
}

func readPod(t *testing.T, image, name string) *pod {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("MPCC_DEPLOY"), "kubernetes/base", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Spec struct{ Template struct{ Spec pod } }
	}
	if err := yaml.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	p := &set.Spec.Template.Spec
	p.image = image
	s := p.Containers[0].SecurityContext
	if len(p.Containers) != 1 || !p.HostNetwork || s.Privileged || !s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || s.SeccompProfile.Type != "RuntimeDefault" {
		t.Fatalf("%s: a pod with other rights than these tests know: %+v", name, p)
	}
	return p
}

// without leaves a capability or a mount out.
func (p *pod) without(what string) *pod {
	changed := *p
	changed.Containers = slices.Clone(p.Containers)
	c := &changed.Containers[0]
	c.SecurityContext.Capabilities.Add = slices.DeleteFunc(slices.Clone(c.SecurityContext.Capabilities.Add),
		func(name string) bool { return name == what })
	c.VolumeMounts = slices.Clone(c.VolumeMounts)
	for i, m := range c.VolumeMounts {
		if m.MountPath == what {
			c.VolumeMounts = slices.Delete(c.VolumeMounts, i, i+1)
			break
		}
	}
	return &changed
}

// spec is the pod's container as containerd has runc run it on a node whose network is the host's: the same root file
// system, capabilities, mounts, read-only paths, and the seccomp profile that containerd's is made after.
func (p *pod) spec(t *testing.T, node *lab.Host, config string, args []string) *specs.Spec {
	t.Helper()
	c := p.Containers[0]
	var capabilities []string
	for _, name := range c.SecurityContext.Capabilities.Add {
		capabilities = append(capabilities, "CAP_"+name)
	}
	bind := func(from, to string, options ...string) specs.Mount {
		return specs.Mount{Type: "bind", Source: from, Destination: to, Options: append([]string{"rbind", "rprivate"}, options...)}
	}
	s := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: p.image, Readonly: c.SecurityContext.ReadOnlyRootFilesystem},
		Process: &specs.Process{
			Cwd: "/", Args: append([]string{"/usr/bin/mpcc"}, args...),
			User: specs.User{UID: c.SecurityContext.RunAsUser},
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			NoNewPrivileges: c.SecurityContext.AllowPrivilegeEscalation != nil && !*c.SecurityContext.AllowPrivilegeEscalation,
		},
		Mounts: []specs.Mount{
			{Type: "proc", Source: "proc", Destination: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Type: "tmpfs", Source: "tmpfs", Destination: "/dev", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
			{Type: "sysfs", Source: "sysfs", Destination: "/sys", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace, Path: "/run/netns/" + node.Namespace()},
			},
			MaskedPaths: []string{
				"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug",
				"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	for _, m := range c.VolumeMounts {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		for _, v := range p.Volumes {
			switch {
			case v.Name != m.Name:
			case v.ConfigMap != nil:
				s.Mounts = append(s.Mounts, bind(config, m.MountPath, "ro"))
			case v.HostPath != nil:
				s.Mounts = append(s.Mounts, bind(v.HostPath.Path, m.MountPath, access))
			}
		}
	}
	profile, err := seccomp.GetDefaultProfile(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Linux.Seccomp = profile
	return s
}

// container is one that runs.
type container struct {
	id, state string
	cmd       *exec.Cmd
	said      *bufio.Reader
	stderr    bytes.Buffer
}

// start starts the pod's container with runc. config is the folder that its ConfigMap is.
func (p *pod) start(t *testing.T, node *lab.Host, config string, args ...string) *container {
	t.Helper()
	bundle := t.TempDir()
	text, err := json.Marshal(p.spec(t, node, config, args))
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &container{id: fmt.Sprintf("mpcc-%d-%s", os.Getpid(), filepath.Base(bundle)), state: filepath.Join(bundle, "state")}
	c.cmd = exec.Command("runc", "--root", c.state, "run", "--bundle", bundle, c.id)
	c.cmd.Stderr = io.MultiWriter(&c.stderr, t.Output())
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.said = bufio.NewReader(out)
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = exec.Command("runc", "--root", c.state, "delete", "--force", c.id).Run()
			_ = c.cmd.Wait()
		}
	})
	return c
}

// says waits for a line that matches.
func (c *container) says(t *testing.T, pattern string) {
	t.Helper()
	var all strings.Builder
	for want := regexp.MustCompile(pattern); ; {
		line, err := c.said.ReadString('\n')
		all.WriteString(line)
		if want.MatchString(line) {
			return
		}
		if err != nil {
			t.Fatalf("no %s in %q, %v: %v\n%s", pattern, all.String(), err, c.cmd.Wait(), c.stderr.String())
		}
	}
}

// ends waits for the end and returns the exit code.
func (c *container) ends(t *testing.T) int {
	t.Helper()
	_, _ = io.Copy(io.Discard, c.said)
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

func (c *container) stop(t *testing.T) {
	t.Helper()
	// As the kubelet does. runc hands the signal on.
	if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.ends(t); code != 0 {
		t.Errorf("after SIGTERM: exit code %d\n%s", code, c.stderr.String())
	}
}

// exec is what kubectl exec does.
func (c *container) exec(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("runc", append([]string{"--root", c.state, "exec", c.id, "/usr/bin/mpcc"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("mpcc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// unpackImage builds the image twice, which has to give the same, and returns the folder with its files.
func unpackImage(t *testing.T) string {
	t.Helper()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	decode := func(path string, into any) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type blobs []struct{ Digest string }
	var indexes [2]struct{ Manifests blobs }
	var dir string
	for i := range indexes {
		dir = t.TempDir()
		run(filepath.Join(os.Getenv("MPCC_DEPLOY"), "image/build"), filepath.Join(dir, "image.tar"))
		run("tar", "-C", dir, "-xf", filepath.Join(dir, "image.tar"))
		decode(filepath.Join(dir, "index.json"), &indexes[i])
	}
	if first, second := indexes[0].Manifests[0].Digest, indexes[1].Manifests[0].Digest; first != second {
		t.Errorf("one commit gives the images %s and %s", first, second)
	}
	blob := func(digest string) string { return filepath.Join(dir, "blobs", strings.Replace(digest, ":", "/", 1)) }
	var manifest struct {
		Config struct{ Digest string }
		Layers blobs
	}
	decode(blob(indexes[1].Manifests[0].Digest), &manifest)
	var config struct{ Config struct{ Entrypoint []string } }
	decode(blob(manifest.Config.Digest), &config)
	if !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/mpcc"}) {
		t.Errorf("the image runs %q", config.Config.Entrypoint)
	}
	root := t.TempDir()
	for _, l := range manifest.Layers {
		run("tar", "-C", root, "-xzf", blob(l.Digest))
	}
	return root
}

const kubernetesConfiguration = `
algorithms: [{name: dts, set: {min_cwnd: 1}}]
defaults: [{cc: dts}]
uses: [{what: dts, cgroup: mpcc-kubernetes}]
energy: [{interface: lo, profile: wifi-2012}]
paths: [{path: lo, rank: 2}]
mptcp: [{limits: {subflows: 5, add_addr_accepted: 5}, endpoints: [{address: 192.0.2.9, flags: [signal]}]}]
source_routes: [{from: 192.0.2.9, table: 1009, routes: [{dev: lo}]}]
`

// The pods of deploy/kubernetes do their work with the rights that their manifests give them, and with fewer they do not.
func TestHostKubernetes(t *testing.T) {
	loaded.Turn(t)
	untouched(t)
	newCgroup(t, "mpcc-kubernetes")
	node := addHost(t, newLab(t), "node")
	config := t.TempDir()
	declare := func(text string) {
		t.Helper()
		if err := atomicfile.Write(filepath.Join(config, "config.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	onNode := func(args ...string) string {
		t.Helper()
		out, err := node.Command(t.Context(), os.Getenv("MPCC_BIN"), args...).CombinedOutput()
		if err != nil {
			t.Errorf("mpcc %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	before := onNode("config", "show")
	image := unpackImage(t)
	declare(kubernetesConfiguration)

	apply := readPod(t, image, "apply")
	args := slices.Clone(apply.Containers[0].Args)
	args[slices.Index(args, "--every")+1] = "1s"
	once := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--every" || arg == "1s" })

	c := apply.start(t, node, config, args...)
	c.says(t, "^. endpoint 192.0.2.9: ")
	if out := onNode("apply", filepath.Join(config, "config.yaml")); out != "nothing to change\n" {
		t.Errorf("beside the container's there is to change\n%s", out)
	}
	if out := c.exec(t, "status"); !strings.HasPrefix(out, "cc/dts loaded\n") {
		t.Errorf("status in the container:\n%s", out)
	}
	// What the node has lost, and another file.
	onNode("path", "reset", "lo")
	c.says(t, `^\+ rules? of lo|^\+ path lo`)
	declare(strings.ReplaceAll(kubernetesConfiguration, "192.0.2.9", "192.0.2.10"))
	c.says(t, "^. endpoint 192.0.2.10: ")
	applied := onNode("config", "show")
	c.stop(t)
	if now := onNode("config", "show"); now != applied {
		t.Errorf("with the pod's end\n%s became\n%s", applied, now)
	}

	exporter := readPod(t, image, "exporter")
	for _, what := range []string{"BPF", "/sys/fs/bpf"} {
		if scrape := scrapeOf(t, exporter.without(what), node, config); strings.Contains(scrape, "\nmpcc_lost_subflows_total 0\n") {
			t.Errorf("the exporter without %s has read the maps", what)
		}
	}
	scrape := scrapeOf(t, exporter, node, config)
	for _, line := range []string{
		"mpcc_lost_subflows_total 0", `mpcc_collector_success{collector="telemetry"} 1`, `mpcc_collector_success{collector="mptcp"} 1`,
		`mpcc_collector_success{collector="paths"} 1`, `mpcc_pm_endpoints{netns="`,
	} {
		if !strings.Contains(scrape, "\n"+line) {
			t.Errorf("no %s in\n%s", line, scrape)
		}
	}

	// Taken off, and put on again with less: it says what is missing.
	takeOff := func() {
		t.Helper()
		declare("")
		if code := apply.start(t, node, config, once...).ends(t); code != 0 {
			t.Errorf("with nothing declared: exit code %d", code)
		}
		if now := onNode("config", "show"); now != before {
			t.Errorf("before there was\n%s, in the end there is\n%s", before, now)
		}
	}
	takeOff()
	declare(kubernetesConfiguration)
	missing := []struct{ what, says string }{
		{"NET_ADMIN", "no privileges"},
		{"SYS_ADMIN", "no privileges"},
		{"/etc/mpcc", "there is no /etc/mpcc/config.yaml"},
		{"/sys/fs/bpf", "/sys/fs/bpf is not a BPF file system"},
		{"/run/mpcc", "read-only file system"},
		{"/host/proc/sys/net", "in a container, mount the machine's /proc/sys/net at /host/proc/sys/net"},
		{"/sys/fs/cgroup", "there are no cgroups here"},
	}
	for _, m := range missing {
		c := apply.without(m.what).start(t, node, config, once...)
		if code := c.ends(t); code != 1 || !strings.Contains(c.stderr.String(), m.says) {
			t.Errorf("apply without %s: exit code %d, want %q in\n%s", m.what, code, m.says, c.stderr.String())
		}
	}
	for _, name := range apply.Containers[0].SecurityContext.Capabilities.Add {
		if !slices.ContainsFunc(missing, func(m struct{ what, says string }) bool { return m.what == name }) {
			t.Errorf("nothing shows that apply needs %s", name)
		}
	}
	takeOff()
}

// scrapeOf runs the exporter in its container and returns its metrics; "" where it ends instead.
func scrapeOf(t *testing.T, p *pod, node *lab.Host, config string) (scrape string) {
	t.Helper()
	c := p.start(t, node, config, p.Containers[0].Args...)
	ended := make(chan int, 1)
	go func() { ended <- c.ends(t) }()
	client := http.Client{Timeout: 10 * time.Second, Transport: dialsFrom(node)}
	for {
		select {
		case <-ended:
			return ""
		case <-time.After(20 * time.Millisecond):
		}
		resp, err := client.Get("http://" + exporterAddress + "/metrics")
		if err != nil {
			continue
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := <-ended; code != 0 {
			t.Errorf("the exporter after SIGTERM: exit code %d\n%s", code, c.stderr.String())
		}
		return string(text)
	}
}
