// Package files copies files to, from and between sandboxes.
package files

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
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/own"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/outputs"
)

// CopyOptions are the options of cp.
type CopyOptions struct {
	Follow           bool
	Exclude, Include []string
	Mkdir            bool
	NoClobber        bool
	Progress         bool
	NoProgress       bool
	OutsideLinks     bool
	DotGit           bool
}

// NoSource is the error of a local source that can't be read.
func NoSource(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &screen.ExitError{Code: screen.ExitNotFound, Err: fmt.Errorf("source file (%s) not found", name)}
	}
	return err
}

// Upload copies local paths into a sandbox.
func Upload(ctx context.Context, screen *screen.Screen, sb *sandbox.Sandbox, sources []string, destination string, o *CopyOptions) error {
	for _, s := range sources {
		c := &Copy{
			Screen: screen, O: o, From: Location{Path: s}, To: Location{Sandbox: sb.Name(), Path: destination}, Several: len(sources) > 1, Target: sb,
		}
		if err := c.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Copy copies one source to its destination.
type Copy struct {
	Screen         *screen.Screen
	O              *CopyOptions
	From, To       Location
	Several        bool
	Source, Target *sandbox.Sandbox // nil for a local path
}

// Run copies the source.
func (c *Copy) Run(ctx context.Context) error {
	switch {
	case c.Source == nil && c.From.Stream:
		return c.fromStream(ctx, c.Screen.Input(ctx), c.To.Path)
	case c.Source == nil:
		return c.upload(ctx)
	case c.To.Stream:
		return c.toStdout(ctx)
	case c.Target == nil:
		return c.download(ctx)
	}
	return c.betweenSandboxes(ctx)
}

func isDirError(err error) bool { return errors.Is(err, syscall.EISDIR) }

// fromStream uploads a stream to a file.
func (c *Copy) fromStream(ctx context.Context, r io.Reader, to string) error {
	if have, err := c.mustKeep(ctx, to); have || err != nil {
		return err
	}
	bar := newBar(c.Screen, path.Base(to), c.O, -1)
	defer bar.done()
	w, err := c.Target.FS().Create(ctx, to, &sandbox.WriterOptions{Progress: bar.update})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, r); err != nil {
		return err
	}
	return w.Close()
}

func (c *Copy) toStdout(ctx context.Context) error {
	if c.From.meansContent() {
		return c.archiveToStdout(ctx, c.From.Path, ".")
	}
	r, err := OpenRemote(ctx, c.Source.FS(), c.From.Path)
	if isDirError(err) {
		clean := path.Clean(c.From.Path)
		return c.archiveToStdout(ctx, path.Dir(clean), path.Base(clean))
	}
	if err != nil {
		return c.Missing(err)
	}
	defer r.Close()
	_, err = io.Copy(c.Screen.Out.Raw, r)
	return err
}

// archiveToStdout writes the file or directory name of dir to standard output as a tar
// archive.
func (c *Copy) archiveToStdout(ctx context.Context, dir, name string) error {
	if c.Screen.Out.Terminal {
		return screen.WithHint(line.Usagef("a directory goes to standard output as an archive, which is not for a terminal"), "%s | tar -t", screen.Try("cp %s -", line.ShellWord(c.From.String())))
	}
	stdout, finish := decodeBase64(c.Screen.Out.Raw)
	stderr := &outputs.Tail{Max: 16 << 20}
	result, err := own.Run(ctx, c.Source, &sandbox.CommandOptions{Stdout: stdout, Stderr: stderr, KillOnCancel: true}, "bash", "-c", archiveScript, "bash", dir, name)
	if finishErr := finish(); err == nil {
		err = finishErr
	}
	if err != nil || result.ExitCode == 0 {
		return err
	}
	found, only := coreutils.PackFaults(coreutils.Result{ExitCode: result.ExitCode, Stderr: stderr.String()})
	changed := &sandbox.ChangedError{Path: c.From.Path}
	for _, f := range found {
		filledUp := f.Zeros > 0 || f.ReadOnly >= 0 // the archive already contains zeros instead of the file's content
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
		return fmt.Errorf("packing %s in the sandbox failed: %s", c.From.Path, screen.Lines(strings.TrimSpace(stderr.String())))
	}
	return changed
}

// archiveScript is a shell script that writes the entry $2 of the directory $1 as an
// archive, in base64.
const archiveScript = `set -o pipefail; cd -- "$1" && tar --format=posix --quoting-style=escape -cf - -- "$2" | base64 -w 8192`

// decodeBase64 returns a writer that decodes its input, and a function that waits until
// everything is decoded.
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

// betweenSandboxes copies from one sandbox to another, or within one.
func (c *Copy) betweenSandboxes(ctx context.Context) error {
	r, err := OpenRemote(ctx, c.Source.FS(), c.From.Path)
	if isDirError(err) || err == nil && c.From.meansContent() {
		if r != nil {
			r.Close()
		}
		return c.betweenSandboxesDir(ctx)
	}
	if err != nil {
		return c.Missing(err)
	}
	defer r.Close()
	to := c.To
	if to.intoDir() || c.Several || c.remoteDir(ctx, to.Path) {
		to = to.within(c.From.base())
	}
	if have, err := c.mustKeep(ctx, to.Path); have || err != nil {
		return err
	}
	info, err := c.Source.FS().Stat(ctx, c.From.Path)
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	bar := newBar(c.Screen, c.From.base(), c.O, info.Size())
	defer bar.done()
	w, err := c.Target.FS().Create(ctx, to.Path, &sandbox.WriterOptions{Mode: &mode, Progress: bar.update})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, r); err != nil {
		return err
	}
	return w.Close()
}

// betweenSandboxesDir copies a directory from one sandbox to another through a temporary local
// directory.
func (c *Copy) betweenSandboxesDir(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "sandbox-cp-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var left leftOut
	err = c.Source.FS().DownloadDir(ctx, c.From.Path, dir, &sandbox.DownloadDirOptions{
		Exclude: c.O.Exclude, Include: c.O.Include, OutsideLinks: c.O.OutsideLinks, DotGit: true, LeftOut: left.add,
	})
	left.warn(c.Screen)
	_, complete := errors.AsType[*sandbox.ChangedError](err)
	if err != nil && !complete {
		return c.Missing(err)
	}
	to := c.To
	if !c.From.meansContent() && (to.intoDir() || c.Several || c.remoteDir(ctx, to.Path)) {
		to = to.within(c.From.base())
	}
	bar := newDirBar(ctx, c.Screen, dir, &CopyOptions{Progress: c.O.Progress, NoProgress: c.O.NoProgress})
	defer bar.done()
	o := &sandbox.UploadOptions{Progress: bar.update, OutsideLinks: true}
	if err := c.excludeExisting(ctx, to.Path, o); err != nil {
		return err
	}
	return cmp.Or(c.Target.FS().UploadDir(ctx, dir, to.Path, o), err)
}

// leftOut lists the files that a copy omits.
type leftOut []string

func (l *leftOut) add(name string) { *l = append(*l, name) }

// warn warns about the omitted files, if any.
func (l leftOut) warn(a *screen.Screen) {
	if len(l) > 0 {
		a.Warn("left out: "+firstNames(l), "--outside-links keeps links that lead out of the directory, and --dot-git files that Git or an editor would run; sockets, pipes and devices can't be copied")
	}
}

// firstNames lists the first names, and says how many more there are.
func firstNames(names []string) string {
	const shown = 10
	text := redact.Printable(strings.Join(names[:min(len(names), shown)], ", "))
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
