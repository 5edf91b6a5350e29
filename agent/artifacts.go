package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/go-vercel/sandbox/internal/filefilter"
)

type saveInput struct {
	Path location `json:"path" is:"the file in the sandbox"`
	Name string   `json:"name,omitempty" is:"the name in the user's folder; the file's own by default"`
}

// checkArtifactName checks the name of an artifact. The folder's os.Root refuses names that lead outside.
func checkArtifactName(name string) (string, error) {
	name = filepath.FromSlash(name)
	if !filepath.IsLocal(name) || name == "." {
		return "", modelErrorf("The name of an artifact is a path inside of the folder.")
	}
	if filefilter.Git(name) {
		return "", modelErrorf("Git's own files can't be artifacts.")
	}
	return name, nil
}

func (in *saveInput) setDefaults() {
	in.Name = cmp.Or(in.Name, path.Base(in.Path.given))
}

func saveArtifact(ctx context.Context, c *call, in *saveInput) (Result, error) {
	name, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	as, err := checkArtifactName(in.Name)
	if err != nil {
		return Result{}, err
	}
	info, err := c.statReadable(ctx, name)
	if err != nil {
		return Result{}, err
	}
	if info != nil && info.IsDir() {
		return Result{}, modelErrorf("%s is a directory: make an archive of it first.", oneLine(in.Path.given))
	}
	data, err := c.readForEdit(ctx, name)
	if err != nil {
		return Result{}, err
	}
	root := c.t.opts.Artifacts
	if !filefilter.NewGuard(root, nil).Keeps(filepath.ToSlash(as), false) {
		return Result{}, modelErrorf("Git or an editor might run %s, or a file next to it, without being asked: it can't be an artifact.", oneLine(in.Name))
	}
	if err := root.MkdirAll(filepath.Dir(as), 0o755); err != nil {
		return Result{}, localError(err)
	}
	// Write the file under a random name, and rename it when it is complete.
	part := filepath.Join(filepath.Dir(as), "."+rand.Text()+".part")
	if err := root.WriteFile(part, data, fileMode); err != nil {
		return Result{}, localError(errors.Join(err, root.Remove(part)))
	}
	if err := root.Rename(part, as); err != nil {
		return Result{}, localError(errors.Join(err, root.Remove(part)))
	}
	c.t.budget.countResult(len(data), 0)
	return Result{Text: fmt.Sprintf("Saved %d bytes as %s.", len(data), oneLine(in.Name)), Data: map[string]any{"artifact": as}}, nil
}

type loadInput struct {
	Name string   `json:"name" is:"the file in the user's folder"`
	Path location `json:"path,omitzero" is:"where to put it in the sandbox; its name, in the working directory, by default"`
}

func (in *loadInput) setDefaults() { in.Path.setDefault(path.Base(filepath.ToSlash(in.Name))) }

func loadArtifact(ctx context.Context, c *call, in *loadInput) (Result, error) {
	from, err := checkArtifactName(in.Name)
	if err != nil {
		return Result{}, err
	}
	to, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	// Check this first: opening a pipe would block.
	if info, err := c.t.opts.Artifacts.Stat(from); err != nil || !info.Mode().IsRegular() {
		return Result{}, modelErrorf("There is no file %q in the folder.", oneLine(in.Name))
	}
	f, err := c.t.opts.Artifacts.Open(from)
	if err != nil {
		return Result{}, localError(err)
	}
	defer f.Close()
	most := c.limits().FileBytes
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return Result{}, localError(err)
	}
	if int64(len(data)) > most {
		return Result{}, modelErrorf("The file has more than %d bytes.", most)
	}
	c.state.editing.Lock()
	defer c.state.editing.Unlock()
	if err := c.sb.FS().WriteFile(ctx, to, data, fileMode); err != nil {
		return Result{}, err
	}
	c.t.budget.countResult(len(data), 0)
	return Result{Text: fmt.Sprintf("Wrote %d bytes to %s.", len(data), oneLine(in.Path.given))}, nil
}

// localError converts an error of the folder of artifacts on this machine. The model can fix a
// missing directory. Only the program can fix anything else.
func localError(err error) error {
	if errors.Is(err, os.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return modelErrorf("The folder of artifacts has no such directory, or a file is in its place.")
	}
	return &diskError{err}
}

// diskError is an error of this machine's disk. It does not wrap its cause, which textForModel
// would mistake for an error of a file in the sandbox.
type diskError struct{ err error }
