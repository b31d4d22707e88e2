// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

// BundleSuffix is what the name of a bundle ends with.
const BundleSuffix = ".bundle"

const bundleVersion = 1

// Bundle is all that repeats an experiment that was run: the scenario, with what the command line had changed, and what
// it was run with.
type Bundle struct {
	Format   string `yaml:"format"`
	Version  int    `yaml:"version"`
	Mpcc     string `yaml:"mpcc"`              // version of the mpcc that ran it
	Kernel   string `yaml:"kernel"`            // release of the kernel that ran it
	Machine  string `yaml:"machine,omitempty"` // kind of virtual machine; none: the host itself
	VM       string `yaml:"vm,omitempty"`      // as mpcc run --vm takes it
	Quick    bool   `yaml:"quick,omitempty"`
	Repeats  int    `yaml:"repeats,omitempty"` // in place of the scenario's and its plan's
	Seed     uint64 `yaml:"seed"`
	Scenario string `yaml:"scenario"` // the whole file
}

const bundleFormat = "mpcc bundle"

// NewBundle returns the bundle of a run from its results.
func NewBundle(r *result.Result, vm string, repeats int) *Bundle {
	return &Bundle{
		Format: bundleFormat, Version: bundleVersion, Mpcc: r.Tool, Kernel: r.Kernel, Machine: r.Machine, VM: vm,
		Quick: r.Quick, Repeats: repeats, Seed: r.Seed, Scenario: r.Scenario.YAML,
	}
}

// Text returns the bundle as its file has it.
func (b *Bundle) Text() ([]byte, error) { return yaml.Marshal(b) }

// IsBundle says whether a name is that of a bundle's file.
func IsBundle(name string) bool { return strings.HasSuffix(name, BundleSuffix) }

// ReadBundle reads a bundle, and its scenario.
func ReadBundle(path string) (*Bundle, *File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var b Bundle
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&b); err != nil {
		return nil, nil, fmt.Errorf("%s is no bundle: %s", path, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if b.Format != bundleFormat || b.Version != bundleVersion {
		return nil, nil, fmt.Errorf("%s is %q version %d, not %q version %d: use the mpcc that wrote it", path, b.Format, b.Version, bundleFormat, bundleVersion)
	}
	file, err := Parse(path, []byte(b.Scenario))
	return &b, file, err
}
