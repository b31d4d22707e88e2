// SPDX-License-Identifier: Apache-2.0

package loader

import "fmt"

func explain(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
