// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/cobra"

func newEnergyCommand() *cobra.Command { return &cobra.Command{Use: "energy", Hidden: true} }
