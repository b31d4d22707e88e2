// SPDX-License-Identifier: Apache-2.0

package lab

// ID is what the names of all the lab's namespaces carry.
func (l *Lab) ID() string { return l.id }
