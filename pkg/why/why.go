// SPDX-License-Identifier: Apache-2.0

// Package why tells why MPTCP connections do not use all of their paths: it watches the kernel's state for a while,
// and names the cause, its evidence and what mends it. Gather watches, Judge decides, Observe does both.
//
// It needs nothing of mpcc loaded. Of connections that run a congestion control or packet scheduler of mpcc's, it
// knows more.
package why
