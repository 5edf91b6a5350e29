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

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/mirror"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/untar"
)

const (
	// pathsAtOnce is how many paths one command gets.
	pathsAtOnce = 500
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
	return mirror.ParseList(stdout.String(), s.ignore, s.more)
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
			Path: path.Join(s.there, p), Mode: &mode, ModTime: e.ModTime,
			Reader: &lateFile{open: func() (io.ReadCloser, error) { return s.openLocal(p, e.Size) }, size: e.Size},
		})
	}
	for _, step := range []struct {
		paths   []string
		command []string
	}{
		{slices.Concat(c.Replace, c.Delete), []string{"rm", "-f"}},
		// What is ignored may be left in a directory that goes, and keeps it.
		{reversed(c.Remove), []string{"rmdir", "--ignore-fail-on-non-empty"}},
		{reversed(c.Clear), []string{"rmdir"}},
		{c.Make, []string{"mkdir", "-p"}},
	} {
		if err := s.runThere(ctx, step.command, step.paths); err != nil {
			return err
		}
	}
	if len(files) > 0 {
		bar := s.app.bar(&copyOptions{}, -1)
		err := s.sb.WriteFiles(ctx, files, &sandbox.UploadOptions{Progress: bar.update})
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

// runThere runs a program of the sandbox with paths of its directory.
func (s *syncing) runThere(ctx context.Context, command, paths []string) error {
	for part := range slices.Chunk(paths, pathsAtOnce) {
		args := append(slices.Clone(command[1:]), "--")
		for _, p := range part {
			args = append(args, path.Join(s.there, p))
		}
		var stderr capped
		result, err := s.sb.RunCommand(ctx, command[0], args, &sandbox.CommandOptions{Stdout: io.Discard, Stderr: &stderr})
		if err != nil {
			return err
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("%s in the sandbox failed: %s", command[0], stderr.String())
		}
	}
	return nil
}

// reversed has the directories below others before them.
func reversed(paths []string) []string {
	out := slices.Clone(paths)
	slices.Reverse(out)
	return out
}

// openLocal opens a file that was listed. Neither a link that has taken its place
// is followed, nor what has been added to it read.
func (s *syncing) openLocal(name string, size int64) (io.ReadCloser, error) {
	name = filepath.FromSlash(name)
	f, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil {
		var entry fs.FileInfo
		if entry, err = s.root.Lstat(name); err == nil && (!os.SameFile(entry, opened) || !entry.Mode().IsRegular() || opened.Size() < size) {
			err = fmt.Errorf("%s: %w", name, errChanged)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, size), f}, nil
}

// pull makes the changes here.
func (s *syncing) pull(ctx context.Context, c mirror.Changes, tree mirror.Tree) error {
	if s.root == nil {
		if err := os.MkdirAll(s.here, 0o777); err != nil {
			return err
		}
		var err error
		if s.root, err = os.OpenRoot(s.here); err != nil {
			return err
		}
	}
	remove := func(paths []string, must bool) error {
		for _, p := range paths {
			err := s.root.Remove(filepath.FromSlash(p))
			if err != nil && must && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	if err := remove(slices.Concat(c.Replace, c.Delete), true); err != nil {
		return err
	}
	_ = remove(reversed(c.Remove), false) // what is ignored may be left in them
	if err := remove(reversed(c.Clear), true); err != nil {
		return err
	}
	for _, p := range c.Make {
		if err := s.root.MkdirAll(filepath.FromSlash(p), 0o777); err != nil {
			return err
		}
	}
	if len(c.Write) == 0 {
		return nil
	}
	bar := s.app.bar(&copyOptions{}, -1)
	defer bar.done()
	return s.unpack(ctx, c.Write, tree, bar.update)
}

// maxUnpacked is how much a sandbox may send in one go.
const maxUnpacked = 64 << 30

// unpack copies files of the sandbox. It takes what the listing has and nothing
// else: neither was written by anybody to be trusted.
func (s *syncing) unpack(ctx context.Context, names []string, tree mirror.Tree, progress func(sandbox.Progress)) error {
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
	err = mirror.Unpack(ctx, stdout, s.root, untar.Options{
		MaxEntries: len(names) + 500_000, MaxBytes: maxUnpacked,
		Check: func(name string, h *tar.Header) error {
			kind, listed := wanted[name]
			regular := h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse
			switch {
			case !listed:
				return fmt.Errorf("%w: it was not requested", untar.ErrUnsafe)
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
