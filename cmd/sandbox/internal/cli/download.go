package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/localfile"
)

func (c *copying) download(ctx context.Context) error {
	to := c.to
	into := to.intoDir() || c.several || isLocalDir(to.path)
	if into && !c.from.content() {
		to = to.within(c.from.base())
	}
	// What ends in a slash has to be there, but for a directory, which is made.
	if c.o.mkdir || into && (isLocalDir(filepath.Dir(to.path)) || c.remoteIsDir(ctx)) {
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
	place, err := localfile.Resolve(to.path)
	if err != nil {
		return err
	}
	if place.Special {
		return c.downloadInto(ctx, to.path, place)
	}
	err = c.downloadFile(ctx, to.path, place)
	if isDirError(err) && !isLocalDir(to.path) || isDirError(err) && c.remoteIsDir(ctx) {
		return c.downloadDir(ctx, to.path)
	}
	return err
}

func (c *copying) remoteIsDir(ctx context.Context) bool {
	info, err := c.source.FS().Stat(ctx, c.from.path)
	return err == nil && info.IsDir()
}

// downloadInto writes a file to something that a file can't replace, such as a pipe.
func (c *copying) downloadInto(ctx context.Context, name string, place localfile.Place) error {
	r, err := openRemote(ctx, c.source.FS(), c.from.path)
	if isDirError(err) {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return c.missing(err)
	}
	defer r.Close()
	w, err := place.Open()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// downloadFile downloads a file with the permissions and the time that it has in
// the sandbox. A new one is not to be seen before it has them.
func (c *copying) downloadFile(ctx context.Context, name string, at localfile.Place) error {
	to, place := at.Path, at.Path
	if at.Info == nil {
		dir, err := os.MkdirTemp(filepath.Dir(to), ".sandbox-cp-*")
		if err != nil {
			return c.missing(&fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(err)})
		}
		defer os.RemoveAll(dir)
		place = filepath.Join(dir, "file")
	}
	describe := sync.OnceValues(func() (fs.FileInfo, error) { return c.source.FS().Stat(ctx, c.from.path) })
	bar := newBar(c.screen, c.from.base(), c.o, -1)
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
	return os.Chtimes(name, time.Time{}, localfile.Settable(remote.ModTime()))
}

func (c *copying) downloadDir(ctx context.Context, to string) error {
	bar := newBar(c.screen, "", c.o, -1)
	defer bar.done()
	exclude := c.o.exclude
	if c.o.noClobber && isLocalDir(to) {
		here, err := filesIn(os.DirFS(to))
		if err != nil {
			return err
		}
		exclude = slices.Concat(exclude, here)
	}
	// A new directory is not to be seen before it is whole.
	place := to
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
		dir, err := os.MkdirTemp(filepath.Dir(filepath.Clean(to)), ".sandbox-cp-*")
		if err != nil {
			return c.missing(&fs.PathError{Op: "mkdir", Path: to, Err: errors.Unwrap(err)})
		}
		defer os.RemoveAll(dir)
		place = filepath.Join(dir, "dir")
	}
	var left leftOut
	err := c.source.FS().DownloadDir(ctx, c.from.path, place, &sandbox.DownloadDirOptions{
		Exclude: exclude, Include: c.o.include, Progress: bar.update, OutsideLinks: c.o.outsideLinks, DotGit: c.o.dotGit, LeftOut: left.add,
	})
	bar.done()
	left.tell(c.screen)
	_, complete := errors.AsType[*sandbox.ChangedError](err)
	if err != nil && !complete {
		return c.missing(err)
	}
	if place != to {
		return cmp.Or(os.Rename(place, filepath.Clean(to)), err)
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
			"look with: %s", try("exec %s ls %s", c.from.sandbox, shellWord(parentOf(c.from.path))))}
	}
	return err
}

func parentOf(p string) string {
	i := strings.LastIndex(strings.TrimRight(p, "/"), "/")
	switch {
	case i < 0:
		return "."
	case i == 0:
		return "/"
	}
	return p[:i]
}
