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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
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

type copyCommand struct {
	place

	o       copyOptions
	ignored bool
}

func (c *copyCommand) command() *command {
	return &command{
		name: "copy", aliases: []string{"cp"}, near: []string{"upload", "download", "push", "pull", "put", "scp"}, first: true, short: "Copy files and directories to, from and between sandboxes",
		long: "Copy files and directories to, from and between sandboxes. A path in a sandbox is NAME:PATH; - is standard input or output, to which a directory goes as a tar archive. " +
			"As with cp, something is copied into a directory that exists, or that ends in a slash; DIR/. is what is in a directory. " +
			"Several sources may be given. Modes, times and symbolic links are kept.",
		args: []argument{
			{name: "src", text: "What to copy: a path here, or NAME:PATH in a sandbox", sandbox: ":"},
			{name: "dst", text: "Where to: a path here, or NAME:PATH in a sandbox", sandbox: ":"},
		},
		check: func(cmd *cobra.Command, args []string) error {
			names := []string{"src", "dst"}
			if len(args) < 2 {
				return &usageError{message: "no value provided for " + names[len(args)], hint: moreAbout(cmd)}
			}
			return nil
		},
		options: c.define, example: "cp my-app:build ./out", doc: []copyView{}, run: c.run,
	}
}

func (c *copyCommand) define(flags *pflag.FlagSet) {
	toggle(flags, &c.ignored, "recursive", "r", "Has no effect: directories are always copied")
	toggle(flags, &c.ignored, "Recursive", "R", "The same, as in cp(1)")
	flags.Lookup("Recursive").Hidden = true
	flags.BoolVarP(&c.ignored, "archive", "a", false, "Has no effect: modes, times and links are always kept")
	toggle(flags, &c.o.follow, "follow-symlinks", "L", "Copy what symbolic links lead to (uploads)")
	options(flags, &c.o.exclude, "exclude", "", "pattern", "Leave out what matches, such as node_modules or **/*.log (repeatable)", parseText)
	options(flags, &c.o.include, "include", "", "pattern", "Copy only what matches (repeatable)", parseText)
	toggle(flags, &c.o.outsideLinks, "outside-links", "", "Keep symbolic links that lead out of the directory")
	toggle(flags, &c.o.dotGit, "dot-git", "", "Download into a working tree also what acts there by itself: .git, .hg, HEAD of a repository, .vscode and the like")
	toggle(flags, &c.o.mkdir, "mkdir", "", "Make the local directories that lead to the destination")
	toggle(flags, &c.o.noClobber, "no-clobber", "n", "Leave files that exist as they are")
	toggle(flags, &c.o.progress, "progress", "", "Show the progress even if standard error is not a terminal")
	toggle(flags, &c.o.noProgress, "no-progress", "", "Never show the progress")
}

func (c *copyCommand) run(cmd *cobra.Command, args []string) error {
	return c.copy(cmd.Context(), args[:len(args)-1], args[len(args)-1], &c.o)
}

// copy copies sources to a destination.
func (c *copyCommand) copy(ctx context.Context, sources []string, destination string, o *copyOptions) error {
	to, err := parseLocation(destination)
	if err != nil {
		return err
	}
	var from []location
	for _, s := range sources {
		l, err := parseLocation(s)
		if err != nil {
			return err
		}
		if l.sandbox == "" && to.sandbox == "" {
			return withHint(usagef("neither %s nor %s is in a sandbox", s, destination), "a path in a sandbox is NAME:PATH")
		}
		if l.sandbox == "" && !l.stream {
			if _, err := os.Stat(l.path); err != nil {
				return noSource(l.path, err)
			}
		}
		if l.stream && len(sources) > 1 {
			return usagef("standard input can't be one of several sources")
		}
		from = append(from, l)
	}
	if from[0].stream {
		if err := to.namesFile(); err != nil {
			return err
		}
	}
	if to.stream && len(from) > 1 {
		return usagef("several sources can't be copied to standard output")
	}
	boxes := map[string]*sandbox.Sandbox{}
	for _, l := range append([]location{to}, from...) {
		if l.sandbox == "" || boxes[l.sandbox] != nil {
			continue
		}
		name, err := c.account.checkedName(l.sandbox)
		if err != nil {
			return err
		}
		if boxes[l.sandbox], err = c.account.get(ctx, name, false); err != nil {
			return err
		}
	}
	copies := []copyView{}
	for _, f := range from {
		one := &copying{place: c.place, o: o, from: f, to: to, several: len(from) > 1, source: boxes[f.sandbox], target: boxes[to.sandbox]}
		if err := one.run(ctx); err != nil {
			return err
		}
		copies = append(copies, copyView{f.String(), to.String()})
		if !to.stream && !c.screen.opts.structured() {
			fmt.Fprintf(c.screen.err, "%s Copied %s to %s successfully!\n", c.screen.err.Paint(console.Green, "✔"), lines(f.String()), lines(to.String()))
		}
	}
	if to.stream {
		return nil // which has the file
	}
	return c.screen.result(copies)
}

// noSource is the error of a local source that can't be read.
func noSource(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitNotFound, err: fmt.Errorf("source file (%s) not found", name)}
	}
	return err
}

// upload copies local paths into a sandbox.
func (p *place) upload(ctx context.Context, sb *sandbox.Sandbox, sources []string, destination string, o *copyOptions) error {
	for _, s := range sources {
		c := &copying{
			place: *p, o: o, from: location{path: s}, to: location{sandbox: sb.Name(), path: destination}, several: len(sources) > 1, target: sb,
		}
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fetchAll copies paths of a sandbox here, each SOURCE[:DEST].
func (c *runCommand) fetchAll(ctx context.Context, sb *sandbox.Sandbox, downloads []string) error {
	for _, d := range downloads {
		from, to := splitUpload(d)
		one := &copying{place: c.place, o: &copyOptions{mkdir: true}, from: location{sandbox: sb.Name(), path: from}, to: location{path: to}, source: sb}
		if err := one.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// copying is the copying of one source.
type copying struct {
	place
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
	bar := c.screen.bar(path.Base(to), c.o, -1)
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
	bar := c.screen.bar(c.from.base(), c.o, info.Size())
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
	bar := c.screen.barOfDir(ctx, dir, &copyOptions{progress: c.o.progress, noProgress: c.o.noProgress})
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
	text := strings.Join(mapped(names[:min(len(names), shown)], redact.Printable), ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
