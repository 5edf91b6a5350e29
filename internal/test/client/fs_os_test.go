//go:build unix

package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// osLike has the operations that package os and a FileSystem share.
type osLike interface {
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, data []byte, perm fs.FileMode) error
	Append(name string, data []byte) error
	Mkdir(name string, perm fs.FileMode) error
	MkdirAll(name string, perm fs.FileMode) error
	MkdirTemp(dir, pattern string) (string, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	WalkDir(root string, fn fs.WalkDirFunc) error
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Remove(name string) error
	RemoveAll(name string) error
	Rename(from, to string) error
	Chmod(name string, mode fs.FileMode) error
	Chown(name string, uid, gid int) error
	Symlink(from, to string) error
	Readlink(name string) (string, error)
	RealPath(name string) (string, error)
	Truncate(name string, size int64) error
	Read(name string) (string, error)
	Create(name, content string) error
}

type local struct{}

func (local) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }
func (local) WriteFile(name string, b []byte, perm fs.FileMode) error {
	return os.WriteFile(name, b, perm)
}
func (local) Mkdir(name string, perm fs.FileMode) error     { return os.Mkdir(name, perm) }
func (local) MkdirAll(name string, perm fs.FileMode) error  { return os.MkdirAll(name, perm) }
func (local) MkdirTemp(dir, pattern string) (string, error) { return os.MkdirTemp(dir, pattern) }
func (local) ReadDir(name string) ([]fs.DirEntry, error)    { return os.ReadDir(name) }
func (local) WalkDir(root string, fn fs.WalkDirFunc) error {
	return fs.WalkDir(os.DirFS(root), ".", fn)
}
func (local) Stat(name string) (fs.FileInfo, error)     { return os.Stat(name) }
func (local) Lstat(name string) (fs.FileInfo, error)    { return os.Lstat(name) }
func (local) Remove(name string) error                  { return os.Remove(name) }
func (local) RemoveAll(name string) error               { return os.RemoveAll(name) }
func (local) Rename(from, to string) error              { return os.Rename(from, to) }
func (local) Chmod(name string, mode fs.FileMode) error { return os.Chmod(name, mode) }
func (local) Chown(name string, uid, gid int) error     { return os.Chown(name, uid, gid) }
func (local) Symlink(from, to string) error             { return os.Symlink(from, to) }
func (local) Readlink(name string) (string, error)      { return os.Readlink(name) }
func (local) Truncate(name string, size int64) error    { return os.Truncate(name, size) }

func runLocal(t *testing.T, script string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	require.NoError(t, err, string(out))
}

func (local) RealPath(name string) (string, error) {
	real, err := filepath.EvalSymlinks(name)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return "", &fs.PathError{Op: "realpath", Path: name, Err: errno}
	}
	if err != nil { // for a loop, filepath has an error without an errno
		return "", &fs.PathError{Op: "realpath", Path: name, Err: syscall.ELOOP}
	}
	return real, nil
}

func (local) Append(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func (local) Read(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b strings.Builder
	_, err = f.WriteTo(&b)
	return b.String(), err
}

func (local) Create(name, content string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

type remote struct {
	ctx context.Context
	*sandbox.FileSystem
}

func (r remote) ReadFile(name string) ([]byte, error) { return r.FileSystem.ReadFile(r.ctx, name) }
func (r remote) WriteFile(name string, b []byte, perm fs.FileMode) error {
	return r.FileSystem.WriteFile(r.ctx, name, b, perm)
}
func (r remote) Append(name string, b []byte) error { return r.FileSystem.AppendFile(r.ctx, name, b) }
func (r remote) Mkdir(name string, perm fs.FileMode) error {
	return r.FileSystem.Mkdir(r.ctx, name, perm)
}
func (r remote) MkdirAll(name string, perm fs.FileMode) error {
	return r.FileSystem.MkdirAll(r.ctx, name, perm)
}
func (r remote) MkdirTemp(dir, pattern string) (string, error) {
	return r.FileSystem.MkdirTemp(r.ctx, dir, pattern)
}
func (r remote) ReadDir(name string) ([]fs.DirEntry, error) { return r.FileSystem.ReadDir(r.ctx, name) }
func (r remote) WalkDir(root string, fn fs.WalkDirFunc) error {
	return r.FileSystem.WalkDir(r.ctx, root, fn)
}
func (r remote) Stat(name string) (fs.FileInfo, error)  { return r.FileSystem.Stat(r.ctx, name) }
func (r remote) Lstat(name string) (fs.FileInfo, error) { return r.FileSystem.Lstat(r.ctx, name) }
func (r remote) Remove(name string) error               { return r.FileSystem.Remove(r.ctx, name) }
func (r remote) RemoveAll(name string) error            { return r.FileSystem.RemoveAll(r.ctx, name) }
func (r remote) Rename(from, to string) error           { return r.FileSystem.Rename(r.ctx, from, to) }
func (r remote) Chmod(name string, mode fs.FileMode) error {
	return r.FileSystem.Chmod(r.ctx, name, mode)
}
func (r remote) Chown(name string, uid, gid int) error {
	return r.FileSystem.Chown(r.ctx, name, uid, gid)
}
func (r remote) Symlink(from, to string) error        { return r.FileSystem.Symlink(r.ctx, from, to) }
func (r remote) Readlink(name string) (string, error) { return r.FileSystem.Readlink(r.ctx, name) }
func (r remote) RealPath(name string) (string, error) { return r.FileSystem.RealPath(r.ctx, name) }
func (r remote) Truncate(name string, size int64) error {
	return r.FileSystem.Truncate(r.ctx, name, size)
}

func (r remote) Read(name string) (string, error) {
	f, err := r.Open(r.ctx, name, nil)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	return string(data), err
}

func (r remote) Create(name, content string) error {
	w, err := r.FileSystem.Create(r.ctx, name, nil)
	if err != nil {
		return err
	}
	_, err = w.Write([]byte(content))
	return errors.Join(err, w.Close())
}

// defaultOps lists the operations that run without SANDBOX_SLOW=1: for each cause of a
// failure one that fails, and those whose result is not obvious. TestOperationsMakeOneRequest covers the
// others.
var defaultOps = []string{
	"ReadFile full", "Open missing", "Mkdir missing/x", "MkdirAll file/x", "ReadDir file", "Stat dirlink", "Stat dangling", "Lstat loop",
	"Remove full", "RemoveAll full", "Chmod link", "Chown missing", "Symlink file", "Readlink file", "RealPath loop", "Truncate longer missing",
	"Append dir", "Rename full file", "Rename file full", "Rename dir dirlink", "Rename missing file", "Create dir", "WriteFile dir",
	`Stat ""`, `Mkdir "a\x00b"`, "RemoveAll .", "Rename into itself", "Truncate -1", "Mkdir long", "MkdirTemp missing", "Mkdir 0700 missing",
}

// TestFileSystemIsLikeOS runs each operation with package os and in a sandbox,
// and expects the same results and the same kinds of errors.
func TestFileSystemIsLikeOS(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	localRoot, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	localRoot += "/table"
	remoteRoot := "/vercel/table"
	above, err := sb.FS().RealPath(t.Context(), "/vercel") // in folder mode, a folder of the machine
	require.NoError(t, err)
	rooted := func(text, root string) string {
		if inside, remote := strings.CutPrefix(root, "/vercel/"); remote {
			text = strings.ReplaceAll(text, above+"/"+inside, "ROOT")
		}
		return strings.ReplaceAll(text, root, "ROOT")
	}
	sides := []struct {
		fs   osLike
		root string
	}{{local{}, localRoot}, {remote{t.Context(), sb.FS()}, remoteRoot}}

	names := func(list []fs.DirEntry, err error) (any, error) {
		out := []string{}
		for _, d := range list {
			info, ierr := d.Info()
			if ierr != nil {
				return nil, ierr
			}
			size := info.Size()
			if d.IsDir() {
				size = 0
			}
			out = append(out, fmt.Sprintf("%q %v %v %d", d.Name(), d.Type(), info.Mode(), size))
		}
		return out, err
	}
	info := func(i fs.FileInfo, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		size := i.Size()
		if i.IsDir() {
			size = 0
		}
		return fmt.Sprintf("%q %v %v %d", i.Name(), i.IsDir(), i.Mode(), size), nil
	}
	type op struct {
		name string
		do   func(f osLike, root string) (any, error)
	}
	none := func(err error) (any, error) { return nil, err }
	text := func(b []byte, err error) (any, error) { return string(b), err }
	str := func(s string, err error) (any, error) { return s, err }
	var ops []op
	add := func(name string, do func(f osLike, root string) (any, error)) {
		if needs.Slow() || slices.Contains(defaultOps, name) {
			ops = append(ops, op{name, do})
		}
	}
	// Try each operation on each kind of file, in a fresh tree.
	kinds := []string{"file", "dir", "full", "link", "dirlink", "dangling", "loop", "missing", "missing/x", "file/x", "full/inner", "exec"}
	for _, k := range kinds {
		add("ReadFile "+k, func(f osLike, root string) (any, error) { return text(f.ReadFile(root + "/" + k)) })
		add("Open "+k, func(f osLike, root string) (any, error) { return str(f.Read(root + "/" + k)) })
		add("Mkdir "+k, func(f osLike, root string) (any, error) { return none(f.Mkdir(root+"/"+k, 0o755)) })
		add("Mkdir 0700 "+k, func(f osLike, root string) (any, error) { return none(f.Mkdir(root+"/"+k, 0o700)) })
		if k != "dangling" && k != "loop" { // the two sides return different errors
			add("MkdirAll "+k, func(f osLike, root string) (any, error) { return none(f.MkdirAll(root+"/"+k, 0o777)) })
			add("MkdirAll 0700 "+k, func(f osLike, root string) (any, error) { return none(f.MkdirAll(root+"/"+k, 0o700)) })
		}
		add("ReadDir "+k, func(f osLike, root string) (any, error) { return names(f.ReadDir(root + "/" + k)) })
		add("Stat "+k, func(f osLike, root string) (any, error) { return info(f.Stat(root + "/" + k)) })
		add("Lstat "+k, func(f osLike, root string) (any, error) { return info(f.Lstat(root + "/" + k)) })
		add("Remove "+k, func(f osLike, root string) (any, error) { return none(f.Remove(root + "/" + k)) })
		if k != "file/x" { // rm -f treats it as missing, package os as an error
			add("RemoveAll "+k, func(f osLike, root string) (any, error) { return none(f.RemoveAll(root + "/" + k)) })
		}
		add("Chmod "+k, func(f osLike, root string) (any, error) { return none(f.Chmod(root+"/"+k, 0o600)) })
		add("Chmod 0 "+k, func(f osLike, root string) (any, error) { return none(f.Chmod(root+"/"+k, 0)) })
		add("Chown "+k, func(f osLike, root string) (any, error) { return none(f.Chown(root+"/"+k, -1, -1)) })
		add("Symlink "+k, func(f osLike, root string) (any, error) { return none(f.Symlink("target", root+"/"+k)) })
		add("Readlink "+k, func(f osLike, root string) (any, error) { return str(f.Readlink(root + "/" + k)) })
		add("RealPath "+k, func(f osLike, root string) (any, error) { return str(f.RealPath(root + "/" + k)) })
		if k != "dir" && k != "full" && k != "dirlink" { // the error is EISDIR in package os, EINVAL in a sandbox
			add("Truncate "+k, func(f osLike, root string) (any, error) { return none(f.Truncate(root+"/"+k, 2)) })
			add("Truncate longer "+k, func(f osLike, root string) (any, error) { return none(f.Truncate(root+"/"+k, 20)) })
		}
		if k != "missing/x" { // AppendFile creates the directory
			add("Append "+k, func(f osLike, root string) (any, error) { return none(f.Append(root+"/"+k, []byte("more"))) })
		}
		for _, to := range kinds {
			switch k + " " + to {
			case "dir dir", "full dir", "full full":
				// Package os never replaces a directory. A FileSystem replaces one
				// that is empty or the same, like rename(2).
				continue
			case "link file":
				// mv refuses to replace a file by a hard link to it.
				continue
			case "full full/inner", "missing file/x":
				// Both the source and the target are wrong, and each side reports another one.
				continue
			}
			add("Rename "+k+" "+to, func(f osLike, root string) (any, error) { return none(f.Rename(root+"/"+k, root+"/"+to)) })
		}
	}
	for _, n := range []string{"file", "dir", "missing", "full/inner", "full/new"} {
		add("WriteFile "+n, func(f osLike, root string) (any, error) { return none(f.WriteFile(root+"/"+n, []byte("new"), 0o644)) })
		add("Create "+n, func(f osLike, root string) (any, error) { return none(f.Create(root+"/"+n, "new")) })
	}
	add("WriteFile mode", func(f osLike, root string) (any, error) { return none(f.WriteFile(root+"/new", []byte("x"), 0o600)) })
	add("WriteFile mode 0", func(f osLike, root string) (any, error) { return none(f.WriteFile(root+"/new", []byte("x"), 0)) })
	add("WriteFile empty", func(f osLike, root string) (any, error) { return none(f.WriteFile(root+"/new", nil, 0o644)) })
	for _, n := range []string{"", "a\x00b"} {
		add(fmt.Sprintf("Stat %q", n), func(f osLike, root string) (any, error) { return info(f.Stat(n)) })
		add(fmt.Sprintf("Mkdir %q", n), func(f osLike, root string) (any, error) { return none(f.Mkdir(n, 0o777)) })
		add(fmt.Sprintf("ReadDir %q", n), func(f osLike, root string) (any, error) { return names(f.ReadDir(n)) })
		add(fmt.Sprintf("ReadFile %q", n), func(f osLike, root string) (any, error) { return text(f.ReadFile(n)) })
		add(fmt.Sprintf("Rename %q", n), func(f osLike, root string) (any, error) { return none(f.Rename(n, root+"/x")) })
	}
	add("RemoveAll ''", func(f osLike, root string) (any, error) { return none(f.RemoveAll("")) })
	add("RemoveAll .", func(f osLike, root string) (any, error) { return none(f.RemoveAll(root + "/full/.")) })
	add("Truncate -1", func(f osLike, root string) (any, error) { return none(f.Truncate(root+"/file", -1)) })
	add("Rename into itself", func(f osLike, root string) (any, error) { return none(f.Rename(root+"/full", root+"/full/sub")) })
	add("Mkdir long", func(f osLike, root string) (any, error) {
		return none(f.Mkdir(root+"/"+strings.Repeat("n", 256), 0o777))
	})
	add("MkdirTemp", func(f osLike, root string) (any, error) {
		name, err := f.MkdirTemp(root+"/dir", "pre-*.d")
		if err != nil {
			return nil, err
		}
		base := filepath.Base(name)
		i, err := f.Stat(name)
		if err != nil {
			return nil, err
		}
		ok := strings.HasPrefix(base, "pre-") && strings.HasSuffix(base, ".d") && len(base) > len("pre-.d")
		return fmt.Sprint(ok, i.Mode()), f.Remove(name)
	})
	add("MkdirTemp missing", func(f osLike, root string) (any, error) { return str(f.MkdirTemp(root+"/missing", "x")) })
	for _, n := range testkit.OddNames {
		add(fmt.Sprintf("odd name %q", n), func(f osLike, root string) (any, error) {
			p := root + "/dir/" + n
			var out []any
			note := func(v any, err error) {
				out = append(out, v)
				if err != nil {
					out = append(out, err.Error())
				}
			}
			note(none(f.WriteFile(p, []byte(n), 0o640)))
			note(none(f.Append(p, []byte("+"))))
			note(text(f.ReadFile(p)))
			note(info(f.Stat(p)))
			note(names(f.ReadDir(root + "/dir")))
			note(none(f.Rename(p, root+"/moved")))
			note(none(f.Rename(root+"/moved", p)))
			note(none(f.Chmod(p, 0o600)))
			note(none(f.Truncate(p, 1)))
			note(none(f.Symlink(n, root+"/to")))
			note(str(f.Readlink(root + "/to")))
			note(none(f.Remove(root + "/to")))
			note(str(f.RealPath(p)))
			note(info(f.Lstat(p)))
			note(none(f.Remove(p)))
			note(none(f.Mkdir(p, 0o777)))
			note(none(f.Remove(p)))
			note(none(f.MkdirAll(p+"/"+n, 0o777)))
			note(names(f.ReadDir(p)))
			note(none(f.RemoveAll(p)))
			for i, v := range out {
				if s, ok := v.(string); ok {
					out[i] = rooted(s, root)
				}
			}
			return out, nil
		})
	}

	// Starting programs takes most of the time. Each operation has its own tree, but one
	// program creates many trees, and one lists them. A tree with an unreadable directory
	// makes this slower, so put the operations that cause one next to each other.
	slices.SortStableFunc(ops, func(a, b op) int {
		return cmp.Compare(strings.Index(a.name, "Chmod 0 "), strings.Index(b.name, "Chmod 0 "))
	})
	together := 32
	if !needs.Slow() {
		together = 8
	}
	place := func(i int) string { return fmt.Sprintf("/%d/%d", i/together, i%together) }
	script := fmt.Sprintf(`set -e; umask 022; mkdir -p ROOT/0; cd ROOT/0; mkdir 0; cd 0; mkdir dir full
printf 'some content' > file; printf x > full/inner; printf '#!/bin/sh\n' > exec; chmod 755 exec
ln -s file link; ln -s full dirlink; ln -s nowhere dangling; ln -s loop loop; cd ..
i=1; while [ $i -lt %d ]; do cp -a 0 $i; i=$((i+1)); done; cd ..
i=1; while [ $i -lt %d ]; do cp -a 0 $i; i=$((i+1)); done`, together, (len(ops)+together-1)/together)
	runLocal(t, strings.ReplaceAll(script, "ROOT", localRoot))
	done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", strings.ReplaceAll(script, "ROOT", remoteRoot)}, nil)
	require.NoError(t, err)
	require.Zero(t, done.ExitCode, done.Stderr)

	got := make([][2]outcome, len(ops))
	for s, side := range sides {
		for i, op := range ops {
			root := side.root + place(i)
			value, err := op.do(side.fs, root)
			if text, ok := value.(string); ok {
				value = rooted(text, root)
			}
			if err != nil {
				value = nil
			}
			got[i][s] = outcome{Value: value, Kinds: kindsOf(err), err: err}
		}
		// Record the trees, which the operations must have changed in the same way.
		for first := 0; first < len(ops); first += together {
			err := side.fs.WalkDir(side.root+filepath.Dir(place(first)), func(name string, d fs.DirEntry, err error) error {
				if name == "." {
					return err
				}
				number, name, _ := strings.Cut(name, "/")
				n, nerr := strconv.Atoi(number)
				if nerr != nil {
					return nerr
				}
				if first+n >= len(ops) {
					return fs.SkipDir
				}
				line := &got[first+n][s].Tree
				if err != nil {
					*line = append(*line, name+" unreadable")
					return fs.SkipDir
				}
				i, err := d.Info()
				if err != nil {
					return err
				}
				text := name + " " + i.Mode().String()
				if i.Mode().IsRegular() {
					text += fmt.Sprint(" ", i.Size())
				}
				if *line = append(*line, text); i.IsDir() && i.Mode().Perm()&0o500 != 0o500 {
					return fs.SkipDir
				}
				return nil
			})
			require.NoError(t, err)
		}
	}
	runLocal(t, "chmod -R u+rwx "+localRoot) // so that the test's directory can be removed
	for i, op := range ops {
		t.Run(op.name, func(t *testing.T) {
			os, sandbox := got[i][0], got[i][1]
			require.NotEmpty(t, os.Tree)
			assert.Equal(t, os.Value, sandbox.Value)
			assert.Equal(t, os.Kinds, sandbox.Kinds, "os: %v, sandbox: %v", os.err, sandbox.err)
			assert.Equal(t, os.Tree, sandbox.Tree)
		})
	}
}

type outcome struct {
	Value any
	Kinds []string
	Tree  []string
	err   error
}

// kindsOf lists the error values that an error matches.
func kindsOf(err error) []string {
	var out []string
	for name, kind := range map[string]error{"not exist": fs.ErrNotExist, "exist": fs.ErrExist, "permission": fs.ErrPermission} {
		if errors.Is(err, kind) {
			out = append(out, name)
		}
	}
	// For an existing file, package os and the system use different errnos.
	if errno, ok := errors.AsType[syscall.Errno](err); ok && !errors.Is(err, fs.ErrExist) {
		out = append(out, errno.Error())
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		out = append(out, "path error")
	}
	if _, ok := errors.AsType[*os.LinkError](err); ok {
		out = append(out, "link error")
	}
	if err != nil && len(out) == 0 {
		out = append(out, "other")
	}
	return out
}
