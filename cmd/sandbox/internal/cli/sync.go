package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/mirror"
)

// syncing keeps a directory like another one.
type syncing struct {
	app    *app
	sb     *sandbox.Sandbox
	here   string
	root   *os.Root // of here; nil as long as it does not exist
	there  string
	upward bool // from here to the sandbox
	delete bool
	dryRun bool
	more   *mirror.Ignore // by options
	ignore *mirror.Ignore // by files, as they were at the last look
}

const (
	// settleTime is how long files have to be left alone until they are synced.
	settleTime = 150 * time.Millisecond
	// pollTime is how often the sandbox is looked at, and how long is waited when
	// a sync has failed.
	pollTime = 2 * time.Second
	// maxFailures is how often in a row a sync may fail while it watches.
	maxFailures = 5
)

type syncCommand struct {
	app *app

	work          syncing
	watch, noKeep bool
	exclude       []string
}

func (c *syncCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sync <src> <dst>", Short: "Make a directory like another, copying only what has changed", GroupID: groupFiles,
		Args: positionals("src", "dst"),
		Long: "Make a directory of a sandbox like one here, or the other way round, copying only files whose size, time or mode differ. " +
			"What the local directory's .gitignore and .sandboxignore files and .git/info/exclude name is left alone on both sides, and so is .git in every directory. " +
			"Git's own list of the user (core.excludesFile) is not read. A .gitignore that comes from the sandbox counts from the next time on.",
		Example: "  $ sandbox sync --watch --delete . web:app",
	}
	flags := cmd.Flags()
	toggle(flags, &c.watch, "watch", "w", "Repeat whenever something changes, and keep the sandbox running")
	toggle(flags, &c.noKeep, "no-extend-timeout", "", "With --watch: don't extend the sandbox's timeout")
	toggle(flags, &c.work.delete, "delete", "", "Delete what the source does not have")
	toggle(flags, &c.work.dryRun, "dry-run", "", "Show what would be done")
	options(flags, &c.exclude, "exclude", "", "pattern", "Leave out what matches (repeatable)", parseText)
	cmd.RunE = c.run
	return cmd
}

func (c *syncCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	s := &c.work
	s.app = c.app
	if err := s.open(ctx, args[0], args[1], c.exclude); err != nil {
		return err
	}
	defer s.close()
	if err := s.once(ctx); err != nil || !c.watch || s.dryRun {
		return err
	}
	if !c.noKeep {
		defer c.app.keepAlive(ctx, s.sb, "the watch ends with the session")()
	}
	if s.upward {
		return s.watchHere(ctx)
	}
	return s.watchThere(ctx)
}

// open finds both directories.
func (s *syncing) open(ctx context.Context, source, destination string, exclude []string) error {
	from, err := parseLocation(source)
	if err != nil {
		return err
	}
	to, err := parseLocation(destination)
	if err != nil {
		return err
	}
	if (from.sandbox == "") == (to.sandbox == "") || from.stream || to.stream {
		return usagef("one of the two must be a directory in a sandbox, NAME:DIR, and the other a local one")
	}
	s.upward = to.sandbox != ""
	remote := from
	s.here = to.path
	if s.upward {
		remote, s.here = to, from.path
		if !isLocalDir(s.here) {
			return usagef("%s is not a directory", s.here)
		}
	}
	s.there = remote.path
	if s.more, err = mirror.NewIgnore(exclude); err != nil {
		return usagef("--exclude: %v", err)
	}
	name, err := s.app.resolveName(remote.sandbox)
	if err != nil {
		return err
	}
	if s.sb, err = s.app.get(ctx, name, true); err != nil {
		return err
	}
	if s.root, err = os.OpenRoot(s.here); errors.Is(err, fs.ErrNotExist) && !s.upward {
		return nil
	}
	return err
}

func (s *syncing) close() {
	if s.root != nil {
		_ = s.root.Close() // nothing is written through it
	}
}

// keepAlive extends the sandbox's timeout until the returned function is called.
func (a *app) keepAlive(ctx context.Context, sb *sandbox.Sandbox, otherwise string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Step: keepAliveStep}); err != nil && ctx.Err() == nil {
			a.warn("the sandbox's timeout can't be extended any further: "+err.Error(), otherwise)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// once makes the destination like the source. A file that changes meanwhile is
// copied as it was at some time, or looked for again.
func (s *syncing) once(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := s.try(ctx)
		if !errors.Is(err, errChanged) || attempt == 3 {
			return err
		}
	}
}

// errChanged is the error of a file that is not what it was when it was listed.
var errChanged = errors.New("it has changed meanwhile")

func (s *syncing) try(ctx context.Context) error {
	local := mirror.Tree{}
	if s.root != nil {
		var err error
		if local, s.ignore, err = mirror.Local(s.root.FS(), s.more); err != nil {
			return err
		}
	}
	remote, err := s.remoteTree(ctx)
	if err != nil {
		return err
	}
	from, to := remote, local
	if s.upward {
		from, to = local, remote
	}
	c := mirror.Diff(from, to)
	if !s.delete {
		if i := slices.IndexFunc(c.Clear, func(p string) bool { return slices.ContainsFunc(slices.Concat(c.Delete, c.Remove), below(p)) }); i >= 0 {
			return withHint(fmt.Errorf("%s is a file in the source, and a directory with files in the destination", c.Clear[i]), "--delete replaces it")
		}
		c.Delete, c.Remove = nil, nil
	}
	if s.dryRun {
		return s.show(c)
	}
	if s.upward {
		err = s.push(ctx, c, from)
	} else {
		err = s.pull(ctx, c, from)
	}
	if gone := len(c.Delete) + len(c.Replace); err == nil && len(c.Write)+gone > 0 && !s.app.opts.quiet {
		fmt.Fprintf(s.app.err, "%s copied, %d deleted\n", plural(len(c.Write), "file", "files"), gone)
	}
	return err
}

func below(dir string) func(string) bool {
	return func(name string) bool { return strings.HasPrefix(name, dir+"/") }
}

type changesView struct {
	Write  []string `json:"write"`
	Delete []string `json:"delete"`
	Mkdir  []string `json:"mkdir"`
}

func (s *syncing) show(c mirror.Changes) error {
	gone := slices.Concat(c.Replace, c.Delete, c.Clear, c.Remove)
	if s.app.opts.structured() {
		some := func(names []string) []string { return append([]string{}, names...) }
		return s.app.print(output{
			doc: changesView{some(c.Write), some(gone), some(c.Make)}, names: slices.Concat(c.Write, gone),
		})
	}
	for _, l := range []struct {
		what  string
		names []string
	}{{"copy  ", c.Write}, {"mkdir ", c.Make}, {"delete", gone}} {
		for _, p := range l.names {
			fmt.Fprintln(s.app.shown(), l.what, p)
		}
	}
	return nil
}

// watching reports on a sync that goes on whatever happens, short of what can't
// get better.
type watching struct {
	*syncing
	failures int
}

func (w *watching) once(ctx context.Context) error {
	err := w.syncing.once(ctx)
	switch {
	case err == nil:
		w.failures = 0
		return nil
	case ctx.Err() != nil, errors.Is(err, sandbox.ErrNotFound), w.failures+1 == maxFailures:
		return err
	}
	w.failures++
	w.app.warn("this sync failed: "+w.app.explain(err).Message, "trying again")
	return nil
}

// watchThere syncs every few seconds.
func (s *syncing) watchThere(ctx context.Context) error {
	w := watching{syncing: s}
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := w.once(ctx); err != nil {
			return err
		}
	}
}

// watchHere syncs whenever something here has changed and settled.
func (s *syncing) watchHere(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := s.watchDirs(watcher, "."); err != nil {
		return err
	}
	fmt.Fprintf(s.app.err, "Watching %s.\n", s.here)
	w := watching{syncing: s}
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	var first time.Time // of the changes that are not synced
	changed := func() {
		if first.IsZero() {
			first = time.Now()
		}
		// Somebody who never stops writing is not waited for.
		settled.Reset(max(0, min(settleTime, pollTime-time.Since(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-watcher.Events:
			if !ok {
				return errors.New("the watch has ended")
			}
			if rel, err := filepath.Rel(s.here, e.Name); err == nil && e.Has(fsnotify.Create) && isLocalDir(e.Name) {
				if err := s.watchDirs(watcher, filepath.ToSlash(rel)); err != nil {
					return err
				}
			}
			changed()
		case err := <-watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			changed()
		case <-settled.C:
			first = time.Time{}
			if err := w.once(ctx); err != nil {
				return err
			}
			if w.failures > 0 {
				settled.Reset(pollTime)
			}
		}
	}
}

// watchDirs watches a directory and those below it.
func (s *syncing) watchDirs(watcher *fsnotify.Watcher, dir string) error {
	return fs.WalkDir(s.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if name != "." && (s.ignore.Match(name) || s.more.Match(name)) {
			return fs.SkipDir
		}
		err = watcher.Add(filepath.Join(s.here, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
