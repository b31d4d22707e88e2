// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// apt fetches packages of a Debian suite. It has a configuration of its own in
// its folder; the machine's is not touched.
type apt struct{ dir, config, arch string }

// Download fetches packages of a Debian suite into a folder and returns their files.
func Download(ctx context.Context, suite, dir string, names ...string) ([]string, error) {
	a, err := newApt(ctx, suite, hostArch, dir)
	if err != nil {
		return nil, err
	}
	return a.download(ctx, names...)
}

// newApt returns an apt that has read the suite's list of packages for a processor.
func newApt(ctx context.Context, suite, arch, dir string) (*apt, error) {
	source, err := debianSource(ctx, suite)
	if err != nil {
		return nil, err
	}
	a := &apt{dir, filepath.Join(dir, "apt"), arch}
	err = errors.Join(
		os.MkdirAll(filepath.Join(a.config, "lists", "partial"), 0o755),
		os.WriteFile(filepath.Join(a.config, "sources.list"), []byte(source+"\n"), 0o644),
		os.WriteFile(filepath.Join(a.config, "status"), nil, 0o644))
	if err != nil {
		return nil, err
	}
	_, err = a.run(ctx, "apt-get", "update")
	return a, err
}

// run runs apt-get or apt-cache and returns what it prints.
func (a *apt) run(ctx context.Context, program string, arg ...string) (string, error) {
	cmd := command(ctx, program, append([]string{
		"-q",
		"-o", "Dir::Etc::SourceList=" + filepath.Join(a.config, "sources.list"),
		"-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State::Lists=" + filepath.Join(a.config, "lists"),
		"-o", "Dir::State::Status=" + filepath.Join(a.config, "status"),
		"-o", "Dir::Cache=" + a.config,
		"-o", "APT::Architecture=" + a.arch,
		"-o", "APT::Sandbox::User=", // user _apt may have no access to the folder
		"-o", "APT::Update::Error-Mode=any", // or it would go on with an old list in silence
	}, arg...)...)
	cmd.Dir = a.dir
	return output(cmd)
}

// download fetches packages and returns their files. It also removes the
// configuration: no more can be fetched.
func (a *apt) download(ctx context.Context, names ...string) ([]string, error) {
	if _, err := a.run(ctx, "apt-get", append([]string{"download"}, names...)...); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(a.config); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(a.dir, "*.deb"))
}

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// debianSource returns the line of sources.list for a suite, with the mirror that
// this machine uses.
func debianSource(ctx context.Context, suite string) (string, error) {
	if _, err := os.Stat(keyring); err != nil {
		return "", fmt.Errorf("%w, on Debian: apt install %s", err, packages())
	}
	mirror := os.Getenv("MPCC_DEBIAN_MIRROR")
	if mirror == "" {
		sites, err := output(command(ctx, "apt-get", "indextargets",
			"--format", "$(SITE)", "Created-By: Packages", "Label: Debian"))
		if err != nil {
			return "", err
		}
		mirror, _, _ = strings.Cut(sites, "\n")
	}
	if mirror == "" {
		return "", errors.New("apt knows no Debian mirror here: set MPCC_DEBIAN_MIRROR to the URL of one")
	}
	return fmt.Sprintf("deb [signed-by=%s] %s %s main", keyring, mirror, suite), nil
}
