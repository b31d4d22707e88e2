// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/pieces"
)

// Running returns the values of a loaded algorithm's tunables, as its programs have them. It takes CAP_SYS_ADMIN. The
// error wraps ErrNotLoaded if it is not loaded.
func Running(e catalog.Entry) (map[string]string, error) {
	if !isPinned(e) {
		return nil, notLoaded(source{Entry: e})
	}
	values, err := running(e)
	if err != nil {
		return nil, explain("read the tunables of "+e.String(), err)
	}
	return values, nil
}

// running goes the kernel's way from the pin to the constants: link, table of operations, a program of it, its maps.
func running(e catalog.Entry) (map[string]string, error) {
	l, err := link.LoadPinnedLink(pinOf(e).path(), nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	id, err := tableOf(l)
	if err != nil {
		return nil, err
	}
	table, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, err
	}
	defer table.Close()
	value, err := table.LookupBytes(uint32(0))
	if err != nil {
		return nil, err
	}
	program, err := programIn(value, e.Kind)
	if err != nil {
		return nil, err
	}
	p, err := ebpf.NewProgramFromID(program)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	values := map[string]string{}
	for _, id := range ids {
		if err := constantsIn(id, values); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// tableOf returns the id of a link's struct_ops map (BPF_OBJ_GET_INFO_BY_FD), for which cilium/ebpf has no call.
func tableOf(l link.Link) (ebpf.MapID, error) {
	fd := l.(interface{ FD() int }).FD()
	var info struct {
		kind, id, program, _ uint32
		table                uint32
		_                    [59]uint32 // more than any kernel's
	}
	attr := struct {
		fd, size uint32
		info     uint64
	}{uint32(fd), uint32(unsafe.Sizeof(info)), uint64(uintptr(unsafe.Pointer(&info)))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(l)
	runtime.KeepAlive(&info)
	if errno != 0 {
		return 0, errno
	}
	return ebpf.MapID(info.table), nil
}

// programIn returns the first program of a struct_ops map's value, which has programs' ids in place of their addresses.
func programIn(value []byte, k catalog.Kind) (ebpf.ProgramID, error) {
	spec, err := types.Kernel()
	name := "bpf_struct_ops_tcp_congestion_ops"
	switch {
	case err != nil:
	case k == catalog.Sched && hasNativeScheds():
		name = nativeSchedType
	case k == catalog.Sched:
		name = moduleSchedType
		spec, err = types.Module(schedModule)
	}
	if err != nil {
		return 0, err
	}
	var whole, ops *btf.Struct
	if err := spec.TypeByName(name, &whole); err != nil {
		return 0, err
	}
	for _, m := range whole.Members {
		if m.Name != "data" {
			continue
		}
		if t, ok := btf.As[*btf.Struct](m.Type); ok {
			ops, value = t, value[min(int(m.Offset.Bytes()), len(value)):]
		}
	}
	if ops == nil {
		return 0, fmt.Errorf("%s has no data", name)
	}
	for _, m := range ops.Members {
		at := int(m.Offset.Bytes())
		pointer, ok := btf.As[*btf.Pointer](m.Type)
		if !ok || at+8 > len(value) {
			continue
		}
		if _, ok := btf.As[*btf.FuncProto](pointer.Target); !ok {
			continue
		}
		if id := binary.NativeEndian.Uint64(value[at:]); id != 0 {
			return ebpf.ProgramID(id), nil
		}
	}
	return 0, errors.New("its table has no program")
}

// constantsIn adds the tunables in a map, if it is one of constants.
func constantsIn(id ebpf.MapID, values map[string]string) error {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return err
	}
	btfID, ok := info.BTFID()
	if !ok || m.Type() != ebpf.Array || !strings.HasSuffix(info.Name, ".rodata") {
		return nil
	}
	text, err := m.LookupBytes(uint32(0))
	if err != nil {
		return err
	}
	handle, err := btf.NewHandleFromID(btfID)
	if err != nil {
		return err
	}
	defer handle.Close()
	spec, err := handle.Spec(nil)
	if err != nil {
		return err
	}
	var section *btf.Datasec
	if err := spec.TypeByName(".rodata", &section); err != nil {
		return err
	}
	for _, v := range section.Vars {
		variable, ok := v.Type.(*btf.Var)
		if !ok || v.Size != 4 || int(v.Offset)+4 > len(text) {
			continue
		}
		for _, tag := range variable.Tags {
			description, ok := strings.CutPrefix(tag, tunableTag)
			if !ok {
				continue
			}
			t, err := parseTunable(variable.Name, description)
			if err != nil {
				return err
			}
			value := binary.NativeEndian.Uint32(text[v.Offset:])
			if t.Words != nil && uint64(value) > t.High {
				return fmt.Errorf("tunable %s is %d, beyond %s", t.Name, value, t.Range())
			}
			values[t.Name] = t.format(value)
		}
	}
	return nil
}

// Values returns what all tunables of an algorithm are with these settings, as Options.Set has them. The error wraps
// ErrUsage if the algorithm cannot be given them.
func Values(e catalog.Entry, set map[string]string) (map[string]string, error) {
	spec, _, err := (source{Entry: e}).open()
	if err != nil {
		return nil, err
	}
	if err := setTunables(spec, e, set); err != nil {
		return nil, err
	}
	tunables, err := tunablesOf(spec)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, t := range tunables {
		values[t.Name] = t.Default // as it is set in spec now
	}
	return values, nil
}

// MapCapacity returns what the shared maps have room for. The error wraps ErrNotLoaded where there are none.
func MapCapacity() (Capacity, error) {
	m, err := OpenMaps()
	if err != nil {
		return Capacity{}, err
	}
	defer m.Close()
	return m.Capacity()
}

// SmallPieces reports whether MPTCP hands out data in small pieces because Options.SmallPieces asked for it.
func SmallPieces() (bool, error) { return pieces.WantedBy(piecesUser) }

// EndSmallPieces takes Options.SmallPieces back before the last packet scheduler is unloaded.
func EndSmallPieces(ctx context.Context) error { return pieces.Restore(ctx, piecesUser) }
