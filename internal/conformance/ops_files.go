package conformance

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-vercel/sandbox"
)

// files returns the files of a sandbox, a session or a user.
func (c *call) files() (*sandbox.FileSystem, error) {
	t, err := on[interface{ FS() *sandbox.FileSystem }](c)
	if err != nil {
		return nil, err
	}
	return t.FS(), nil
}

func opMkdir(c *call) (any, error) {
	t, err := c.files()
	if err != nil {
		return nil, err
	}
	var a struct {
		Path string `json:"path"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	return once(c, func() (any, error) { return nil, t.Mkdir(c.ctx, a.Path, 0o755) })
}

func opReadFile(c *call) (any, error) {
	t, err := c.files()
	if err != nil {
		return nil, err
	}
	var a filePath
	if err := c.args(&a); err != nil {
		return nil, err
	}
	r, err := t.Open(c.ctx, a.Path, &sandbox.OpenOptions{Cwd: a.Cwd, NoSizeCheck: true})
	if err != nil {
		return c.orMissing(err, a)
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	if err != nil {
		return c.orMissing(err, a)
	}
	return data, nil
}

type filePath struct {
	Path string `json:"path"`
	Cwd  string `json:"cwd"`
}

// orMissing returns null for a missing file, as JavaScript does. The reason why
// a user could not read a file gets the text that it has in JavaScript.
func (c *call) orMissing(err error, src filePath) (any, error) {
	if errors.Is(err, fs.ErrNotExist) && !isLocal(err) {
		return nil, nil
	}
	u, ok := c.target.(*sandbox.User)
	if fe, refused := errors.AsType[*sandbox.FSError](err); ok && refused && fe.Err == nil {
		path := src.Path
		if !strings.HasPrefix(path, "/") {
			path = cmp.Or(src.Cwd, u.HomeDir()) + "/" + path
		}
		return nil, &textError{"Failed to read " + path + ": " + fe.Message, err}
	}
	return nil, err
}

func opDownloadFile(c *call) (any, error) {
	t, err := c.files()
	if err != nil {
		return nil, err
	}
	var a struct {
		Src            *filePath `json:"src"`
		Dst            *filePath `json:"dst"`
		MkdirRecursive bool      `json:"mkdirRecursive"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	var src, dst filePath
	if a.Src != nil {
		src = *a.Src
	}
	if a.Dst != nil {
		dst = *a.Dst
	}
	// In Go, a destination with a directory of its own is a joined path.
	local := dst.Path
	if dst.Cwd != "" && local != "" && !filepath.IsAbs(local) {
		local = filepath.Join(dst.Cwd, local)
	}
	if local != "" {
		if local, err = filepath.Abs(local); err != nil {
			return nil, err
		}
	}
	err = t.DownloadFile(c.ctx, src.Path, local, &sandbox.DownloadFileOptions{Cwd: src.Cwd, MkdirAll: a.MkdirRecursive})
	switch {
	case err == nil:
		return local, nil
	case errors.Is(err, sandbox.ErrInvalid) && src.Path == "":
		return nil, &textError{"downloadFile: source path is required", err}
	case errors.Is(err, sandbox.ErrInvalid) && local == "":
		return nil, &textError{"downloadFile: destination path is required", err}
	default:
		return c.orMissing(err, src)
	}
}

// isLocal reports whether a file error is about the local disk.
func isLocal(err error) bool {
	pe, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return false
	}
	_, remote := errors.AsType[*sandbox.FSError](pe)
	return !remote && errnoName(pe) != ""
}

func opWriteFiles(c *call) (any, error) {
	t, err := c.files()
	if err != nil {
		return nil, err
	}
	var a struct {
		Files []struct {
			Path    string   `json:"path"`
			Content ByteSpec `json:"content"`
			Mode    *uint32  `json:"mode"`
		} `json:"files"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	list := make([]sandbox.File, len(a.Files))
	for i, f := range a.Files {
		data, err := f.Content.Bytes()
		if err != nil {
			return nil, err
		}
		list[i] = sandbox.File{Path: f.Path, Content: data}
		if f.Mode != nil {
			list[i].Mode = new(goMode(*f.Mode))
		}
	}
	return nil, t.WriteFiles(c.ctx, list, nil)
}

// goMode converts Unix permission bits to a file mode.
func goMode(bits uint32) os.FileMode {
	mode := os.FileMode(bits & 0o777)
	if bits&0o4000 != 0 {
		mode |= os.ModeSetuid
	}
	if bits&0o2000 != 0 {
		mode |= os.ModeSetgid
	}
	if bits&0o1000 != 0 {
		mode |= os.ModeSticky
	}
	return mode
}
