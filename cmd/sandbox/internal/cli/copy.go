package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
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
	app *app

	o       copyOptions
	ignored bool
}

func (c *copyCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "copy <src> <dst>", Aliases: []string{"cp"}, Short: "Copy files and directories to, from and between sandboxes",
		Long: "Copy files and directories to, from and between sandboxes. A path in a sandbox is NAME:PATH; - is standard input or output, to which a directory goes as a tar archive. " +
			"As with cp, something is copied into a directory that exists, or that ends in a slash; DIR/. is what is in a directory. " +
			"Several sources may be given. Modes, times and symbolic links are kept.",
		Example: "– A file, a directory, what is in a directory\n\n  $ sandbox cp app.js web:src/\n  $ sandbox cp ./app web:app\n" +
			"  $ sandbox cp ./app/. web:.\n\n– Out of a sandbox, and through a pipe\n\n  $ sandbox cp web:build ./out\n" +
			"  $ sandbox cp web:log.txt - | grep error",
		Args: func(cmd *cobra.Command, args []string) error {
			names := []string{"src", "dst"}
			if len(args) < 2 {
				return &usageError{message: "no value provided for " + names[len(args)], hint: moreAbout(cmd)}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	toggle(flags, &c.ignored, "recursive", "r", "Has no effect: directories are always copied")
	flags.BoolVarP(&c.ignored, "archive", "a", false, "Has no effect: modes, times and links are always kept")
	toggle(flags, &c.o.follow, "follow-symlinks", "L", "Copy what symbolic links lead to (uploads)")
	options(flags, &c.o.exclude, "exclude", "", "pattern", "Leave out what matches, such as node_modules or **/*.log (repeatable)", parseText)
	options(flags, &c.o.include, "include", "", "pattern", "Copy only what matches (repeatable)", parseText)
	toggle(flags, &c.o.outsideLinks, "outside-links", "", "Keep symbolic links that lead out of a downloaded directory")
	toggle(flags, &c.o.dotGit, "dot-git", "", "Download .git into a working tree of Git as well")
	toggle(flags, &c.o.mkdir, "mkdir", "", "Make the local directories that lead to the destination")
	toggle(flags, &c.o.noClobber, "no-clobber", "n", "Leave files that exist as they are")
	toggle(flags, &c.o.progress, "progress", "", "Show the progress even if standard error is not a terminal")
	toggle(flags, &c.o.noProgress, "no-progress", "", "Never show the progress")
	cmd.RunE = c.run
	return cmd
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
	if to.stream && len(from) > 1 {
		return usagef("several sources can't be copied to standard output")
	}
	boxes := map[string]*sandbox.Sandbox{}
	for _, l := range append([]location{to}, from...) {
		if l.sandbox == "" || boxes[l.sandbox] != nil {
			continue
		}
		name, err := c.app.resolveName(l.sandbox)
		if err != nil {
			return err
		}
		if boxes[l.sandbox], err = c.app.get(ctx, name, false); err != nil {
			return err
		}
	}
	for _, f := range from {
		one := &copying{app: c.app, o: o, from: f, to: to, several: len(from) > 1, source: boxes[f.sandbox], target: boxes[to.sandbox]}
		if err := one.run(ctx); err != nil {
			return err
		}
		if !to.stream && !c.app.opts.quiet {
			fmt.Fprintf(c.app.err, "%s Copied %s to %s successfully!\n", c.app.err.Paint(console.Green, "✔"), f.path, to.path)
		}
	}
	return nil
}

// noSource is the error of a local source that can't be read.
func noSource(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitNotFound, err: fmt.Errorf("source file (%s) not found", name)}
	}
	return err
}

// upload copies local paths into a sandbox.
func (a *app) upload(ctx context.Context, sb *sandbox.Sandbox, sources []string, destination string, o *copyOptions) error {
	for _, s := range sources {
		c := &copying{
			app: a, o: o, from: location{path: s}, to: location{sandbox: sb.Name(), path: destination}, several: len(sources) > 1, target: sb,
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
		one := &copying{app: c.app, o: &copyOptions{mkdir: true}, from: location{sandbox: sb.Name(), path: from}, to: location{path: to}, source: sb}
		if err := one.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// copying is the copying of one source.
type copying struct {
	app            *app
	o              *copyOptions
	from, to       location
	several        bool
	source, target *sandbox.Sandbox // nil for a path here
}

func (c *copying) run(ctx context.Context) error {
	switch {
	case c.source == nil && c.from.stream:
		return c.fromStream(ctx, c.app.in, c.to.path)
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
	if strings.HasSuffix(to, "/") || to == "." {
		return usagef("standard input needs the name of a file, not of a directory")
	}
	if have, err := c.keeps(ctx, to); have || err != nil {
		return err
	}
	bar := c.app.bar(c.o, -1)
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
	_, err = io.Copy(c.app.out, r)
	return err
}

// archiveToStdout writes something in a directory as a tar archive.
func (c *copying) archiveToStdout(ctx context.Context, dir, name string) error {
	if c.app.out.Terminal {
		return withHint(usagef("a directory goes to standard output as an archive, which is not for a terminal"), "sandbox cp %s - | tar -t", shellWord(c.from.String()))
	}
	stdout, finish := decodeBase64(c.app.out)
	var stderr capped
	result, err := c.source.RunCommand(ctx, "bash", []string{
		"-c", `set -o pipefail; cd -- "$1" && tar --format=posix -cf - -- "$2" | base64 -w 8192`, "bash", dir, name,
	}, &sandbox.CommandOptions{Stdout: stdout, Stderr: &stderr})
	if finishErr := finish(); err == nil {
		err = finishErr
	}
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("packing %s in the sandbox failed: %s", c.from.path, stderr.String())
	}
	return err
}

// missing gives the error of a file that is not in the sandbox a hint.
func (c *copying) missing(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok && pe.Path != c.from.path {
		if errors.Is(err, fs.ErrNotExist) {
			return withHint(err, "--mkdir makes the directories that lead to it")
		}
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitNotFound, err: withHint(fmt.Errorf("file not found: %s in sandbox %s", c.from.path, c.from.sandbox),
			"look with: sandbox exec %s ls %s", c.from.sandbox, shellWord(parentOf(c.from.path)))}
	}
	return err
}

func parentOf(p string) string {
	i := strings.LastIndex(strings.TrimRight(p, "/"), "/")
	if i <= 0 {
		return "/"
	}
	return p[:i]
}

func (c *copying) upload(ctx context.Context) error {
	info, err := os.Stat(c.from.path)
	if err != nil {
		return noSource(c.from.path, err)
	}
	if info.IsDir() {
		return c.uploadDir(ctx)
	}
	to := c.to
	if to.intoDir() || c.several {
		to = to.within(c.from.base())
	}
	if mode := info.Mode(); mode&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0 {
		f, err := os.Open(c.from.path) // as "<(command)" of a shell is
		if err != nil {
			return err
		}
		defer f.Close()
		return c.fromStream(ctx, f, to.path)
	}
	if !info.Mode().IsRegular() {
		return usagef("%s is neither a file nor a directory", c.from.path)
	}
	// What can't be read is this side's fault, and is said before the sandbox is
	// asked for anything.
	f, err := os.Open(c.from.path)
	if err != nil {
		return err
	}
	f.Close()
	err = c.uploadFile(ctx, to.path, info)
	if isDirError(err) && !to.intoDir() && !c.several {
		return c.uploadFile(ctx, c.to.within(c.from.base()).path, info)
	}
	return err
}

// wholeSize is the size from which a file is written next to its place, and then
// moved there: smaller ones go in one request, which takes too short a time to be
// interrupted.
const wholeSize = 1 << 20

func (c *copying) uploadFile(ctx context.Context, to string, info fs.FileInfo) error {
	if have, err := c.keeps(ctx, to); have || err != nil {
		return err
	}
	bar := c.app.bar(c.o, info.Size())
	defer bar.done()
	if info.Size() < wholeSize {
		return c.writeFile(ctx, to, info, bar)
	}
	files := c.target.FS()
	if there, err := files.Stat(ctx, to); err == nil && there.IsDir() {
		return &fs.PathError{Op: "open", Path: to, Err: syscall.EISDIR}
	} else if err == nil {
		if to, err = files.RealPath(ctx, to); err != nil {
			return err
		}
	}
	part := path.Join(path.Dir(to), ".upload-"+strings.ToLower(rand.Text()))
	err := c.writeFile(ctx, part, info, bar)
	if err == nil {
		err = files.Rename(ctx, part, to)
	}
	if err != nil {
		late, cancel := withDeadline(ctx, cleanupTime)
		defer cancel()
		_ = files.Remove(late, part) // it may not be there
	}
	return err
}

func (c *copying) writeFile(ctx context.Context, to string, info fs.FileInfo, bar bar) error {
	mode := info.Mode().Perm()
	return c.target.WriteFiles(ctx, []sandbox.File{{
		Path: to, Mode: &mode, ModTime: info.ModTime(), Reader: &lateFile{open: func() (io.ReadCloser, error) { return os.Open(c.from.path) }, size: info.Size()},
	}}, &sandbox.UploadOptions{Progress: bar.update})
}

// keeps reports whether a path of the sandbox is there already and stays as it is.
func (c *copying) keeps(ctx context.Context, to string) (bool, error) {
	if !c.o.noClobber {
		return false, nil
	}
	return c.target.FS().Exists(ctx, to)
}

// uploadDir copies a directory: into one that exists, or as the destination.
func (c *copying) uploadDir(ctx context.Context) error {
	to := c.to
	if !c.from.content() {
		if abs, err := filepath.Abs(c.from.path); err == nil && (c.several || to.intoDir() || c.remoteDir(ctx, to.path)) {
			to = to.within(filepath.Base(abs))
		}
	}
	bar := c.app.bar(c.o, -1)
	defer bar.done()
	o := &sandbox.UploadOptions{Exclude: c.o.exclude, Include: c.o.include, Progress: bar.update}
	if err := c.excludeThere(ctx, to.path, o); err != nil {
		return err
	}
	if c.o.follow {
		return c.target.FS().CopyFS(ctx, to.path, following{os.DirFS(c.from.path)}, o)
	}
	return c.target.UploadDir(ctx, c.from.path, to.path, o)
}

// excludeThere leaves out what the sandbox has already, with --no-clobber.
func (c *copying) excludeThere(ctx context.Context, to string, o *sandbox.UploadOptions) error {
	have, err := c.keeps(ctx, to)
	if err != nil || !have {
		return err
	}
	there, err := filesIn(c.target.FS().IOFS(ctx, to))
	o.Exclude = slices.Concat(o.Exclude, there)
	return err
}

// filesIn returns patterns of all files in a directory.
func filesIn(dir fs.FS) (patterns []string, err error) {
	err = fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			patterns = append(patterns, literal(name))
		}
		return err
	})
	return patterns, err
}

// literal makes a pattern that matches nothing but the path. A slash in front
// keeps a single name from matching in every directory.
func literal(name string) string {
	return "/" + strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}

// remoteDir reports whether a directory is in the sandbox already.
func (c *copying) remoteDir(ctx context.Context, name string) bool {
	info, err := c.target.FS().Stat(ctx, name)
	return err == nil && info.IsDir()
}

func (c *copying) download(ctx context.Context) error {
	to := c.to
	into := to.intoDir() || c.several || isLocalDir(to.path)
	if into && !c.from.content() {
		to = to.within(c.from.base())
	}
	if c.o.mkdir || into {
		if err := os.MkdirAll(filepath.Dir(to.path), 0o777); err != nil {
			return err
		}
	}
	if c.from.content() {
		return c.downloadDir(ctx, to.path)
	}
	if c.o.noClobber {
		if _, err := os.Lstat(to.path); err == nil && !isLocalDir(to.path) {
			return nil
		}
	}
	err := c.downloadFile(ctx, to.path)
	if isDirError(err) && !isLocalDir(to.path) || isDirError(err) && c.remoteIsDir(ctx) {
		return c.downloadDir(ctx, to.path)
	}
	return err
}

func (c *copying) remoteIsDir(ctx context.Context) bool {
	info, err := c.source.FS().Stat(ctx, c.from.path)
	return err == nil && info.IsDir()
}

// downloadFile downloads a file with the permissions and the time that it has in
// the sandbox. A new one is not to be seen before it has them.
func (c *copying) downloadFile(ctx context.Context, to string) error {
	place := to
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
		dir, err := os.MkdirTemp(filepath.Dir(to), ".sandbox-cp-*")
		if err != nil {
			return c.missing(&fs.PathError{Op: "open", Path: to, Err: errors.Unwrap(err)})
		}
		defer os.RemoveAll(dir)
		place = filepath.Join(dir, "file")
	}
	describe := sync.OnceValues(func() (fs.FileInfo, error) { return c.source.FS().Stat(ctx, c.from.path) })
	bar := c.app.bar(c.o, -1)
	defer bar.done()
	if err := c.source.FS().DownloadFile(ctx, c.from.path, place, &sandbox.DownloadFileOptions{Progress: withTotal(bar.update, describe)}); err != nil {
		return c.missing(err)
	}
	remote, err := describe()
	if err != nil {
		return err
	}
	if err := c.keepMode(place, remote); err != nil || place == to {
		return err
	}
	return os.Rename(place, to)
}

// withTotal asks how long a file is for the one who looks at its progress.
func withTotal(update func(sandbox.Progress), describe func() (fs.FileInfo, error)) func(sandbox.Progress) {
	if update == nil {
		return nil
	}
	total := make(chan int64, 1)
	var once sync.Once
	known := int64(-1)
	return func(p sandbox.Progress) {
		once.Do(func() {
			go func() {
				if info, err := describe(); err == nil {
					total <- info.Size()
				}
			}()
		})
		select {
		case known = <-total:
		default:
		}
		if p.Total < 0 {
			p.Total = known
		}
		update(p)
	}
}

// keepMode gives a downloaded file the permissions and the time that it has in the
// sandbox, as far as the umask lets it.
func (c *copying) keepMode(name string, remote fs.FileInfo) error {
	local, err := os.Stat(name)
	if err != nil {
		return err
	}
	// What the umask leaves shows in a new file, which is not executable yet.
	allowed := local.Mode().Perm() | local.Mode().Perm()&0o444>>2
	if err := os.Chmod(name, remote.Mode().Perm()&allowed); err != nil {
		return err
	}
	return os.Chtimes(name, time.Time{}, remote.ModTime())
}

func (c *copying) downloadDir(ctx context.Context, to string) error {
	bar := c.app.bar(c.o, -1)
	defer bar.done()
	exclude := c.o.exclude
	if c.o.noClobber && isLocalDir(to) {
		here, err := filesIn(os.DirFS(to))
		if err != nil {
			return err
		}
		exclude = slices.Concat(exclude, here)
	}
	err := c.source.DownloadDir(ctx, c.from.path, to, &sandbox.DownloadDirOptions{
		Exclude: exclude, Include: c.o.include, Progress: bar.update, OutsideLinks: c.o.outsideLinks, DotGit: c.o.dotGit,
	})
	if errors.Is(err, sandbox.ErrUnsafeArchive) {
		return withHint(err, "--outside-links keeps such links, --exclude leaves them out")
	}
	if err != nil {
		return c.missing(err)
	}
	return nil
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
	bar := c.app.bar(c.o, info.Size())
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
	err = c.source.DownloadDir(ctx, c.from.path, dir, &sandbox.DownloadDirOptions{Exclude: c.o.exclude, Include: c.o.include, OutsideLinks: true, DotGit: true})
	if err != nil {
		return c.missing(err)
	}
	to := c.to
	if !c.from.content() && (to.intoDir() || c.several || c.remoteDir(ctx, to.path)) {
		to = to.within(c.from.base())
	}
	bar := c.app.bar(c.o, -1)
	defer bar.done()
	o := &sandbox.UploadOptions{Progress: bar.update}
	if err := c.excludeThere(ctx, to.path, o); err != nil {
		return err
	}
	return c.target.UploadDir(ctx, dir, to.path, o)
}

// following is a file system in which symbolic links are what they lead to.
type following struct{ fs.FS }

func (f following) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.FS, name)
	for i, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		info, err := fs.Stat(f.FS, strings.TrimPrefix(name+"/"+e.Name(), "./"))
		if err != nil {
			return nil, err
		}
		entries[i] = renamed{fs.FileInfoToDirEntry(info), e.Name()}
	}
	return entries, err
}

// renamed is an entry under the name of the link to it.
type renamed struct {
	fs.DirEntry
	name string
}

func (r renamed) Name() string { return r.name }
