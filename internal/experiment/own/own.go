// SPDX-License-Identifier: Apache-2.0

// Package own holds mpcc's own experiments: what algorithms do for those who just switch them on.
package own

import "embed"

// Files has a scenario file, NAME.yaml, for each experiment.
//
//go:embed *.yaml
var Files embed.FS
