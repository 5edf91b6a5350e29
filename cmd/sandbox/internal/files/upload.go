package files

import (
	"context"
	"crypto/rand"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

func (c *Copy) upload(ctx context.Context) error {
	info, err := os.Stat(c.From.Path)
	if err != nil {
		return NoSource(c.From.Path, err)
	}
	if info.IsDir() {
		return c.uploadDir(ctx)
	}
	to := c.To
	if to.intoDir() || c.Several {
		to = to.within(c.From.base())
	}
	if mode := info.Mode(); mode&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0 {
		f, err := os.Open(c.From.Path) // such as <(command) in a shell
		if err != nil {
			return err
		}
		defer f.Close()
		return c.fromStream(ctx, f, to.Path)
	}
	if !info.Mode().IsRegular() {
		return line.Usagef("%s is neither a file nor a directory", c.From.Path)
	}
	// Report an unreadable local file before any request.
	f, err := os.Open(c.From.Path)
	if err != nil {
		return err
	}
	f.Close()
	err = c.uploadFile(ctx, to.Path, info)
	if isDirError(err) && !to.intoDir() && !c.Several {
		return c.uploadFile(ctx, c.To.within(c.From.base()).Path, info)
	}
	return err
}

// A file of at least renameSize is written under a temporary name and then renamed. A
// smaller file needs only one short request, which is hardly ever interrupted.
const renameSize = 1 << 20

func (c *Copy) uploadFile(ctx context.Context, to string, info fs.FileInfo) error {
	if have, err := c.mustKeep(ctx, to); have || err != nil {
		return err
	}
	bar := newBar(c.Screen, c.From.base(), c.O, info.Size())
	defer bar.done()
	if info.Size() < renameSize {
		return c.writeFile(ctx, to, info, bar)
	}
	files := c.Target.FS()
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
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = files.Remove(late, part) // it may not be there
	}
	return err
}

func (c *Copy) writeFile(ctx context.Context, to string, info fs.FileInfo, bar bar) error {
	f, err := os.Open(c.From.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	mode := info.Mode().Perm()
	return c.Target.WriteFiles(ctx, []sandbox.File{{
		Path: to, Mode: &mode, ModTime: info.ModTime(), Reader: io.NewSectionReader(f, 0, info.Size()), // not more, even if the file has grown
	}}, &sandbox.WriteFilesOptions{Progress: bar.update})
}

// cleanupTimeout limits the time for removing a partial file.
const cleanupTimeout = 30 * time.Second

// mustKeep reports whether --no-clobber is set and the path exists in the sandbox.
func (c *Copy) mustKeep(ctx context.Context, to string) (bool, error) {
	if !c.O.NoClobber {
		return false, nil
	}
	return c.Target.FS().Exists(ctx, to)
}

// uploadDir copies a directory to the destination, or into the destination if that is a
// directory.
func (c *Copy) uploadDir(ctx context.Context) error {
	to := c.To
	if !c.From.meansContent() {
		if abs, err := filepath.Abs(c.From.Path); err == nil && (c.Several || to.intoDir() || c.remoteDir(ctx, to.Path)) {
			to = to.within(filepath.Base(abs))
		}
	}
	bar := newDirBar(ctx, c.Screen, c.From.Path, c.O)
	defer bar.done()
	var left leftOut
	o := &sandbox.UploadOptions{
		Exclude: c.O.Exclude, Include: c.O.Include, OutsideLinks: c.O.OutsideLinks, LeftOut: left.add, Progress: bar.update,
	}
	err := c.excludeExisting(ctx, to.Path, o)
	if err != nil {
		return err
	}
	if c.O.Follow {
		err = c.Target.FS().CopyFS(ctx, to.Path, following{os.DirFS(c.From.Path)}, o)
	} else {
		err = c.Target.FS().UploadDir(ctx, c.From.Path, to.Path, o)
	}
	bar.done()
	left.warn(c.Screen)
	return err
}

// With --no-clobber, excludeExisting excludes the files that already exist in the sandbox.
func (c *Copy) excludeExisting(ctx context.Context, to string, o *sandbox.UploadOptions) error {
	have, err := c.mustKeep(ctx, to)
	if err != nil || !have {
		return err
	}
	there, err := filesIn(c.Target.FS().IOFS(ctx, to))
	o.Exclude = slices.Concat(o.Exclude, there)
	return err
}

// filesIn returns patterns for all files in a directory.
func filesIn(dir fs.FS) (patterns []string, err error) {
	err = fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			patterns = append(patterns, literalPattern(name))
		}
		return err
	})
	return patterns, err
}

// literalPattern returns a pattern that matches only the path. A slash at its start keeps a
// single name from matching in every directory.
func literalPattern(name string) string {
	return "/" + strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}

// remoteDir reports whether a directory exists in the sandbox.
func (c *Copy) remoteDir(ctx context.Context, name string) bool {
	info, err := c.Target.FS().Stat(ctx, name)
	return err == nil && info.IsDir()
}

// following is a file system that follows symbolic links.
type following struct{ fs.FS }

func (f following) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.FS, name)
	for i, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		info, err := fs.Stat(f.FS, strings.TrimPrefix(name+"/"+e.Name(), "./"))
		if err != nil {
			continue // keep the link: the copy reports that it can't follow it
		}
		entries[i] = renamed{fs.FileInfoToDirEntry(info), e.Name()}
	}
	return entries, err
}

// renamed is an entry with the name of the link to it.
type renamed struct {
	fs.DirEntry
	name string
}

func (r renamed) Name() string { return r.name }
