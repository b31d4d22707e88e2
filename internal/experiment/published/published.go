// SPDX-License-Identifier: Apache-2.0

// Package published holds the published experiments.
package published

import "embed"

// Files are NAME.yaml.
//
//go:embed *.yaml
var Files embed.FS
