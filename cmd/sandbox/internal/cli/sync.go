package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/mirror"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/untar"
)

// syncing keeps a directory like another one.
type syncing struct {
	app    *app
	sb     *sandbox.Sandbox
	here   string
	there  string
	upward bool // from here to the sandbox
	delete bool
	dryRun bool
	ignore *mirror.Ignore
}

const (
	// settleTime is how long files have to be left alone until they are synced.
	settleTime = 150 * time.Millisecond
	// pollTime is how often the sandbox is looked at.
	pollTime = 2 * time.Second
	// deletedAtOnce is how many files one command deletes.
	deletedAtOnce = 500
	// maxListing limits the listing of a sandbox, some 500,000 files.
	maxListing = 64 << 20
)

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// capped keeps the first words of what a program says about an error, of which a
// hostile one has no end.
type capped struct{ text []byte }

const maxComplaint = 4 << 10

func (c *capped) Write(p []byte) (int, error) {
	c.text = append(c.text, p[:min(len(p), maxComplaint-len(c.text))]...)
	return len(p), nil
}

// String returns the text as one that a terminal can be given.
func (c *capped) String() string { return redact.Printable(strings.TrimSpace(string(c.text))) }

func (a *app) syncCommand() *cobra.Command {
	var (
		s       syncing
		watch   bool
		exclude []string
	)
	cmd := &cobra.Command{
		Use: "sync <src> <dst>", Short: "Make a directory like another, copying only what has changed", GroupID: groupFiles,
		Args: positionals("src", "dst"),
		Long: "Make a directory of a sandbox like one here, or the other way round, copying only files whose size, time or mode differ. " +
			"What .gitignore and .sandboxignore of the local directory name, and .git, is left alone on both sides.",
		Example: "  $ sandbox sync --watch --delete . web:/vercel/sandbox",
	}
	flags := cmd.Flags()
	toggle(flags, &watch, "watch", "w", "Go on, whenever something changes")
	toggle(flags, &s.delete, "delete", "", "Delete what the source does not have")
	toggle(flags, &s.dryRun, "dry-run", "", "Show what would be done")
	options(flags, &exclude, "exclude", "", "pattern", "Leave out what matches (repeatable)", parseText)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, err := parseLocation(args[0])
		if err != nil {
			return err
		}
		to, err := parseLocation(args[1])
		if err != nil {
			return err
		}
		if (from.sandbox == "") == (to.sandbox == "") || from.stream || to.stream {
			return usagef("one of the two has to be a directory in a sandbox, NAME:DIR, and the other one here")
		}
		s.app, s.upward = a, to.sandbox != ""
		remote := from
		s.here = to.path
		if s.upward {
			remote, s.here = to, from.path
			if !isLocalDir(s.here) {
				return usagef("%s is not a directory", s.here)
			}
		}
		if real, err := filepath.EvalSymlinks(s.here); err == nil {
			s.here = real // what walks a directory does not follow a link to it
		}
		s.there = remote.path
		if s.ignore, err = mirror.ReadIgnore(s.here, exclude); err != nil {
			return err
		}
		name, err := a.resolveName(remote.sandbox)
		if err != nil {
			return err
		}
		if s.sb, err = a.get(cmd.Context(), name, true); err != nil {
			return err
		}
		if err := s.once(cmd.Context()); err != nil || !watch || s.dryRun {
			return err
		}
		if s.upward {
			return s.watchHere(cmd.Context())
		}
		return a.repeatQuietly(cmd.Context(), pollTime, s.once)
	}
	return cmd
}

// repeatQuietly does something again and again until the context ends.
func (a *app) repeatQuietly(ctx context.Context, every time.Duration, do func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := do(ctx); err != nil {
			return err
		}
	}
}

// remoteTree lists the directory of the sandbox.
func (s *syncing) remoteTree(ctx context.Context) (mirror.Tree, error) {
	var stdout strings.Builder
	var stderr capped
	limited, end := context.WithCancelCause(ctx)
	defer end(nil)
	result, err := s.sb.RunCommand(limited, "bash", []string{"-c", mirror.ListScript, "bash", s.there}, &sandbox.CommandOptions{
		Stdout: writerFunc(func(p []byte) (int, error) {
			if stdout.Len()+len(p) > maxListing {
				end(fmt.Errorf("the listing of %s in the sandbox is longer than %s", s.there, units.Bytes(maxListing)))
				return 0, context.Cause(limited)
			}
			return stdout.Write(p)
		}),
		Stderr: &stderr,
	})
	if cause := context.Cause(limited); cause != nil && ctx.Err() == nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	if result.ExitCode == mirror.ExitMissing {
		if s.upward {
			return mirror.Tree{}, nil
		}
		return nil, &exitError{code: exitNotFound, err: fmt.Errorf("there is no directory %s in sandbox %s", s.there, s.sb.Name())}
	}
	if result.ExitCode != 0 {
		return nil, withHint(fmt.Errorf("listing %s in the sandbox failed: %s", s.there, stderr.String()), "sync needs bash and GNU find there")
	}
	return mirror.ParseList(stdout.String(), s.ignore)
}

// once makes the destination like the source.
func (s *syncing) once(ctx context.Context) error {
	local, err := mirror.Local(s.here, s.ignore)
	if err != nil && (s.upward || !errors.Is(err, fs.ErrNotExist)) {
		return err
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
		c.Delete = nil
	}
	if s.dryRun {
		return s.show(c)
	}
	if s.upward {
		err = s.push(ctx, c, from)
	} else {
		err = s.pull(ctx, c, from)
	}
	if err == nil && len(c.Write)+len(c.Delete) > 0 && !s.app.opts.quiet {
		fmt.Fprintf(s.app.err, "%s copied, %d deleted\n", plural(len(c.Write), "file", "files"), len(c.Delete))
	}
	return err
}

func (s *syncing) show(c mirror.Changes) error {
	if s.app.opts.structured() {
		return s.app.print(output{doc: map[string][]string{"write": c.Write, "delete": c.Delete}, names: slices.Concat(c.Write, c.Delete)})
	}
	for _, p := range c.Write {
		fmt.Fprintln(s.app.out, "copy  ", p)
	}
	for _, p := range c.Delete {
		fmt.Fprintln(s.app.out, "delete", p)
	}
	return nil
}

// push makes the changes in the sandbox.
func (s *syncing) push(ctx context.Context, c mirror.Changes, tree mirror.Tree) error {
	var files []sandbox.File
	var links []string
	for _, p := range c.Write {
		e := tree[p]
		if e.Mode&fs.ModeSymlink != 0 {
			links = append(links, p)
			continue
		}
		mode := e.Mode.Perm()
		files = append(files, sandbox.File{
			Path: path.Join(s.there, p), Size: e.Size, Mode: &mode, ModTime: e.ModTime,
			Open: func() (io.ReadCloser, error) { return os.Open(filepath.Join(s.here, filepath.FromSlash(p))) },
		})
	}
	for part := range slices.Chunk(c.Delete, deletedAtOnce) {
		args := []string{"-f", "--"}
		for _, p := range part {
			args = append(args, path.Join(s.there, p))
		}
		result, err := s.sb.RunCommand(ctx, "rm", args, nil)
		if err != nil {
			return err
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("deleting files in the sandbox failed with exit code %d", result.ExitCode)
		}
	}
	if len(files) > 0 {
		bar := s.app.bar(&copyOptions{}, -1)
		err := s.sb.WriteFiles(ctx, files, &sandbox.WriteFilesOptions{Progress: bar.update})
		bar.done()
		if err != nil {
			return err
		}
	}
	for _, p := range links {
		name := path.Join(s.there, p)
		if err := s.sb.FS().Remove(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := s.sb.FS().Symlink(ctx, tree[p].Link, name); err != nil {
			return err
		}
	}
	return nil
}

// pull makes the changes here.
func (s *syncing) pull(ctx context.Context, c mirror.Changes, tree mirror.Tree) error {
	for _, p := range c.Delete {
		if err := os.Remove(filepath.Join(s.here, filepath.FromSlash(p))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(c.Write) == 0 {
		return nil
	}
	if err := os.MkdirAll(s.here, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.here)
	if err != nil {
		return err
	}
	defer root.Close()
	bar := s.app.bar(&copyOptions{}, -1)
	defer bar.done()
	return s.unpack(ctx, root, c.Write, tree, bar.update)
}

// maxUnpacked is how much a sandbox may send in one go.
const maxUnpacked = 64 << 30

// unpack copies files of the sandbox. It takes what the listing has and nothing
// else: neither was written by anybody to be trusted.
func (s *syncing) unpack(ctx context.Context, root *os.Root, names []string, tree mirror.Tree, progress sandbox.ProgressFunc) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wanted := map[string]fs.FileMode{}
	var list strings.Builder
	for _, p := range names {
		wanted[p] = tree[p].Mode.Type()
		list.WriteString("./" + p + "\x00")
	}
	var stderr capped
	cmd := s.sb.CommandContext(ctx, "bash", "-c", mirror.PackScript, "bash", s.there)
	cmd.Stdin, cmd.Stderr = strings.NewReader(list.String()), &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := int64(0)
	err = mirror.Unpack(ctx, stdout, root, untar.Options{
		MaxEntries: len(names) + 500_000, MaxBytes: maxUnpacked,
		Check: func(name string, h *tar.Header) error {
			kind, listed := wanted[name]
			regular := h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse
			switch {
			case !listed:
				return fmt.Errorf("%w: it was not asked for", untar.ErrUnsafe)
			case kind == 0 && !regular, kind == fs.ModeSymlink && h.Typeflag != tar.TypeSymlink:
				return fmt.Errorf("%w: it is not of the kind that was listed", untar.ErrUnsafe)
			}
			return nil
		},
		Progress: func(name string, n int) {
			if done += int64(n); progress != nil {
				progress(sandbox.Progress{Path: name, Done: done, Total: -1})
			}
		},
	})
	if err != nil {
		cancel()
	}
	if werr := cmd.Wait(); err == nil && werr != nil {
		return fmt.Errorf("reading %s in the sandbox failed: %w: %s", s.there, werr, stderr.String())
	}
	return err
}

// watchHere syncs whenever something here has changed and settled.
func (s *syncing) watchHere(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := s.watchDirs(watcher, s.here); err != nil {
		return err
	}
	fmt.Fprintf(s.app.err, "Watching %s.\n", s.here)
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-watcher.Events:
			if !ok {
				return errors.New("the watch has ended")
			}
			if e.Has(fsnotify.Create) && isLocalDir(e.Name) {
				if err := s.watchDirs(watcher, e.Name); err != nil {
					return err
				}
			}
			settled.Reset(settleTime)
		case err := <-watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			settled.Reset(settleTime)
		case <-settled.C:
			if err := s.once(ctx); err != nil {
				return err
			}
		}
	}
}

// watchDirs watches a directory and those below it.
func (s *syncing) watchDirs(watcher *fsnotify.Watcher, dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if rel, err := filepath.Rel(s.here, name); err == nil && rel != "." && s.ignore.Match(filepath.ToSlash(rel)) {
			return filepath.SkipDir
		}
		return watcher.Add(name)
	})
}
