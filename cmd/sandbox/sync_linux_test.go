package main

import (
	"bufio"
	"bytes"
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

	"github.com/go-vercel/sandbox"
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
	assert.Equal(t, "200\n", d.ok("exec", "--no-extend-timeout", "c", "--", "sh", "-c", "ls app/many | wc -l"))

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

// TestLongCommand: a session does not end under a command that exec or run waits for,
// unless that was asked for.
func TestLongCommand(t *testing.T) {
	t.Parallel()
	const waits = "echo up >&2; until [ -e go ]; do sleep 0.1; done; echo done"
	for name, row := range map[string]struct {
		args    []string
		extends bool
	}{
		"exec":                {[]string{"exec", "c"}, true},
		"exec -i":             {[]string{"exec", "-i", "c"}, true},
		"run":                 {[]string{"run", "--name", "c"}, true},
		"exec, not to extend": {[]string{"exec", "--no-extend-timeout", "c"}, false},
		"run with a limit":    {[]string{"run", "--name", "c", "--timeout", "5s"}, false},
		"run, not to extend":  {[]string{"run", "--name", "c", "--no-extend-timeout"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, nil)
			sb, err := d.server.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "c", Timeout: 9 * time.Second})
			require.NoError(t, err)
			cmd := d.command(t.Context(), append(row.args, "--no-echo", "--", "sh", "-c", waits)...)
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			for lines := bufio.NewScanner(stderr); nextLine(t, lines) != "up"; {
			}
			extended := func() bool {
				return slices.ContainsFunc(d.server.Requests(), func(r sandboxtest.Request) bool { return strings.HasSuffix(r.Path, "/extend-timeout") })
			}
			if row.extends {
				require.Eventually(t, extended, time.Minute, 20*time.Millisecond, "the timeout is not extended")
			}
			d.server.Advance(4 * time.Minute)
			if row.extends {
				require.NoError(t, sb.FS().WriteFile(t.Context(), "go", nil, 0o600))
			}
			_, _ = io.Copy(io.Discard, stderr)
			err = cmd.Wait()
			if !row.extends {
				assert.Error(t, err)
				assert.False(t, extended())
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, "done\n", stdout.String())
		})
	}
}
