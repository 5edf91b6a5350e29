package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestWatch changes files here while they are synced to a sandbox, and there
// while they are synced back.
func TestWatch(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.ok("create", "--name", "c")
	d.write("tree/a.txt", "a\n")
	d.write("tree/.gitignore", "ignored/\n")
	d.write("tree/ignored/x", "x\n")
	there := func(want map[string]string) {
		t.Helper()
		for name, text := range want {
			require.Eventually(t, func() bool {
				got := d.run("", "read", "c", "app/"+name)
				return text == "" && got.code == 3 || got.code == 0 && got.stdout == text
			}, time.Minute, 50*time.Millisecond, "%s is not %q", name, text)
		}
	}

	cmd, lines := d.background("sync", "--watch", "--delete", "tree", "c:app")
	for nextLine(t, lines) != "Watching tree." {
	}
	there(map[string]string{"a.txt": "a\n", "ignored/x": ""})
	d.write("tree/a.txt", "changed\n")
	d.write("tree/new/deep/b.txt", "b\n")
	d.write("tree/ignored/y", "y\n")
	there(map[string]string{"a.txt": "changed\n", "new/deep/b.txt": "b\n"})
	// A directory that came while it was watched is watched as well.
	d.write("tree/new/deep/c.txt", "c\n")
	require.NoError(t, os.Remove(filepath.Join(d.dir, "tree/new/deep/b.txt")))
	there(map[string]string{"new/deep/c.txt": "c\n", "new/deep/b.txt": "", "ignored/y": ""})
	interrupt(t, cmd)

	cmd, _ = d.background("sync", "--watch", "c:app", "back")
	here := func(name, text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			data, err := os.ReadFile(filepath.Join(d.dir, "back", name))
			return err == nil && string(data) == text
		}, time.Minute, 20*time.Millisecond, "%s is not %q", name, text)
	}
	here("a.txt", "changed\n")
	d.ok("exec", "c", "--", "sh", "-c", "echo made > app/made.txt")
	here("made.txt", "made\n")
	interrupt(t, cmd)
	assert.NoFileExists(t, filepath.Join(d.dir, "back/ignored/x"))
}

// TestWatchGoesOn rewrites a file all the time while it is synced, and puts a file
// in the place of a directory and back; the sandbox is kept running meanwhile.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.ok("create", "--name", "c", "--timeout", "10s")
	for i := range 200 {
		d.write(fmt.Sprintf("tree/many/%d", i), "x\n")
	}
	grows, err := os.Create(filepath.Join(d.dir, "tree", "grows"))
	require.NoError(t, err)
	defer grows.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for ctx.Err() == nil {
			_, err := grows.WriteString("more and more\n")
			assert.NoError(t, err)
			if size, err := grows.Seek(0, io.SeekCurrent); err == nil && size > 4<<20 {
				assert.NoError(t, grows.Truncate(0))
				_, err = grows.Seek(0, io.SeekStart)
				assert.NoError(t, err)
			}
		}
	})
	d.ok("sync", "tree", "c:app")
	assert.Equal(t, "200\n", d.ok("exec", "c", "--", "sh", "-c", "ls app/many | wc -l"))

	d.seen()
	cmd, lines := d.background("sync", "--watch", "--delete", "tree", "c:app")
	for nextLine(t, lines) != "Watching tree." {
	}
	for round := range 2 {
		require.NoError(t, os.RemoveAll(filepath.Join(d.dir, "tree/x")))
		name := "tree/x"
		if round%2 == 0 {
			name = "tree/x/deep/f"
		}
		d.write(name, fmt.Sprint(round))
		require.Eventually(t, func() bool {
			got := d.run("", "read", "c", "app/"+strings.TrimPrefix(name, "tree/"))
			return got.code == 0 && got.stdout == fmt.Sprint(round)
		}, time.Minute, 50*time.Millisecond, name)
	}
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(d.seen(), func(r sandboxtest.Request) bool { return strings.HasSuffix(r.Path, "/extend-timeout") })
	}, time.Minute, 20*time.Millisecond, "the timeout is not extended")
	cancel()
	interrupt(t, cmd)
}
