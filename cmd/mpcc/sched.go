// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mpcc/mpcc/internal/kmod"
	"github.com/mpcc/mpcc/loader"
)

func newSchedCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sched",
		Short: "Install the kernel module that packet schedulers need",
		Long: `Few kernels take MPTCP packet schedulers in BPF by themselves. For the others there is a
small module, mpcc_sched, whose sources are in this program. mpcc doctor says whether this kernel needs it.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSchedInstallCommand(), newSchedRemoveCommand(), newSchedStatusCommand())
	return c
}

func newSchedInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "Build and load the module, now and at every boot",
		Long: `install builds the module for the running kernel, loads it, and has it loaded at every
boot. Where DKMS is installed, DKMS builds the module, for later kernels too. If anything that the build
needs is missing, install first lists all of it: the kernel's headers with its BTF, its compiler, pahole,
and DKMS where only signed modules are loaded (Secure Boot). A module that is installed already stays; what
a killed install left half done is done again.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			changed, err := kmod.Install(c.Context(), func(step string) { fmt.Fprintln(c.ErrOrStderr(), step) })
			if err != nil {
				return err
			}
			s, err := kmod.Status(c.Context())
			if err != nil {
				return err
			}
			switch {
			case s.Native:
				fmt.Fprintln(c.OutOrStdout(), "this kernel takes packet schedulers by itself: nothing to install")
			case changed:
				fmt.Fprintf(c.OutOrStdout(), "%s: installed and loaded\n", kmod.Name)
			default:
				fmt.Fprintf(c.OutOrStdout(), "%s: already installed and loaded\n", kmod.Name)
			}
			return nil
		},
	}
}

func newSchedRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove",
		Short: "Unload the module and remove all that install put on this machine",
		Long: `remove unloads the module and removes all that install put on this machine, for every
kernel. It refuses while a scheduler is loaded or a connection runs one.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			changed, err := kmod.Remove(c.Context())
			if err != nil {
				return err
			}
			if changed {
				fmt.Fprintf(c.OutOrStdout(), "%s: removed\n", kmod.Name)
			} else {
				fmt.Fprintf(c.OutOrStdout(), "%s: not installed\n", kmod.Name)
			}
			return nil
		},
	}
}

func newSchedStatusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Say whether the module is installed and loaded",
		Long:  `status exits with code 3 where the module is needed and not loaded.`,
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := kmod.Status(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				if err := writeJSON(c.OutOrStdout(), s); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(c.OutOrStdout(), "Linux %s: %s\n", s.Kernel, moduleWords(s))
			}
			if !s.Native && s.Loaded == "" {
				return fmt.Errorf("%s: %w", kmod.Name, loader.ErrNotLoaded)
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "write JSON")
	return c
}

// moduleWords returns the module's state in one line of words.
func moduleWords(s kmod.State) string {
	older := ""
	if s.Loaded != "" && !s.Current() {
		older = " in another version; mpcc sched install brings this mpcc's"
	}
	switch {
	case s.Native:
		return "takes packet schedulers by itself, without the module"
	case s.Loaded != "":
		return fmt.Sprintf("%s is loaded%s, users: %d", kmod.Name, older, s.Users)
	case s.Installed != "":
		return kmod.Name + " is installed, but not loaded: modprobe " + kmod.Name
	}
	return kmod.Name + " is not installed: mpcc sched install"
}
