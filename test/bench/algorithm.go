// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// algorithm is a BPF congestion control that is attached while this process lives.
type algorithm struct {
	name string
	coll *ebpf.Collection
	link link.Link
}

const opsType = "tcp_congestion_ops"

// attach loads the object under the name of its ops table, with maps of its own and without pins.
func attach(name string, spec *ebpf.CollectionSpec) (*algorithm, error) {
	if err := fit(spec); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", name, err)
	}
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps[name]})
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("the name is taken: unload %s first", name)
	}
	if err != nil {
		coll.Close()
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	return &algorithm{name: name, coll: coll, link: l}, nil
}

// fit leaves the pins out, and the callbacks that the running kernel has no place for.
func fit(spec *ebpf.CollectionSpec) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	var ops *btf.Struct
	if err := kernel.TypeByName(opsType, &ops); err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	members := map[string]bool{}
	for _, m := range ops.Members {
		members[m.Name] = true
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	for name, p := range spec.Programs {
		if member, ok := strings.CutPrefix(p.AttachTo, opsType+":"); ok && !members[member] {
			delete(spec.Programs, name)
		}
	}
	return nil
}

func (a *algorithm) Close() error {
	err := a.link.Close()
	a.coll.Close()
	return err
}

// usage is the time spent in one callback.
type usage struct {
	Calls       uint64 `json:"calls"`
	Nanoseconds uint64 `json:"nanoseconds"`
}

// read returns the calls and the time of each callback since it was loaded.
func (a *algorithm) read() (map[string]usage, error) {
	all := map[string]usage{}
	for name, p := range a.coll.Programs {
		if p.Type() != ebpf.StructOps {
			continue
		}
		_, callback, _ := strings.Cut(name, "_")
		stats, err := p.Stats()
		if err != nil {
			return nil, fmt.Errorf("read the statistics of %s: %w", name, err)
		}
		all[callback] = usage{stats.RunCount, uint64(stats.Runtime.Nanoseconds())}
	}
	return all, nil
}

// countTime has the kernel time every BPF program until the closer is closed or this process ends.
func countTime() (interface{ Close() error }, error) {
	c, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("turn BPF statistics on: %w", err)
	}
	return c, nil
}
