package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/own"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/outputs"
)

// copyOptions say how files are copied.
type copyOptions struct {
	follow           bool
	exclude, include []string
	mkdir            bool
	noClobber        bool
	progress         bool
	noProgress       bool
	outsideLinks     bool
	dotGit           bool
}

// noSource is the error of a local source that can't be read.
func noSource(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitNotFound, err: fmt.Errorf("source file (%s) not found", name)}
	}
	return err
}

// uploadAll copies local paths into a sandbox.
func uploadAll(ctx context.Context, screen *stdio, sb *sandbox.Sandbox, sources []string, destination string, o *copyOptions) error {
	for _, s := range sources {
		c := &copying{
			screen: screen, o: o, from: location{path: s}, to: location{sandbox: sb.Name(), path: destination}, several: len(sources) > 1, target: sb,
		}
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// copying is the copying of one source.
type copying struct {
	screen         *stdio
	o              *copyOptions
	from, to       location
	several        bool
	source, target *sandbox.Sandbox // nil for a path here
}

func (c *copying) run(ctx context.Context) error {
	switch {
	case c.source == nil && c.from.stream:
		return c.fromStream(ctx, c.screen.input(ctx), c.to.path)
	case c.source == nil:
		return c.upload(ctx)
	case c.to.stream:
		return c.toStdout(ctx)
	case c.target == nil:
		return c.download(ctx)
	}
	return c.across(ctx)
}

func isDirError(err error) bool { return errors.Is(err, syscall.EISDIR) }

// fromStream uploads what a stream has to its end.
func (c *copying) fromStream(ctx context.Context, r io.Reader, to string) error {
	if have, err := c.keeps(ctx, to); have || err != nil {
		return err
	}
	bar := newBar(c.screen, path.Base(to), c.o, -1)
	defer bar.done()
	w, err := c.target.FS().Create(ctx, to, &sandbox.WriterOptions{Progress: bar.update})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, r); err != nil {
		return err
	}
	return w.Close()
}

func (c *copying) toStdout(ctx context.Context) error {
	if c.from.content() {
		return c.archiveToStdout(ctx, c.from.path, ".")
	}
	r, err := openRemote(ctx, c.source.FS(), c.from.path)
	if isDirError(err) {
		clean := path.Clean(c.from.path)
		return c.archiveToStdout(ctx, path.Dir(clean), path.Base(clean))
	}
	if err != nil {
		return c.missing(err)
	}
	defer r.Close()
	_, err = io.Copy(c.screen.out.Raw, r)
	return err
}

// archiveToStdout writes something in a directory as a tar archive.
func (c *copying) archiveToStdout(ctx context.Context, dir, name string) error {
	if c.screen.out.Terminal {
		return withHint(usagef("a directory goes to standard output as an archive, which is not for a terminal"), "%s | tar -t", try("cp %s -", shellWord(c.from.String())))
	}
	stdout, finish := decodeBase64(c.screen.out.Raw)
	stderr := &outputs.Tail{Max: 16 << 20}
	result, err := own.Run(ctx, c.source, &sandbox.CommandOptions{Stdout: stdout, Stderr: stderr, KillOnCancel: true}, "bash", "-c", archiveScript, "bash", dir, name)
	if finishErr := finish(); err == nil {
		err = finishErr
	}
	if err != nil || result.ExitCode == 0 {
		return err
	}
	found, only := coreutils.PackFaults(coreutils.Result{ExitCode: result.ExitCode, Stderr: stderr.String()})
	changed := &sandbox.ChangedError{Path: c.from.path}
	for _, f := range found {
		filledUp := f.Zeros > 0 || f.ReadOnly >= 0 // what has gone out can't be mended
		only = only && !filledUp && f.Name != name
		switch f.Kind {
		case coreutils.Changed:
			changed.Changed = append(changed.Changed, f.Name)
		case coreutils.Gone:
			changed.Gone = append(changed.Gone, f.Name)
		case coreutils.Unreadable:
			changed.Unreadable = append(changed.Unreadable, &fs.PathError{Op: "read", Path: f.Name, Err: f.Errno})
		}
	}
	if !only {
		return fmt.Errorf("packing %s in the sandbox failed: %s", c.from.path, lines(strings.TrimSpace(stderr.String())))
	}
	return changed
}

// archiveScript writes something in a directory as an archive.
const archiveScript = `set -o pipefail; cd -- "$1" && tar --format=posix --quoting-style=escape -cf - -- "$2" | base64 -w 8192`

// decodeBase64 returns a writer that decodes what is written to it, and a
// function that waits until all has been.
func decodeBase64(out io.Writer) (io.Writer, func() error) {
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, base64.NewDecoder(base64.StdEncoding, pr))
		pr.CloseWithError(err)
		done <- err
	}()
	return pw, func() error {
		pw.Close()
		return <-done
	}
}

// across copies from one sandbox to another, or within one.
func (c *copying) across(ctx context.Context) error {
	r, err := openRemote(ctx, c.source.FS(), c.from.path)
	if isDirError(err) || err == nil && c.from.content() {
		if r != nil {
			r.Close()
		}
		return c.acrossDir(ctx)
	}
	if err != nil {
		return c.missing(err)
	}
	defer r.Close()
	to := c.to
	if to.intoDir() || c.several || c.remoteDir(ctx, to.path) {
		to = to.within(c.from.base())
	}
	if have, err := c.keeps(ctx, to.path); have || err != nil {
		return err
	}
	info, err := c.source.FS().Stat(ctx, c.from.path)
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	bar := newBar(c.screen, c.from.base(), c.o, info.Size())
	defer bar.done()
	w, err := c.target.FS().Create(ctx, to.path, &sandbox.WriterOptions{Mode: &mode, Progress: bar.update})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, r); err != nil {
		return err
	}
	return w.Close()
}

// acrossDir copies a directory through a temporary one here.
func (c *copying) acrossDir(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "sandbox-cp-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var left leftOut
	err = c.source.FS().DownloadDir(ctx, c.from.path, dir, &sandbox.DownloadDirOptions{
		Exclude: c.o.exclude, Include: c.o.include, OutsideLinks: c.o.outsideLinks, DotGit: true, LeftOut: left.add,
	})
	left.tell(c.screen)
	_, complete := errors.AsType[*sandbox.ChangedError](err)
	if err != nil && !complete {
		return c.missing(err)
	}
	to := c.to
	if !c.from.content() && (to.intoDir() || c.several || c.remoteDir(ctx, to.path)) {
		to = to.within(c.from.base())
	}
	bar := newDirBar(ctx, c.screen, dir, &copyOptions{progress: c.o.progress, noProgress: c.o.noProgress})
	defer bar.done()
	o := &sandbox.UploadOptions{Progress: bar.update, OutsideLinks: true}
	if err := c.excludeThere(ctx, to.path, o); err != nil {
		return err
	}
	return cmp.Or(c.target.FS().UploadDir(ctx, dir, to.path, o), err)
}

// leftOut are the files that a copy does not carry.
type leftOut []string

func (l *leftOut) add(name string) { *l = append(*l, name) }

// tell says what did not arrive, if anything.
func (l leftOut) tell(a *stdio) {
	if len(l) > 0 {
		a.warn("left out: "+some(l), "--outside-links keeps links that lead out of the directory, --dot-git what Git or an editor would run by itself; sockets, pipes and devices can't be copied")
	}
}

// some are the first of some names.
func some(names []string) string {
	const shown = 10
	text := redact.Printable(strings.Join(names[:min(len(names), shown)], ", "))
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
