// SPDX-License-Identifier: Apache-2.0

// Command choose writes docs/choose.md from internal/choose. With folders of mpcc run, as make choose leaves them, it writes
// instead the figures that internal/choose has, from what they measured; with -kernel those that were measured on a kernel
// and stand beside them.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
)

// Where figures are kept.
const (
	simulated = "internal/choose/cells.csv"
	onKernel  = "docs/gen/choose/kernel.csv"
)

func main() {
	log.SetFlags(0)
	out := flag.String("out", "docs/choose.md", "the page to write")
	kernel := flag.Bool("kernel", false, "the folders are of runs on a kernel")
	flag.Parse()
	kept := simulated
	if *kernel {
		kept = onKernel
	}
	if err := write(*out, kept, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func write(out, kept string, folders []string) error {
	if len(folders) > 0 {
		m := measured{}
		for _, folder := range folders {
			if err := m.read(folder); err != nil {
				return err
			}
		}
		figures := m.figures()
		if err := os.WriteFile(kept, table(figures), 0o644); err != nil {
			return err
		}
		fmt.Println(len(figures), "figures in", kept)
		return nil // what is compiled in has the old ones
	}
	return os.WriteFile(out, []byte(fill()), 0o644)
}
