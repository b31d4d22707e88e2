// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/mpcc/mpcc/test/kernels"
	"github.com/mpcc/mpcc/test/verified"
)

// runBottlenecks runs a test of test/e2e for each cell, in VMs in their own time.
func runBottlenecks(part, test string) func(context.Context, *bench, []verified.Cell) error {
	return func(ctx context.Context, b *bench, cells []verified.Cell) error {
		return each(ctx, cells, func(ctx context.Context, c verified.Cell) error {
			found, err := b.guestTest(ctx, kernels.Labels()[0], true, []string{
				"-test.run=^" + test + "$", "-test.timeout=" + aBoot.String(),
				"-verify-condition=" + c.Row, "-verify-control=" + c.Column,
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name(), err)
			}
			r, ok := found.Find(verified.Cell{Row: c.Row, Column: c.Column})
			if !ok {
				return fmt.Errorf("it found nothing about %s", c.Name())
			}
			return b.keep(part, c, r)
		})
	}
}
