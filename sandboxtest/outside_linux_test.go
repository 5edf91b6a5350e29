package sandboxtest_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// rootsFiles is a directory of the machine that belongs to root, with a file that
// everybody may read and one that only root may read.
type rootsFiles struct{ dir, file, secret string }

const secretOfRoot = "what root alone may read"

func newRootsFiles(t *testing.T) *rootsFiles {
	t.Helper()
	dir := openToAll(t, "/var/tmp") // not in /tmp: in every mode a sandbox has its own
	o := rootsFiles{dir, filepath.Join(dir, "file"), filepath.Join(dir, "secret")}
	require.NoError(t, os.WriteFile(o.file, []byte("as it was"), 0o644))
	require.NoError(t, os.WriteFile(o.secret, []byte(secretOfRoot), 0o600))
	return &o
}

// state returns everything in the directory that could change.
func (o *rootsFiles) state(t *testing.T) []string {
	t.Helper()
	var lines []string
	require.NoError(t, filepath.WalkDir(o.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		var content []byte
		if info.Mode().IsRegular() {
			content, err = os.ReadFile(name)
		}
		lines = append(lines, fmt.Sprintf("%s %s %d:%d %d %q", name, info.Mode(), st.Uid, st.Gid, st.Nlink, content))
		return err
	}))
	return lines
}

// escapes are attempts to reach a file or a directory outside the sandbox, one for each
// method.
var escapes = map[string]func(ctx context.Context, t *testing.T, f *sandbox.FileSystem, file, dir string) (read any, err error){
	"AppendFile": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return nil, f.AppendFile(ctx, file, []byte("x"))
	},
	"Chmod": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return nil, f.Chmod(ctx, file, 0o777)
	},
	"ChmodSymbolic": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return nil, f.ChmodSymbolic(ctx, file, "a+rwx")
	},
	"Chown": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return nil, f.Chown(ctx, file, 65534, 65534)
	},
	"CopyFS": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		return nil, f.CopyFS(ctx, dir, fstest.MapFS{"file": {Data: []byte("x")}, "new": {Data: []byte("x")}}, nil)
	},
	"CopyFile": func(ctx context.Context, t *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		require.NoError(t, f.WriteFile(ctx, "own", []byte("x"), 0o644))
		if err := f.CopyFile(ctx, file, "stolen"); err == nil {
			data, err := f.ReadFile(ctx, "stolen")
			assert.NoError(t, err)
			return data, f.CopyFile(ctx, "own", file)
		}
		return nil, f.CopyFile(ctx, "own", file)
	},
	"Create": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		w, err := f.Create(ctx, file, nil)
		if err == nil {
			_, _ = w.Write([]byte("x"))
			err = w.Close()
		}
		return nil, err
	},
	"DownloadDir": func(ctx context.Context, t *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		to := filepath.Join(t.TempDir(), "to")
		err := f.DownloadDir(ctx, dir, to, nil)
		data, _ := os.ReadFile(filepath.Join(to, "secret"))
		return data, err
	},
	"DownloadFile": func(ctx context.Context, t *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		to := filepath.Join(t.TempDir(), "to")
		err := f.DownloadFile(ctx, file, to, nil)
		data, _ := os.ReadFile(to)
		return data, err
	},
	"Exists": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return f.Exists(ctx, file)
	},
	"IOFS": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, dir string) (any, error) {
		return fs.ReadFile(f.IOFS(ctx, dir), filepath.Base(file))
	},
	"Lstat": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return f.Lstat(ctx, file)
	},
	"Mkdir": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		return nil, f.Mkdir(ctx, dir+"/new", 0o777)
	},
	"MkdirAll": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		return nil, f.MkdirAll(ctx, dir+"/new/er", 0o755)
	},
	"MkdirTemp": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		return f.MkdirTemp(ctx, dir, "new")
	},
	"Open": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		r, err := f.Open(ctx, file, nil)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		data := make([]byte, 100)
		n, _ := r.Read(data)
		return data[:n], nil
	},
	"ReadDir": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		return f.ReadDir(ctx, dir)
	},
	"ReadFile": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return f.ReadFile(ctx, file)
	},
	"Readlink": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return f.Readlink(ctx, file)
	},
	"RealPath": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return f.RealPath(ctx, file)
	},
	"Remove": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return nil, f.Remove(ctx, file)
	},
	"RemoveAll": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		return nil, f.RemoveAll(ctx, dir+"/.")
	},
	"Rename": func(ctx context.Context, t *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		require.NoError(t, f.WriteFile(ctx, "own", []byte("x"), 0o644))
		if err := f.Rename(ctx, file, "stolen"); err == nil {
			return nil, nil
		}
		return nil, f.Rename(ctx, "own", file)
	},
	"Stat": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return f.Stat(ctx, file)
	},
	"Symlink": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		return nil, f.Symlink(ctx, "x", dir+"/new")
	},
	"Truncate": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return nil, f.Truncate(ctx, file, 1)
	},
	"UploadDir": func(ctx context.Context, t *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		from := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(from, "new"), []byte("x"), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(from, "file"), []byte("x"), 0o644))
		return nil, f.UploadDir(ctx, from, dir, nil)
	},
	"WalkDir": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, _, dir string) (any, error) {
		return nil, f.WalkDir(ctx, dir, func(_ string, _ fs.DirEntry, err error) error { return err })
	},
	"WriteFile": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, _ string) (any, error) {
		return nil, f.WriteFile(ctx, file, []byte("x"), 0o777)
	},
	"WriteFiles": func(ctx context.Context, _ *testing.T, f *sandbox.FileSystem, file, dir string) (any, error) {
		return nil, f.WriteFiles(ctx, []sandbox.File{{Path: file, Content: []byte("x")}, {Path: dir + "/new", Content: []byte("x")}}, nil)
	},
}

// fileCalls are the methods whose work the server does itself. The others run a command as
// the sandbox's user, so one of them is enough unless slow tests run.
var fileCalls = []string{"Mkdir", "ReadFile", "WriteFile"}

// reading lists the methods that change nothing. They may succeed for files that are not
// secret.
var reading = []string{"DownloadDir", "DownloadFile", "Exists", "IOFS", "Lstat", "Open", "ReadDir", "ReadFile", "Readlink", "RealPath", "Stat", "WalkDir"}

// TestFolderModeOfRoot: if the emulator is root and in folder mode, nothing in a sandbox
// has root's rights. It tries each method on files, with each kind of path that leads out
// of the sandbox, and commands, and replaces directories of the sandbox by links.
func TestFolderModeOfRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		needs.Missing(t, "root")
	}
	typ := reflect.TypeFor[*sandbox.FileSystem]()
	for m := range typ.Methods() {
		assert.Contains(t, escapes, m.Name)
	}
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	ctx := t.Context()
	sb, err := srv.Client().Create(ctx, nil)
	require.NoError(t, err)
	if printed(t, sb, &sandbox.CommandOptions{Sudo: true}, "id", "-u") == "0" {
		needs.Missing(t, "the right to become nobody")
	}
	o := newRootsFiles(t)
	before := o.state(t)
	up := strings.Repeat("../", 40)
	require.NoError(t, sb.FS().Symlink(ctx, o.dir, "link"))
	paths := map[string]string{"absolute": o.dir, "above": up + o.dir[1:], "link": "link", "root of a process": "/proc/self/root" + o.dir, "from a link": "link/../" + filepath.Base(o.dir)}
	kinds := slices.Sorted(maps.Keys(paths))
	for _, name := range slices.Sorted(maps.Keys(escapes)) {
		for _, kind := range kinds {
			if !needs.Slow() && !slices.Contains(fileCalls, name) && (name != "Chmod" || kind != "link") {
				continue
			}
			dir := paths[kind]
			for _, file := range []string{"secret", "file"} {
				if file == "file" && !needs.Slow() {
					continue
				}
				read, err := escapes[name](ctx, t, sb.FS(), dir+"/"+file, dir)
				// Methods that read may succeed, and so may some that write: the API puts
				// an absolute name below the sandbox's folder. The others must fail.
				if !slices.Contains(reading, name) && !strings.HasPrefix(name, "WriteFile") && !slices.Contains([]string{"CopyFS", "UploadDir", "Mkdir"}, name) {
					assert.Error(t, err, "%s, %s", name, kind)
				}
				assert.NotContains(t, fmt.Sprintf("%s", read), secretOfRoot, "%s, %s", name, kind)
				require.Equal(t, before, o.state(t), "%s, %s", name, kind)
			}
		}
	}

	for _, sudo := range []bool{false, true} {
		done, err := sb.RunCommand(ctx, "sh", []string{"-c", `cat "$1/secret"; rm -rf "$1"; echo x >"$1/file"; ln "$1/file" hard && echo x >hard; kill -0 "$2"`, "sh", o.dir, fmt.Sprint(os.Getpid())},
			&sandbox.CommandOptions{Sudo: sudo})
		require.NoError(t, err)
		assert.NotZero(t, done.ExitCode, "a command could signal the emulator")
		out, err := done.CombinedOutput(ctx)
		require.NoError(t, err)
		assert.NotContains(t, out, secretOfRoot)
		require.Equal(t, before, o.state(t), "sudo %v", sudo)
	}

	// The emulator creates and removes a link at a drive's mount point.
	drive, err := srv.Client().GetOrCreateDrive(ctx, "data", nil)
	require.NoError(t, err)
	mounted, err := srv.Client().Create(ctx, &sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/vercel/deep/file": {Drive: drive.Name()}}})
	require.NoError(t, err)
	_ = printed(t, mounted, nil, "sh", "-c", `cd /vercel && rm -rf deep && ln -s "$1" deep`, "sh", o.dir)
	_, err = mounted.Stop(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, before, o.state(t))
	_, err = mounted.RunCommand(ctx, "true", nil, nil)
	require.ErrorContains(t, err, "permission denied")
	require.Equal(t, before, o.state(t))
}
