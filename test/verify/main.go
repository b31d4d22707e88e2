// SPDX-License-Identifier: Apache-2.0

// Command verify runs the long checks, and keeps what they find in docs/reliability (package verified). It does only what
// is missing there or about something older, so that it goes on where it was stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/vm"
	"github.com/mpcc/mpcc/test/verified"
)

const usage = `usage: verify [-force] [all | PART[/ROW[/COLUMN]]…]

Runs what is missing in docs/reliability, has failed, or is about something older than what is there now. Without
arguments it lists the parts.
`

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		say(err.Error())
	}
	os.Exit(status)
}

func run(args []string) (int, error) {
	flags := flag.NewFlagSet("verify", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
		fmt.Fprintln(flags.Output(), "parts:", strings.Join(verified.Parts, ", "))
	}
	force := flags.Bool("force", false, "run also what is there already")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return 2, nil // Parse has said why
	}
	root, err := vm.Clone()
	if err != nil {
		return 1, err
	}
	chosen := flags.Args()
	if len(chosen) == 0 {
		return 0, list(root)
	}
	if slices.Equal(chosen, []string{"all"}) {
		chosen = verified.Parts
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{root: root, commit: commitOf(ctx, root), cells: map[string][]verified.Cell{}}
	defer b.close()
	var parts []string
	due := map[string][]verified.Cell{}
	for _, choice := range chosen { // before anything is run
		cells, err := b.choose(choice, *force)
		if err != nil {
			return 2, err
		}
		part := partOf(choice)
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
		for _, c := range cells {
			if !slices.Contains(due[part], c) {
				due[part] = append(due[part], c)
			}
		}
	}
	for _, part := range parts {
		if len(due[part]) == 0 {
			say(part + ": all there")
			continue
		}
		b.began = time.Now()
		if err := runners[part](ctx, b, due[part]); err != nil {
			return 1, fmt.Errorf("%s: %w", part, err)
		}
	}
	if b.failed > 0 {
		return 1, fmt.Errorf("%d checks failed", b.failed)
	}
	return 0, nil
}

// list prints of each part how many of its checks are to be run, and how long all of them have taken.
func list(root string) error {
	b := &bench{root: root, cells: map[string][]verified.Cell{}}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PART\tCHECKS\tTO RUN\tMINUTES IN ALL")
	for _, part := range verified.Parts {
		all, err := b.choose(part, true)
		if err != nil {
			return err
		}
		due, err := b.choose(part, false)
		if err != nil {
			return err
		}
		table, err := verified.Read(root, part)
		if err != nil {
			return err
		}
		minutes := "not known"
		seconds := 0.
		for _, r := range table {
			seconds += r.Seconds
		}
		if seconds > 0 {
			minutes = fmt.Sprintf("%.0f", seconds/60)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", part, len(all), len(due), minutes)
	}
	return w.Flush()
}

// runners run cells of their part.
var runners = map[string]func(context.Context, *bench, []verified.Cell) error{
	verified.Kernels:  runKernels,
	verified.EndToEnd: runEndToEnd,
	verified.Native:   runNative,
	verified.Kills: func(ctx context.Context, b *bench, cells []verified.Cell) error {
		return runOwn(ctx, b, verified.Kills, "TestVerifyKills", cells)
	},
	verified.Churn: func(ctx context.Context, b *bench, cells []verified.Cell) error {
		return runOwn(ctx, b, verified.Churn, "TestVerifyChurn", cells)
	},
	verified.Selftests:  runSelftests,
	verified.Soak:       runSoak,
	verified.Fuzz:       runFuzz,
	verified.Cost:       runCost,
	verified.SlowPath:   runSweep(verified.SlowPath),
	verified.Households: runSweep(verified.Households),
	verified.Schedulers: runSweep(verified.Schedulers),
	verified.Shares:     runSweep(verified.Shares),
	verified.Drawn:      runSweep(verified.Drawn),
	verified.Verdicts:   runBottlenecks(verified.Verdicts, "TestVerifyVerdict"),
	verified.Prices:     runBottlenecks(verified.Prices, "TestVerifyPrice"),
}

// bench is what all parts are run with.
type bench struct {
	root, commit string
	cells        map[string][]verified.Cell // by their part, as far as known
	keeping      sync.Mutex
	failed       int
	began        time.Time         // of what is kept next
	files        map[string]string // of kernels.ProjectFiles, for this machine's processor
	remove       func()
}

func (b *bench) close() {
	if b.remove != nil {
		b.remove()
	}
}

func partOf(choice string) string {
	part, _, _ := strings.Cut(choice, "/")
	return part
}

// all returns the cells of a part, of which it works out the digests once.
func (b *bench) all(part string) ([]verified.Cell, error) {
	if cells, ok := b.cells[part]; ok {
		return cells, nil
	}
	cells, err := verified.Cells(b.root, part)
	if err == nil {
		b.cells[part] = cells
	}
	return cells, err
}

// choose returns the cells of PART, or of those PART/… names, that need a run.
func (b *bench) choose(choice string, force bool) ([]verified.Cell, error) {
	part, within, _ := strings.Cut(choice, "/")
	all, err := b.all(part)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(c verified.Cell) bool {
		return within != "" && c.Name() != within && !strings.HasPrefix(c.Name(), within+"/")
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no row called %s", part, within)
	}
	table, err := verified.Read(b.root, part)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c verified.Cell) bool {
		r, found := table.Find(c)
		return !force && found && r.Of(c) && r.State != verified.Failed
	}), nil
}

// keep completes the record of a cell, and keeps it.
func (b *bench) keep(part string, c verified.Cell, r verified.Record) error {
	b.keeping.Lock()
	defer b.keeping.Unlock()
	r.Row, r.Column, r.Digest, r.Commit = c.Row, c.Column, c.Digest, b.commit
	now := time.Now()
	r.Date, r.Seconds = now.UTC().Format(time.DateOnly), math.Round(now.Sub(b.began).Seconds())
	b.began = now
	if r.State == verified.Failed {
		b.failed++
	}
	text := fmt.Sprintf("%s/%s: %s", part, c.Name(), r.State)
	if r.Said != "" {
		text += ": " + r.Said
	}
	say(text)
	return verified.Keep(b.root, part, r)
}

// each calls do for each cell, for as many at a time as there are processors. The first error cancels the context of the
// other calls.
func each(ctx context.Context, cells []verified.Cell, do func(context.Context, verified.Cell) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, c := range cells {
		group.Go(func() error { return do(ctx, c) })
	}
	return group.Wait()
}

// commitOf names the commit that is verified, with a + where files of it have been changed.
func commitOf(ctx context.Context, root string) string {
	git := func(arg ...string) string {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, arg...)...)
		out, err := cmd.Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	commit := git("rev-parse", "--short=10", "HEAD")
	if commit == "" {
		return "unknown"
	}
	if git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/reliability*", ":!docs/performance.md") != "" {
		commit += "+"
	}
	return commit
}

// ownRelease is that of the machine's kernel.
func ownRelease() string {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return ""
	}
	return unix.ByteSliceToString(uts.Release[:])
}

func say(what string) { fmt.Fprintln(os.Stderr, "verify:", what) }
