// SPDX-License-Identifier: Apache-2.0

//go:build vm

package kernels

import (
	"slices"
	"testing"

	"github.com/mpcc/mpcc/internal/vm"
)

// gates are the VMs of make test, the longest ones first. A test of test/e2e is named here if a wrong verdict can only come
// from wrong code: its clock is the VM's own, and it judges what was chosen, counted, printed or left, not a rate.
var gates = []struct {
	name, kernel string
	tests        []string
}{
	{"commands", "6.12", []string{
		"TestAnyKernelHasWhatTheTestsNeed",
		"TestModuleCommands",
		"TestNewKernelScripts",
		"TestOneKernelApply",
		"TestOneKernelApplyConfirm",
		"TestOneKernelDefaultOfNamespaces",
		"TestOneKernelForeignPeer",
		"TestOneKernelFullMap",
		"TestOneKernelInodeNumberComesAgain",
		"TestOneKernelInterfaceOfAnyName",
		"TestOneKernelKilledSchedulerLoadIsTakenAway",
		"TestOneKernelKilledSchedulerSwitch",
		"TestOneKernelKilledSchedulerUnload",
		"TestOneKernelLoadersAtOnce",
		"TestOneKernelLostAnnouncement",
		"TestOneKernelRunTunables",
		"TestOneKernelSchedulerSwitchNeverLosesTheName",
		"TestOneKernelSchedulersFromFiles",
		"TestOneKernelUseForDestinations",
		"TestOneKernelUseForProcesses",
		"TestOneKernelUseInCgroup",
		"TestOneKernelUseMultipath",
		"TestOneKernelUseScheduler",
	}},
	{"traffic", "6.12", []string{
		"TestAnyKernelHasWhatTheTestsNeed",
		"TestBackupSubflow",
		"TestLifeUnderTraffic",
		"TestModuleRules",
		"TestModuleStandsRogues",
		"TestModuleUpdates",
		"TestOneKernelSteer",
		"TestOneKernelSteerKeepsTheUsersFlags",
		"TestOneKernelSteerSingleSubflows",
		"TestOneKernelTwoAlgorithmsOfOneName",
		"TestOutdatedSockets",
		"TestOwnTimeESMPTCPChooses",
		"TestOwnTimeNetlabDelay",
		"TestOwnTimeNetlabTwoPaths",
		"TestOwnTimePreferExclusion",
		"TestOwnTimePreferRankFails",
		"TestOwnTimePreferTellsApart",
		"TestOwnTimeSendBuffer",
		"TestOwnTimeStrandedDataGoesOutAgain",
		"TestPlainTCPIsTheKernels",
		"TestSchedulerOfNineSubflows",
		"TestSchedulerUnderTraffic",
		"TestSchedulersNeverStall",
		"TestSubflowJoinsAndLeaves",
		"TestSwitchLiveConnection",
		"TestTransfer",
	}},
	{"newest", "7.x", []string{
		"TestAnyKernelHasWhatTheTestsNeed",
		"TestPlainTCPIsTheKernels",
		"TestTransfer",
	}},
	{"old", "6.1", []string{
		"TestAnyKernelHasWhatTheTestsNeed",
		"TestOldKernelModule",
		"TestOldKernelScripts",
	}},
}

// TestGate runs in VMs what make test has of test/e2e; every test in there is a subtest here. -run reaches them too:
// -run TestGate/traffic/TestTransfer.
func TestGate(t *testing.T) {
	files, tests := guest(t)
	var jobs []job
	for _, gate := range gates {
		for _, name := range gate.tests {
			if !slices.Contains(tests, name) {
				t.Errorf("%s: test/e2e has no test called %s", gate.name, name)
			}
		}
		kernel := find(t, gate.kernel)
		kernel.NoModule = gate.kernel != Labels()[0] // whose schedulers are tested, and a module takes minutes to build
		spec := vm.Spec{Kernel: kernel, Files: files, OwnTime: true, Alike: true}
		jobs = append(jobs, job{gate.name, func(t *testing.T) { testKernel(t, spec, tests, gate.tests) }})
	}
	twoAtATime(t, jobs)
}
