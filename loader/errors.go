// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The errors that a caller can tell apart with errors.Is; the command mpcc has an exit code for each.
var (
	// ErrNotLoaded is wrapped when what the call needs is not loaded.
	ErrNotLoaded = errors.New("not loaded")
	// ErrNothingLoaded is ErrNotLoaded where no algorithm in particular was asked for.
	ErrNothingLoaded error = &plainError{
		message: "nothing is loaded; mpcc load NAME loads an algorithm", kind: ErrNotLoaded,
	}
	// ErrUnsupported is wrapped when this kernel lacks what is needed.
	ErrUnsupported = errors.New("this kernel cannot do it")
	// ErrUsage is wrapped when what was asked for is not possible on any machine.
	ErrUsage = errors.New("not possible")
)

// plainError is an error with a message for people. It wraps one of the errors above, or the kernel's error with
// the verifier's log, without repeating their texts.
type plainError struct {
	message string
	kind    error
	cause   error
}

func (e *plainError) Error() string { return e.message }

func (e *plainError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.kind, e.cause} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

func unsupported(format string, args ...any) error {
	return &plainError{message: fmt.Sprintf(format, args...), kind: ErrUnsupported}
}

func usage(format string, args ...any) error {
	return &plainError{message: fmt.Sprintf(format, args...), kind: ErrUsage}
}

func notLoaded(s source) error {
	return &plainError{message: fmt.Sprintf("%s is not loaded; mpcc load %s loads it", s, s.word()), kind: ErrNotLoaded}
}

// explain puts an error of bpf(2) into the user's words. The verifier's log stays in the chain.
func explain(what string, err error) error {
	var verifier *ebpf.VerifierError
	say := func(kind error, format string, args ...any) error {
		return &plainError{message: what + ": " + fmt.Sprintf(format, args...), kind: kind, cause: err}
	}
	switch {
	case errors.Is(err, unix.ENOMEM): // the library also takes it for a verdict of the verifier
		return say(nil, "the kernel is out of memory for BPF")
	case errors.As(err, &verifier) && checkRights() == nil: // without them it refuses what is good
		return say(ErrUnsupported, "the BPF verifier of this kernel (%s) refuses the program; --debug shows its log", Release())
	case errors.Is(err, ebpf.ErrMapIncompatible):
		return say(nil, "the maps under %s are those of another version of mpcc; mpcc unload --all removes them", mapDir)
	case errors.Is(err, ebpf.ErrNotSupported):
		return say(ErrUnsupported, "this kernel (%s) lacks a BPF feature: %v", Release(), err)
	case errors.As(err, &verifier), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return say(nil, "not permitted; it takes root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN")
	case errors.Is(err, unix.EEXIST):
		return say(nil, "the name is taken")
	}
	return &plainError{message: what + ": " + strings.ReplaceAll(err.Error(), "\n", " "), cause: err}
}

// VerifierLog returns the kernel's log of a program that it refused, "" if err is of something else.
func VerifierLog(err error) string {
	var verifier *ebpf.VerifierError
	if !errors.As(err, &verifier) {
		return ""
	}
	return fmt.Sprintf("%+v", verifier)
}
