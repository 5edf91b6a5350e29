package mirror

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit/repository"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// patience is how long something that is expected may take.
const patience = time.Minute

// pair is a directory here and a sandbox.
type pair struct {
	t      *testing.T
	client *sandbox.Client
	sb     *sandbox.Sandbox
	here   string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	client := sandboxtest.New(t, nil).Client()
	sb, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	return &pair{t, client, sb, t.TempDir()}
}

func (p *pair) write(name, text string) { write(p.t, p.here, name, text) }

func (p *pair) there(name string) string {
	p.t.Helper()
	data, err := p.sb.FS().ReadFile(p.t.Context(), "app/"+name)
	require.NoError(p.t, err, name)
	return string(data)
}

// sh runs a script in the sandbox and returns what it prints.
func (p *pair) sh(script string, args ...string) string {
	p.t.Helper()
	done, err := p.sb.RunCommand(p.t.Context(), "sh", append([]string{"-c", script}, args...), nil)
	require.NoError(p.t, err)
	out, err := done.CombinedOutput(p.t.Context())
	require.NoError(p.t, err)
	require.Zero(p.t, done.ExitCode, out)
	return out
}

// synced is what a watch has said.
type synced struct {
	Changes
	err error
}

// watch starts a watch, whose syncs that did something come by the channel.
func (p *pair) watch(o Options, watch func(context.Context, *Options) error) <-chan synced {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	said, done := make(chan synced, 100), make(chan error, 1)
	o.OnSync = func(c Changes, err error) {
		if len(c.Write)+len(c.Delete)+len(c.Mkdir) > 0 || err != nil {
			said <- synced{c, err}
		}
	}
	go func() { done <- watch(ctx, &o) }()
	p.t.Cleanup(func() {
		cancel()
		assert.ErrorIs(p.t, <-done, context.Canceled)
	})
	return said
}

func (p *pair) upload(ctx context.Context, o *Options) error {
	return WatchUpload(ctx, p.sb, p.here, "app", o)
}

func next(t *testing.T, said <-chan synced) synced {
	t.Helper()
	select {
	case s := <-said:
		return s
	case <-time.After(patience):
		require.Fail(t, "nothing is synced")
		panic("unreachable")
	}
}

// TestUploadDownload copies there and back, and says what it did.
func TestUploadDownload(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.write("a", "1")
	p.write("sub/b", "2")
	p.write("skip/c", "3")
	want := Changes{Write: []string{"a", "sub/b"}, Mkdir: []string{"sub"}}
	o := &Options{Exclude: []string{"skip"}, DryRun: true}
	for _, o.DryRun = range []bool{true, false} {
		c, err := Upload(t.Context(), p.sb, p.here, "app", o)
		require.NoError(t, err)
		assert.Equal(t, want, c)
	}
	c, err := Upload(t.Context(), p.sb, p.here, "app", o)
	require.NoError(t, err)
	assert.Equal(t, Changes{}, c)
	back := filepath.Join(t.TempDir(), "new", "back")
	o.DryRun = true
	c, err = Download(t.Context(), p.sb, "app", back, o)
	require.NoError(t, err)
	assert.Equal(t, want, c)
	assert.NoDirExists(t, back)
	c, err = Download(t.Context(), p.sb, "app", back, nil)
	require.NoError(t, err)
	assert.Equal(t, want, c)
	assert.FileExists(t, filepath.Join(back, "sub/b"))

	_, err = Download(t.Context(), p.sb, "nosuch", back, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Upload(t.Context(), p.sb, filepath.Join(back, "nosuch"), "app", &Options{Delete: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, bad := range []*Options{{Exclude: []string{"["}}} {
		_, err = Upload(t.Context(), p.sb, p.here, "app", bad)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
	}
	require.ErrorIs(t, WatchUpload(t.Context(), p.sb, p.here, "", nil), sandbox.ErrInvalid)
	require.ErrorIs(t, WatchDownload(t.Context(), p.sb, "app", "", nil), sandbox.ErrInvalid)
	assert.Equal(t, "1", p.there("a"), "nothing was deleted")
}

// TestRepositories downloads what Git takes for a repository, with and without
// deleting what the sandbox does not have, and asks Git for the status.
func TestRepositories(t *testing.T) {
	p := newPair(t)
	for _, r := range repository.Kinds(t) {
		from := t.TempDir()
		repository.WriteTree(t, from, r.Files)
		require.NoError(t, p.sb.FS().UploadDir(t.Context(), from, r.Name, nil))
		for _, all := range []bool{false, true} {
			folder := r.Folder(t)
			c, err := Download(t.Context(), p.sb, r.Name, folder, &Options{Delete: all})
			require.NoError(t, err, r.Name)
			assert.False(t, r.Status(t, folder), r.Name)
			for name := range r.Here {
				assert.FileExists(t, filepath.Join(folder, name), "%s: what is here stays", r.Name)
			}
			if r.Name != "nested" { // .git is never looked at
				assert.NotEmpty(t, c.LeftOut, r.Name)
			}
			_, err = Upload(t.Context(), p.sb, from, r.Name+" again", nil)
			require.NoError(t, err)
		}
	}
	_, err := p.sb.FS().Stat(t.Context(), "bare again/lib/HEAD")
	assert.NoError(t, err, "an upload has it: nobody of this machine works there")
}

// TestChangesWithinASecond changes a file, but neither its size nor the second of its
// time, after it was copied.
func TestChangesWithinASecond(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	at := time.Unix(1_700_000_000, 1000)
	put := func(text string) {
		p.write("f", text)
		at = at.Add(10 * time.Millisecond)
		require.NoError(t, os.Chtimes(filepath.Join(p.here, "f"), at, at))
	}
	put("1")
	said := p.watch(Options{}, p.upload)
	assert.Equal(t, []string{"f"}, next(t, said).Write)
	for _, text := range []string{"2", "3"} {
		put(text)
		require.Eventually(t, func() bool { return p.there("f") == text }, patience, 10*time.Millisecond)
	}

	back := t.TempDir()
	for text, at := range map[string]string{"4": "2024-01-01 00:00:00.125", "5": "2024-01-01 00:00:00.25"} {
		p.sh(`printf "$0" >app/f; touch -d "$1" app/f`, text, at)
		_, err := Download(t.Context(), p.sb, "app", back, nil)
		require.NoError(t, err)
		data, err := os.ReadFile(filepath.Join(back, "f"))
		require.NoError(t, err)
		assert.Equal(t, text, string(data))
	}
	c, err := Download(t.Context(), p.sb, "app", back, nil)
	require.NoError(t, err)
	assert.Equal(t, Changes{}, c, "once is enough")
}

// TestChangesDuringTheFirstUpload makes a file after the listing, while nothing else
// changes any more.
func TestChangesDuringTheFirstUpload(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.write("first", "1")
	late := func() func(sandbox.Progress) {
		made := false
		return func(sandbox.Progress) {
			if !made {
				made = true
				p.write("late/file", "2")
			}
		}
	}
	said := p.watch(Options{Progress: late()}, p.upload)
	assert.Equal(t, []string{"first"}, next(t, said).Write)
	assert.Equal(t, []string{"late/file"}, next(t, said).Write)
}

// TestWatchedOnceNotIgnored: a directory that is not ignored any more is watched, and
// one that takes the place of another.
func TestWatchedOnceNotIgnored(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.write(".gitignore", "build\n")
	p.write("build/out", "1")
	p.write("other/f", "1")
	said := p.watch(Options{Delete: true}, p.upload)
	assert.Equal(t, []string{".gitignore", "other/f"}, next(t, said).Write)
	p.write(".gitignore", "")
	assert.Equal(t, []string{".gitignore", "build/out"}, next(t, said).Write)
	p.write("build/out", "new")
	assert.Equal(t, []string{"build/out"}, next(t, said).Write)
	require.NoError(t, os.Rename(filepath.Join(p.here, "other"), filepath.Join(t.TempDir(), "moved")))
	p.write("other/f", "new")
	require.Eventually(t, func() bool { return p.there("other/f") == "new" }, patience, 10*time.Millisecond)
	p.write("other/f", "newer")
	require.Eventually(t, func() bool { return p.there("other/f") == "newer" }, patience, 10*time.Millisecond)
}

// TestInTheWay: a watch that must not delete goes on when a file takes the place of a
// directory, and mends it when it can.
func TestInTheWay(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.write("x/f", "1")
	said := p.watch(Options{}, p.upload)
	next(t, said)
	require.NoError(t, os.RemoveAll(filepath.Join(p.here, "x")))
	p.write("x", "a file")
	for i := range 2 * maxFailures {
		p.write("y", string(rune('a'+i)))
		s := next(t, said)
		require.ErrorIs(t, s.err, ErrInTheWay)
	}
	require.NoError(t, os.Remove(filepath.Join(p.here, "x")))
	for s := next(t, said); s.err != nil; s = next(t, said) {
		require.ErrorIs(t, s.err, ErrInTheWay)
	}
	assert.NotEmpty(t, p.there("y"))
}

// TestGoneWhilePacked removes a file of the sandbox between its listing and the
// archive.
func TestGoneWhilePacked(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.sh(`mkdir -p app bin; echo 1 >app/kept; echo 2 >app/gone
printf '#!/bin/sh\nrm -f gone\nexec %s "$@"\n' "$(command -v tar)" >bin/tar; chmod 755 bin/tar`)
	path := p.sh(`printf %s "$PWD/bin:$PATH"`)
	require.NoError(t, p.sb.Update(t.Context(), &sandbox.UpdateOptions{Env: sandbox.Env{"PATH": path}}))
	c, err := Download(t.Context(), p.sb, "app", p.here, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"kept"}, c.Write)
	assert.FileExists(t, filepath.Join(p.here, "kept"))
	assert.NoFileExists(t, filepath.Join(p.here, "gone"))
}

// TestWatchDownload follows a sandbox, until it is gone.
func TestWatchDownload(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	require.NoError(t, p.sb.FS().WriteFile(t.Context(), "app/a", []byte("1"), 0o644))
	said := make(chan Changes, 10)
	done := make(chan error, 1)
	var deleting atomic.Bool // a sync under way may fail in other ways, and is tried again
	go func() {
		done <- WatchDownload(t.Context(), p.sb, "app", p.here, &Options{OnSync: func(c Changes, err error) {
			if !deleting.Load() {
				assert.NoError(t, err)
			}
			if len(c.Write) > 0 {
				said <- c
			}
		}})
	}()
	assert.Equal(t, []string{"a"}, (<-said).Write)
	require.NoError(t, p.sb.FS().WriteFile(t.Context(), "app/b", []byte("2"), 0o644))
	assert.Equal(t, []string{"b"}, (<-said).Write)
	other, err := p.client.Get(t.Context(), p.sb.Name(), nil)
	require.NoError(t, err)
	deleting.Store(true)
	require.NoError(t, other.Delete(t.Context(), nil))
	require.ErrorIs(t, <-done, sandbox.ErrNotFound)
}
