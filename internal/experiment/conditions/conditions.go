// SPDX-License-Identifier: Apache-2.0

// Package conditions holds the experiments that docs/choose.md compares algorithms by: paths that hosts really have, and
// what is done over them.
package conditions

import "embed"

// Files has a scenario file, NAME.yaml, for each experiment.
//
//go:embed *.yaml
var Files embed.FS
