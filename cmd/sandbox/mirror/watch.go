package mirror

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/go-vercel/sandbox"
)

const (
	// settleTime is how long files have to be left alone until they are copied.
	settleTime = 150 * time.Millisecond
	// pollTime is how often the sandbox is looked at, how long changes here wait at
	// most, and how long is waited when a sync has failed.
	pollTime = 2 * time.Second
	// maxFailures is how often in a row a sync may fail.
	maxFailures = 5
)

// WatchUpload is Upload whenever something in localDir changes, until ctx ends,
// whose error it returns. It fails if the first upload does, if the sandbox is
// gone, or if the upload fails five times in a row for other reasons than the
// files themselves.
//
// It does not keep the sandbox running: see [sandbox.Sandbox.KeepAlive].
func WatchUpload(ctx context.Context, sb *sandbox.Sandbox, localDir, dir string, opts *Options) error {
	s, err := newSyncer(sb, localDir, dir, true, opts)
	if err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	// Each look watches a directory before it reads it, so that no change falls
	// between the two.
	s.enter = func(dir string) error {
		if err := watcher.Add(filepath.Join(s.here, filepath.FromSlash(dir))); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return s.watch(ctx, watcher)
}

// WatchDownload is Download every two seconds, until ctx ends, and otherwise like
// [WatchUpload].
func WatchDownload(ctx context.Context, sb *sandbox.Sandbox, dir, localDir string, opts *Options) error {
	s, err := newSyncer(sb, localDir, dir, false, opts)
	if err != nil {
		return err
	}
	w := watching{syncer: s}
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		if err := w.sync(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watching syncs again and again, whatever happens, short of what can't get better.
type watching struct {
	*syncer
	begun    bool
	again    bool // the last sync failed, and is tried again even if nothing changes
	failures int
}

func (w *watching) sync(ctx context.Context) error {
	w.o.DryRun = false
	c, err := w.once(ctx)
	_, complete := errors.AsType[*sandbox.ChangedError](err)
	inFiles := complete || errors.Is(err, ErrInTheWay) || errors.Is(err, errChanged)
	switch {
	case err == nil:
		w.failures = 0
	case ctx.Err() != nil:
		return ctx.Err()
	case !inFiles:
		w.failures++
	}
	if err != nil && !complete && (!w.begun || w.failures == maxFailures || errors.Is(err, sandbox.ErrNotFound)) {
		return err
	}
	w.begun = true
	w.again = err != nil && !errors.Is(err, ErrInTheWay)
	if w.o.OnSync != nil {
		w.o.OnSync(c, err)
	}
	return nil
}

// watch syncs whenever something here has changed and settled.
func (s *syncer) watch(ctx context.Context, watcher *fsnotify.Watcher) error {
	w := watching{syncer: s}
	settled := time.NewTimer(0)
	defer settled.Stop()
	var first time.Time // of the changes that are not synced
	changed := func() {
		if first.IsZero() {
			first = time.Now()
		}
		// Whoever never stops writing is not waited for.
		settled.Reset(max(0, min(settleTime, pollTime-time.Since(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-watcher.Events:
			if !ok {
				return errors.New("mirror: the watch has ended")
			}
			if !s.leftAlone(e.Name) {
				changed()
			}
		case err := <-watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			changed()
		case <-settled.C:
			first = time.Time{}
			if err := w.sync(ctx); err != nil {
				return err
			}
			if w.again {
				settled.Reset(pollTime)
			}
		}
	}
}

// leftAlone reports whether a file of here is ignored, so that it need not be
// looked at because of it.
func (s *syncer) leftAlone(name string) bool {
	rel, err := filepath.Rel(s.here, name)
	if err != nil || rel == "." {
		return false
	}
	rel = filepath.ToSlash(rel)
	return s.ignore.match(rel) || s.more.match(rel)
}
