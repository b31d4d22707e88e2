// SPDX-License-Identifier: Apache-2.0

// Package published holds the published experiments.
package published

import "embed"

// Files has a scenario file, NAME.yaml, for each experiment.
//
//go:embed *.yaml
var Files embed.FS
