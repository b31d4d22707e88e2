// SPDX-License-Identifier: Apache-2.0

package use_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/use"
)

// The backup's connections become multipath ones, and run DTS where it is loaded.
func ExampleStart() {
	ctx := context.Background()
	backup, err := use.InCgroup("system.slice/backup.service")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := use.StartMultipath(ctx, backup); err != nil {
		log.Fatal(err)
	}
	dts, err := catalog.Find("dts")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := use.Start(ctx, dts, backup); err != nil && !errors.Is(err, loader.ErrNotLoaded) {
		log.Fatal(err)
	}
	all, err := use.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, u := range all {
		fmt.Printf("%s is used in %s\n", u.What, u.Place)
	}
}
