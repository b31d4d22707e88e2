// SPDX-License-Identifier: Apache-2.0

// Package e2e tests mpcc from end to end, as root on stock kernels. Its tests
// have the build tag e2e and run in the VMs of test/kernels, or by make unit
// (TestHost…), which tell them:
//
//	MPCC_KERNEL    in a VM, the label of the kernel: 6.12, 7.x or 6.1
//	MPCC_BIN       the path of mpcc
//	MPCC_TESTDATA  the path of the repository's testdata folder
//	MPCC_DEPLOY    the path of its deploy folder
//	MPCC_PAGES     a folder that has the repository's pages, and the headers of the BPF programs, where it has them
package e2e
