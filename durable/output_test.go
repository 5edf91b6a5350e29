package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

func TestDir(t *testing.T) {
	t.Parallel()
	durabletest.TestStore(t, durable.Dir(filepath.Join(t.TempDir(), "made")))
}

// counted counts the bytes that are read from a store. Its readers may be seekers.
type counted struct {
	durable.OutputStore
	seeks bool
	read  int
}

type countedFile struct {
	*os.File
	read *int
}

func (f countedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	*f.read += n
	return n, err
}

func (s *counted) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := s.OutputStore.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	file := countedFile{r.(*os.File), &s.read}
	if s.seeks {
		return file, nil
	}
	return struct{ io.ReadCloser }{file}, nil
}

// TestReadOutput: a reader gets the output from any byte on. If the store can seek, it does
// not read what comes before.
func TestReadOutput(t *testing.T) {
	t.Parallel()
	var whole []byte
	store := &counted{OutputStore: durable.Dir(t.TempDir())}
	w, err := store.Create(t.Context(), "out")
	require.NoError(t, err)
	for i := range 100 {
		rec := durable.Record{Stream: "stdout", Data: bytes.Repeat([]byte{byte(i)}, 1+i*397%40_000), At: int64(len(whole))}
		whole = append(whole, rec.Data...)
		line, err := json.Marshal(rec)
		require.NoError(t, err)
		_, err = w.Write(append(line, '\n'))
		require.NoError(t, err)
	}
	require.NoError(t, w.Commit())
	for _, store.seeks = range []bool{true, false} {
		for _, skip := range []int{0, 1, 1000, len(whole) / 3, len(whole) / 2, len(whole) - 1, len(whole), len(whole) + 5} {
			store.read = 0
			var got []byte
			first := int64(-1)
			for rec, err := range durable.ReadOutput(t.Context(), store, "out", int64(skip)) {
				require.NoError(t, err)
				if first < 0 {
					first = rec.At
				}
				require.Equal(t, first+int64(len(got)), rec.At)
				got = append(got, rec.Data...)
			}
			require.LessOrEqual(t, first, int64(skip))
			assert.True(t, bytes.Equal(whole[first:], got), "from %d", skip)
			if store.seeks {
				assert.Less(t, store.read, (len(whole)-min(skip, len(whole)))*3/2+1<<20, "from %d", skip)
			}
		}
	}
	require.Greater(t, len(whole), 1<<20)
}

// TestMaxOutput: output beyond the limit is not stored, and does not change how the command
// ends.
func TestMaxOutput(t *testing.T) {
	env := durabletest.New(t, nil)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "much"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer sb.Delete(ctx)
		for limit, want := range map[int64]string{0: "onetwo", 4: "onet", 6: "onetwo"} {
			res, err := sb.Run(ctx, "sh", []string{"-c", "printf one; printf two; exit 3"}, &durable.RunOptions{MaxOutput: limit, Output: "out"})
			require.NoError(t, err)
			assert.Equal(t, 3, res.ExitCode)
			assert.Equal(t, int64(6), res.Bytes)
			assert.Equal(t, limit == 4, res.Truncated)
			var stored []byte
			for rec, err := range durable.ReadOutput(t.Context(), env.Worker.Output, "out", 0) {
				require.NoError(t, err)
				stored = append(stored, rec.Data...)
			}
			assert.Equal(t, want, string(stored))
		}
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}

// TestDirCleans: a commit removes old files of killed writers of the same object, but not
// those of a writer that is still at work.
func TestDirCleans(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store := durable.Dir(folder)
	write := func(key string) durable.OutputWriter {
		w, err := store.Create(t.Context(), key)
		require.NoError(t, err)
		_, err = w.Write([]byte(key))
		require.NoError(t, err)
		t.Cleanup(func() { _ = w.Close() })
		return w
	}
	files := func() (names []string) {
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	write("a") // this writer never commits
	old := time.Now().Add(-25 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(folder, files()[0]), old, old))
	write("a") // this writer is still at work
	require.NoError(t, write("b").Commit())
	assert.Len(t, files(), 3, "a commit does not touch the files of another key")
	require.NoError(t, write("a").Commit())
	assert.Len(t, files(), 3, "a, b, and the file that is being written")
}

// TestDirCommitCloses: Commit closes the file before it renames it.
func TestDirCommitCloses(t *testing.T) {
	t.Parallel()
	w, err := durable.Dir(t.TempDir()).Create(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	_, err = w.Write([]byte("late"))
	require.ErrorIs(t, err, os.ErrClosed)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
}

// TestErrorsWithoutPaths: errors of the store contain no paths, because a session's users
// see them.
func TestErrorsWithoutPaths(t *testing.T) {
	root, ctx := t.TempDir(), t.Context()
	store := durable.Dir(root)
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	_, create := store.Create(ctx, "file/a")
	_, open := store.Open(ctx, "none")
	require.ErrorIs(t, open, fs.ErrNotExist)
	w, err := store.Create(ctx, "folder/a")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "folder")))
	commit := w.Commit()
	_, write := w.Write([]byte("more"))
	for name, err := range map[string]error{"create": create, "open": open, "commit": commit, "write": write} {
		if assert.Error(t, err, name) {
			assert.NotContains(t, err.Error(), root, name)
		}
	}
	_ = w.Close()
}
