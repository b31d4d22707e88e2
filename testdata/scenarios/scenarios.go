// SPDX-License-Identifier: Apache-2.0

// Package scenarios holds the published experiments.
package scenarios

import "embed"

// Files are NAME.yaml.
//
//go:embed *.yaml
var Files embed.FS
