// SPDX-License-Identifier: Apache-2.0

package bytecode

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// block is a run of instructions that is entered at its first and left at its last. Blocks are numbered in reverse
// postorder, so that but for loops every jump goes to a higher number.
type block struct {
	first, last int   // of the function's instructions
	next        []int // where it goes: nothing, a block, or the blocks if a condition holds and if not
	enters      []int // the blocks that go to it
	dominator   int   // the last block that all ways to it pass; the first block's is itself
	inside      []int // the blocks that it is the dominator of
	merges      bool  // several forward jumps lead to it
	loops       bool  // a backward jump leads to it
}

// flow finds the blocks of a function. It is an error if a jump leads out of it, or into the middle of a loop.
func flow(insns asm.Instructions) ([]block, error) {
	targets, err := jumpTargets(insns)
	if err != nil {
		return nil, err
	}
	starts := map[int]bool{0: true}
	for i, ins := range insns {
		if endsBlock(ins) {
			starts[i+1] = true
			if target, ok := targets[i]; ok {
				starts[target] = true
			}
		}
	}
	endOf := func(first int) int {
		last := first
		for !starts[last+1] && last+1 < len(insns) {
			last++
		}
		return last
	}
	leadsTo := func(first int) ([]int, error) {
		last := endOf(first)
		ins, target := insns[last], targets[last]
		switch {
		case endsBlock(ins) && ins.OpCode.JumpOp() == asm.Exit:
			return nil, nil
		case endsBlock(ins) && ins.OpCode.JumpOp() == asm.Ja:
			return []int{target}, nil
		case last+1 == len(insns):
			return nil, fmt.Errorf("instruction %d: the function ends without an exit", last)
		case endsBlock(ins):
			return []int{target, last + 1}, nil
		}
		return []int{last + 1}, nil
	}
	order, err := postorder(leadsTo)
	if err != nil {
		return nil, err
	}
	slices.Reverse(order)
	number := map[int]int{}
	for i, first := range order {
		number[first] = i
	}
	blocks := make([]block, len(order))
	for i, first := range order {
		blocks[i].first, blocks[i].last = first, endOf(first)
		next, err := leadsTo(first)
		if err != nil {
			return nil, err
		}
		for _, to := range next {
			blocks[i].next = append(blocks[i].next, number[to])
			blocks[number[to]].enters = append(blocks[number[to]].enters, i)
		}
	}
	return blocks, dominate(blocks)
}

func endsBlock(ins asm.Instruction) bool {
	return ins.OpCode.Class().IsJump() && ins.OpCode.JumpOp() != asm.Call
}

// postorder lists the first instructions of all blocks that can be reached. It goes without recursion: a function may
// have thousands of blocks.
func postorder(leadsTo func(first int) ([]int, error)) (order []int, err error) {
	type visit struct {
		first int
		next  []int
	}
	next, err := leadsTo(0)
	if err != nil {
		return nil, err
	}
	seen, path := map[int]bool{0: true}, []visit{{0, next}}
	for len(path) > 0 {
		at := &path[len(path)-1]
		if len(at.next) == 0 {
			order, path = append(order, at.first), path[:len(path)-1]
			continue
		}
		to := at.next[0]
		at.next = at.next[1:]
		if seen[to] {
			continue
		}
		seen[to] = true
		if next, err = leadsTo(to); err != nil {
			return nil, err
		}
		path = append(path, visit{to, next})
	}
	return order, nil
}

// dominate fills in what blocks are to each other (Cooper, Harvey, Kennedy, A Simple, Fast Dominance Algorithm).
func dominate(blocks []block) error {
	for i := range blocks {
		blocks[i].dominator = -1
	}
	blocks[0].dominator = 0
	common := func(a, b int) int {
		for a != b {
			if a > b {
				a = blocks[a].dominator
			} else {
				b = blocks[b].dominator
			}
		}
		return a
	}
	for changed := true; changed; {
		changed = false
		for i := 1; i < len(blocks); i++ {
			found := -1
			for _, from := range blocks[i].enters {
				switch {
				case blocks[from].dominator < 0:
				case found < 0:
					found = from
				default:
					found = common(found, from)
				}
			}
			if found != blocks[i].dominator {
				blocks[i].dominator, changed = found, true
			}
		}
	}
	for i := range blocks {
		forward := 0
		for _, from := range blocks[i].enters {
			if from < i {
				forward++
				continue
			}
			blocks[i].loops = true
			if common(from, i) != i {
				return fmt.Errorf("instruction %d: a jump into the middle of a loop is not supported", blocks[from].last)
			}
		}
		blocks[i].merges = forward > 1
		if i > 0 {
			of := &blocks[blocks[i].dominator]
			of.inside = append(of.inside, i)
		}
	}
	return nil
}

// jumpTargets finds where each jump leads, as the index of an instruction.
func jumpTargets(insns asm.Instructions) (map[int]int, error) {
	at := map[asm.RawInstructionOffset]int{}
	labels := map[string]int{}
	offsets := make([]asm.RawInstructionOffset, len(insns))
	iter := insns.Iterate()
	for iter.Next() {
		at[iter.Offset], offsets[iter.Index] = iter.Index, iter.Offset
		if name := iter.Ins.Symbol(); name != "" {
			labels[name] = iter.Index
		}
	}
	targets := map[int]int{}
	for i, ins := range insns {
		if !endsBlock(ins) || ins.OpCode.JumpOp() == asm.Exit {
			continue
		}
		if label := ins.Reference(); label != "" {
			target, ok := labels[label]
			if !ok {
				return nil, fmt.Errorf("instruction %d: it jumps to %s, which is not in the function", i, label)
			}
			targets[i] = target
			continue
		}
		distance := int64(ins.Offset)
		if ins.OpCode.Class() == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja {
			distance = ins.Constant
		}
		target, ok := at[asm.RawInstructionOffset(int64(offsets[i])+1+distance)]
		if !ok {
			return nil, fmt.Errorf("instruction %d: it jumps out of the function", i)
		}
		targets[i] = target
	}
	return targets, nil
}
