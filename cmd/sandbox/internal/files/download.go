package files

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
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/internal/localfile"
)

func (c *Copy) download(ctx context.Context) error {
	to := c.To
	into := to.intoDir() || c.Several || isLocalDir(to.Path)
	if into && !c.From.meansContent() {
		to = to.within(c.From.base())
	}
	// If the destination ends with a slash, it must already exist for a file. For a
	// directory, it is created.
	if c.O.Mkdir || into && (isLocalDir(filepath.Dir(to.Path)) || c.remoteIsDir(ctx)) {
		if err := os.MkdirAll(filepath.Dir(to.Path), 0o777); err != nil {
			return err
		}
	}
	if c.From.meansContent() {
		return c.downloadDir(ctx, to.Path)
	}
	if c.O.NoClobber {
		if _, err := os.Lstat(to.Path); err == nil && !isLocalDir(to.Path) {
			return nil
		}
	}
	place, err := localfile.Resolve(to.Path)
	if err != nil {
		return err
	}
	if place.Special {
		return c.downloadInto(ctx, to.Path, place)
	}
	err = c.downloadFile(ctx, to.Path, place)
	if isDirError(err) && !isLocalDir(to.Path) || isDirError(err) && c.remoteIsDir(ctx) {
		return c.downloadDir(ctx, to.Path)
	}
	return err
}

func (c *Copy) remoteIsDir(ctx context.Context) bool {
	info, err := c.Source.FS().Stat(ctx, c.From.Path)
	return err == nil && info.IsDir()
}

// downloadInto writes a file to a destination that can't be replaced, such as a pipe.
func (c *Copy) downloadInto(ctx context.Context, name string, place localfile.Place) error {
	r, err := OpenRemote(ctx, c.Source.FS(), c.From.Path)
	if isDirError(err) {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return c.Missing(err)
	}
	defer r.Close()
	w, err := place.Open()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// downloadFile downloads a file with its permissions and its time. A new file appears only
// when it has both.
func (c *Copy) downloadFile(ctx context.Context, name string, at localfile.Place) error {
	to, place := at.Path, at.Path
	if at.Info == nil {
		dir, err := os.MkdirTemp(filepath.Dir(to), ".sandbox-cp-*")
		if err != nil {
			return c.Missing(&fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(err)})
		}
		defer os.RemoveAll(dir)
		place = filepath.Join(dir, "file")
	}
	describe := sync.OnceValues(func() (fs.FileInfo, error) { return c.Source.FS().Stat(ctx, c.From.Path) })
	bar := newBar(c.Screen, c.From.base(), c.O, -1)
	defer bar.done()
	if err := c.Source.FS().DownloadFile(ctx, c.From.Path, place, &sandbox.DownloadFileOptions{Progress: withTotal(bar.update, describe)}); err != nil {
		return c.Missing(err)
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

// withTotal looks up the size of a file when its progress is first shown.
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

// keepMode sets the permissions and the time of a downloaded file as in the sandbox, as
// far as the umask allows.
func (c *Copy) keepMode(name string, remote fs.FileInfo) error {
	local, err := os.Stat(name)
	if err != nil {
		return err
	}
	// The mode of the new file, which is not executable yet, shows what the umask allows.
	allowed := local.Mode().Perm() | local.Mode().Perm()&0o444>>2
	if err := os.Chmod(name, remote.Mode().Perm()&allowed); err != nil {
		return err
	}
	return os.Chtimes(name, time.Time{}, localfile.Settable(remote.ModTime()))
}

func (c *Copy) downloadDir(ctx context.Context, to string) error {
	bar := newBar(c.Screen, "", c.O, -1)
	defer bar.done()
	exclude := c.O.Exclude
	if c.O.NoClobber && isLocalDir(to) {
		here, err := filesIn(os.DirFS(to))
		if err != nil {
			return err
		}
		exclude = slices.Concat(exclude, here)
	}
	// A new directory must not be visible before it is complete.
	place := to
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
		dir, err := os.MkdirTemp(filepath.Dir(filepath.Clean(to)), ".sandbox-cp-*")
		if err != nil {
			return c.Missing(&fs.PathError{Op: "mkdir", Path: to, Err: errors.Unwrap(err)})
		}
		defer os.RemoveAll(dir)
		place = filepath.Join(dir, "dir")
	}
	var left leftOut
	err := c.Source.FS().DownloadDir(ctx, c.From.Path, place, &sandbox.DownloadDirOptions{
		Exclude: exclude, Include: c.O.Include, Progress: bar.update, OutsideLinks: c.O.OutsideLinks, DotGit: c.O.DotGit, LeftOut: left.add,
	})
	bar.done()
	left.warn(c.Screen)
	_, complete := errors.AsType[*sandbox.ChangedError](err)
	if err != nil && !complete {
		return c.Missing(err)
	}
	if place != to {
		return cmp.Or(os.Rename(place, filepath.Clean(to)), err)
	}
	return err
}

// Missing adds a hint to the error of a file that is not in the sandbox.
func (c *Copy) Missing(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok && pe.Path != c.From.Path {
		if errors.Is(err, fs.ErrNotExist) {
			return screen.WithHint(err, "--mkdir creates its parent directories")
		}
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &screen.ExitError{Code: screen.ExitNotFound, Err: screen.WithHint(fmt.Errorf("file not found: %s in sandbox %s", c.From.Path, c.From.Sandbox),
			"look with: %s", screen.Try("exec %s ls %s", c.From.Sandbox, line.ShellWord(parentOf(c.From.Path))))}
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
