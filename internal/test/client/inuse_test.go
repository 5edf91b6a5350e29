package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// tarMeanwhile is a tar that runs the script /vercel/during in its directory after it has
// written the first 20,000 bytes of the archive. A full pipe makes tar wait for the script.
const tarMeanwhile = `#!/bin/bash
/usr/bin/tar --sort=name "$@" | { head -c 20000; . /vercel/during; cat; }
exit "${PIPESTATUS[0]}"
`

// TestDownloadDirInUse: a directory changes while it is downloaded. Unchanged files
// arrive, the error names the changed ones, and tar's padding gets into no file.
func TestDownloadDirInUse(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin"}})
	testkit.NeedBox(t, sb) // tar is found in /vercel/bin
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "/vercel/bin/tar", []byte(tarMeanwhile), 0o755))
	big := strings.Repeat("0123456789abcdef", 30_000) // more than the pipe holds
	rows := []struct {
		during        string
		changed, gone []string
	}{
		{"echo text > aa", []string{"aa"}, nil},
		{"rm -r mm", []string{"."}, []string{"mm"}},
		{"rm -r out", []string{"."}, nil},
		{"echo more >> aa", []string{"aa"}, nil},
		{"true", nil, nil},
		{": > aa", []string{"aa"}, nil},
		{"touch zz", []string{"."}, nil},
	}
	if !needs.Slow() {
		rows = rows[:3] // TestDownloadOfEveryKind has a file that grows
	}
	for _, row := range rows {
		require.NoError(t, f.RemoveAll(ctx, "d"))
		require.NoError(t, f.WriteFiles(ctx, []sandbox.File{
			{Path: "d/aa", Content: []byte(big), Mode: new(fs.FileMode(0o640))}, {Path: "d/mm/x", Content: []byte("x")}, {Path: "d/mm/sub/y", Content: []byte("y")},
			{Path: "d/out/y/z", Content: []byte("z")}, {Path: "d/z", Content: []byte(big)},
			{Path: "/vercel/during", Content: []byte(row.during)},
		}, nil))
		local := t.TempDir()
		err := f.DownloadDir(ctx, "d", local, &sandbox.DownloadDirOptions{Exclude: []string{"out"}})
		if len(row.changed)+len(row.gone) == 0 {
			assert.NoError(t, err, row.during)
		} else {
			var inUse *sandbox.ChangedError
			require.ErrorAs(t, err, &inUse, row.during)
			assert.Equal(t, "d", inUse.Path)
			assert.Equal(t, row.changed, inUse.Changed, row.during)
			assert.Equal(t, row.gone, inUse.Gone, row.during)
			assert.ErrorContains(t, err, slices.Concat(row.changed, row.gone)[0])
		}
		z, err := os.ReadFile(filepath.Join(local, "z"))
		require.NoError(t, err)
		assert.Equal(t, len(big), len(z), row.during)
		aa, err := os.ReadFile(filepath.Join(local, "aa"))
		require.NoError(t, err)
		assert.NotContains(t, string(aa), "\x00", row.during)
		assert.NotEmpty(t, aa)
		info, err := os.Stat(filepath.Join(local, "aa"))
		require.NoError(t, err)
		assert.EqualValues(t, 0o640, info.Mode().Perm())
	}
}

// TestDownloadDirTruncatesOnlyItsFiles: tar reports that a file has shrunk, and the client
// then truncates the downloaded file. It does not touch files that tar has not sent.
func TestDownloadDirTruncatesOnlyItsFiles(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin"}})
	testkit.NeedBox(t, sb) // tar is found in /vercel/bin
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "/vercel/bin/tar", []byte(`#!/bin/sh
/usr/bin/tar "$@"
for name in ../beside ./.git/config ./link ./way/config ./omitted; do echo "tar: $name: File shrank by 4 bytes; padding with zeros" >&2; done
exit 1
`), 0o755))
	require.NoError(t, f.WriteFile(ctx, "d/file", []byte("file"), 0o644))
	require.NoError(t, f.Symlink(ctx, ".git", "d/way"))
	require.NoError(t, f.Symlink(ctx, "mine", "d/link"))
	outer := t.TempDir()
	local := filepath.Join(outer, "local")
	require.NoError(t, os.MkdirAll(filepath.Join(local, ".git"), 0o755))
	for _, name := range []string{"beside", "local/.git/HEAD", "local/.git/config", "local/mine", "local/omitted"} {
		require.NoError(t, os.WriteFile(filepath.Join(outer, name), []byte("content"), 0o644))
	}
	err := f.DownloadDir(ctx, "d", local, &sandbox.DownloadDirOptions{Exclude: []string{"omitted"}})
	var inUse *sandbox.ChangedError
	require.ErrorAs(t, err, &inUse)
	for _, name := range []string{"beside", "local/.git/HEAD", "local/.git/config", "local/mine", "local/omitted"} {
		got, err := os.ReadFile(filepath.Join(outer, name))
		require.NoError(t, err)
		assert.Equal(t, "content", string(got), name)
	}
}

// churns are programs that change files in the directory d until they are killed. They
// don't change files whose names begin with "keep".
var churns = []string{
	"while :; do echo more >> d/log; done",
	"while :; do : > d/log; head -c 3000000 /dev/zero | tr '\\0' x >> d/log; done",
	"i=0; while :; do echo x > d/tmp$i; i=$((i+1)); rm -f d/tmp$((i-20)); done",
	"while :; do mkdir -p d/sub/a; echo x > d/sub/a/f; rm -rf d/sub; done",
	"while :; do echo 1 > d/.new; mv d/.new d/log; done",
	"while :; do mkdir d/kind; rmdir d/kind; echo x > d/kind; rm d/kind; ln -s keep0 d/kind; rm d/kind; done",
}

// TestReadsOfDirectoryInUse: reading a directory succeeds while programs change it, and
// the result contains the files that they don't change.
func TestReadsOfDirectoryInUse(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	needs.Long(t, "its programs run all the time; TestDownloadDirInUse covers each change")
	const kept, rounds = 300, 10
	content := strings.Repeat("0123456789abcdef", 60_000)
	reads := map[string]func(*testing.T, *sandbox.FileSystem) (names []string, err error){
		"DownloadDir": func(t *testing.T, f *sandbox.FileSystem) (names []string, err error) {
			local := t.TempDir()
			err = f.DownloadDir(t.Context(), "d", local, nil)
			if _, ok := errors.AsType[*sandbox.ChangedError](err); ok {
				err = nil
			}
			data, readErr := os.ReadFile(filepath.Join(local, "keep0"))
			assert.NoError(t, readErr)
			assert.True(t, string(data) == content, "keep0 has %d bytes", len(data))
			if log, err := os.ReadFile(filepath.Join(local, "log")); err == nil {
				assert.Zero(t, bytes.Count(log, []byte{0}), "zeros that no program wrote")
			}
			return testkit.DirNames(t, local), err
		},
		"ReadDir": func(t *testing.T, f *sandbox.FileSystem) (names []string, err error) {
			list, err := f.ReadDir(t.Context(), "d")
			for _, e := range list {
				names = append(names, e.Name())
			}
			return names, err
		},
		"WalkDir": func(t *testing.T, f *sandbox.FileSystem) (names []string, err error) {
			return names, f.WalkDir(t.Context(), "d", func(name string, _ fs.DirEntry, err error) error {
				names = append(names, name)
				return err
			})
		},
		"IOFS": func(t *testing.T, f *sandbox.FileSystem) (names []string, err error) {
			list, err := fs.ReadDir(f.IOFS(t.Context(), "."), "d")
			for _, e := range list {
				names = append(names, e.Name())
			}
			return names, err
		},
		"files": func(t *testing.T, f *sandbox.FileSystem) (names []string, err error) {
			data, err := f.ReadFile(t.Context(), "d/keep0")
			assert.True(t, string(data) == content, "keep0 has %d bytes", len(data))
			_, lstatErr := f.Lstat(t.Context(), "d")
			local := filepath.Join(t.TempDir(), "keep0")
			return nil, errors.Join(err, lstatErr, f.DownloadFile(t.Context(), "d/keep0", local, nil))
		},
	}
	for i, churn := range churns {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			sb := share(t, nil)
			ctx, f := t.Context(), sb.FS()
			testkit.Output(t, sb, "sh", "-c", fmt.Sprintf(`mkdir -p d/keepdir && cd d && for i in $(seq %d); do echo $i > keep$i; done; echo x > log`, kept))
			require.NoError(t, f.WriteFile(ctx, "d/keep0", []byte(content), 0o644))
			cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", churn}, nil)
			require.NoError(t, err)
			for range rounds {
				for name, read := range reads {
					names, err := read(t, f)
					assert.NoError(t, err, "%s while %s", name, churn)
					if name == "files" {
						continue
					}
					n := 0
					for _, name := range names {
						if strings.HasPrefix(name, "keep") {
							n++
						}
					}
					assert.Equal(t, kept+2, n, "%s while %s", name, churn)
				}
			}
			require.NoError(t, cmd.Kill(ctx))
		})
	}
}
