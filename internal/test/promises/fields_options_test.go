package promises_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/preview"
	"github.com/go-vercel/sandbox/terminal"
)

// onlyHere are methods with options that are in no request, because this SDK implements
// them.
var onlyHere = []method{
	{name: "DownloadDir", opts: &sandbox.DownloadDirOptions{}, held: []string{"Exclude", "MaxEntries", "MaxBytes", "OutsideLinks", "DotGit", "LeftOut", "Progress"}, local: local{"Include": func(t *testing.T, w *world, _ method) {
		makeBox(t, w)
		require.NoError(t, w.box.WriteFiles(t.Context(), []sandbox.File{{Path: "d/a.go"}, {Path: "d/b.txt"}, {Path: "d/e/c.go"}}, nil))
		dst := t.TempDir()
		require.NoError(t, w.box.FS().DownloadDir(t.Context(), "d", dst, &sandbox.DownloadDirOptions{Include: []string{"*.go"}}))
		var got []string
		require.NoError(t, filepath.WalkDir(dst, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				got = append(got, strings.TrimPrefix(filepath.ToSlash(name), filepath.ToSlash(dst)))
			}
			return err
		}))
		assert.Equal(t, []string{"/a.go", "/e/c.go"}, got)
	}}},
	{name: "DownloadFile", opts: &sandbox.DownloadFileOptions{}, held: []string{"MkdirAll", "MaxBytes", "Progress"}, local: local{"Cwd": func(t *testing.T, w *world, _ method) {
		file(t, w)
		require.NoError(t, w.box.FS().WriteFile(t.Context(), "/tmp/field.txt", []byte("there"), 0o644))
		dst := filepath.Join(t.TempDir(), "x")
		require.NoError(t, w.box.FS().DownloadFile(t.Context(), "field.txt", dst, &sandbox.DownloadFileOptions{Cwd: "/tmp"}))
		data, err := os.ReadFile(dst)
		require.NoError(t, err)
		assert.Equal(t, "there", string(data))
	}}},
	{name: "UploadDir", opts: &sandbox.UploadOptions{}, held: []string{"Include", "Exclude", "OutsideLinks", "LeftOut", "Progress"}},
	{name: "WriteFiles", opts: &sandbox.WriteFilesOptions{}, held: []string{"Progress"}},
	{name: "Files", opts: &sandbox.File{}, local: local{
		"Path": written(sandbox.File{Content: []byte("x")}, "x", 0o644), "Content": written(sandbox.File{Content: []byte("bytes")}, "bytes", 0o644),
		"Reader": written(sandbox.File{Reader: strings.NewReader("read")}, "read", 0o644),
		"Mode":   written(sandbox.File{Content: []byte("x"), Mode: new(os.FileMode(0o751))}, "x", 0o751),
		"ModTime": func(t *testing.T, w *world, m method) {
			at := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
			written(sandbox.File{Content: []byte("x"), ModTime: at}, "x", 0o644)(t, w, m)
			info, err := w.box.FS().Stat(t.Context(), "f")
			require.NoError(t, err)
			assert.True(t, at.Equal(info.ModTime()), "%v", info.ModTime())
		},
	}},
	{name: "Writer", opts: &sandbox.WriterOptions{}, held: []string{"Mode"}, local: local{
		"Progress": func(t *testing.T, w *world, _ method) {
			makeBox(t, w)
			var last sandbox.Progress
			f, err := w.box.FS().Create(t.Context(), "f", &sandbox.WriterOptions{Progress: func(p sandbox.Progress) { last = p }})
			require.NoError(t, err)
			_, err = f.Write([]byte("12345"))
			require.NoError(t, errors.Join(err, f.Close()))
			assert.EqualValues(t, 5, last.Done)
		},
	}},
	{name: "KeepAlive", opts: &sandbox.KeepAliveOptions{}, held: []string{"Margin", "Step"}},
	{name: "WaitForPort", opts: &sandbox.WaitForPortOptions{}, held: []string{"Path", "Status", "HTTPClient"}},
	{name: "Shell", opts: &terminal.ShellOptions{}, held: []string{"Command", "Args", "Env", "Cwd", "Sudo", "Cols", "Rows"}},
	{name: "EnsureCommand", opts: &sandbox.EnsureOptions{}, held: []string{"Port", "Log", "Cwd", "Env", "Sudo"}},
	{name: "Transport", opts: &preview.Options{}, held: []string{"MaxWait", "Base", "Idle", "Start"}},
	{name: "Reattach", opts: &sandbox.ReattachOptions{}, held: []string{"Attempts", "Wait"}, plain: plain{"Limit": reattachLimit}},
	{name: "NewClient", opts: &sandbox.ClientOptions{}, held: []string{"AllowHTTP", "Hooks", "MaxRetries", "RetryWait", "Reattach.Attempts", "Reattach.Wait"}, local: local{
		"ServerCommandIDs": func(t *testing.T, w *world, _ method) {
			makeBox(t, w)
			for theirs, sent := range map[bool]bool{false: true, true: false} {
				c := testkit.Client(t, w.srv, sandbox.ClientOptions{ServerCommandIDs: theirs})
				sb, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				testkit.Output(t, sb, "true")
				all := w.srv.Requests()
				assert.Equal(t, sent, all[len(all)-1].Query.Has("cmdId"))
			}
		},
	}, plain: plain{
		"Reattach.Limit": reattachLimit, "Credentials": clientOption, "BaseURL": clientOption, "HTTPClient": clientOption, "UserAgent": clientOption, "Logger": clientOption,
		"Observer": clientOption, "MaxRateLimitWait": rateLimitWait,
	}},
}

func TestOnlyHere(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	for _, m := range onlyHere {
		t.Run(m.name, func(t *testing.T) { m.test(t) })
	}
}

// written returns a test that a file arrives with this content and mode.
func written(f sandbox.File, content string, mode os.FileMode) func(*testing.T, *world, method) {
	return func(t *testing.T, w *world, _ method) {
		makeBox(t, w)
		f.Path = "f"
		require.NoError(t, w.box.WriteFiles(t.Context(), []sandbox.File{f}, nil))
		data, err := w.box.FS().ReadFile(t.Context(), "f")
		require.NoError(t, err)
		assert.Equal(t, content, string(data))
		info, err := w.box.FS().Stat(t.Context(), "f")
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm())
	}
}

// rateLimitWait tests how long a request waits for a spent limit.
func rateLimitWait(t *testing.T) {
	for longest, sent := range map[time.Duration]int{0: 2, 10 * time.Second: 1, time.Hour: 2, -1: 2} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			c, err := sandbox.NewClient(&sandbox.ClientOptions{
				Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}), BaseURL: "https://api.test", MaxRateLimitWait: longest,
				HTTPClient: &http.Client{Transport: canned.API(func(r *http.Request) (*http.Response, error) {
					n++
					resp := canned.JSON(200, canned.RunningSandbox)
					resp.Header.Set("X-RateLimit-Limit", "1")
					resp.Header.Set("X-RateLimit-Remaining", "0")
					resp.Header.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10))
					return resp, nil
				})},
			})
			require.NoError(t, err)
			began := time.Now()
			_, err = c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			_, err = c.Get(t.Context(), "box", nil)
			assert.Equal(t, sent == 1, errors.Is(err, sandbox.ErrRateLimited), "%v", err)
			assert.Equal(t, sent, n)
			assert.Equal(t, longest >= 0 && sent == 2, time.Since(began) >= time.Minute, "%v", longest)
		})
	}
}

// reattachLimit tests how long the client tries to repair a stream.
func reattachLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := sandbox.NewClient(&sandbox.ClientOptions{
			Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}), BaseURL: "https://api.test",
			MaxRetries: -1, Reattach: &sandbox.ReattachOptions{Attempts: 1000, Limit: 30 * time.Second, Wait: time.Second},
			HTTPClient: &http.Client{Transport: canned.API(func(r *http.Request) (*http.Response, error) {
				switch {
				case testkit.IsRun(r):
					return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun)), nil
				case r.Method == http.MethodPost:
					return canned.JSON(200, canned.RunningSandbox), nil
				}
				return canned.JSON(502, ""), nil
			})},
		})
		require.NoError(t, err)
		sb, err := c.Create(t.Context(), nil)
		require.NoError(t, err)
		began := time.Now()
		_, err = sb.RunCommand(t.Context(), "x", nil, nil)
		var lost *sandbox.StreamError
		require.ErrorAs(t, err, &lost)
		took := time.Since(began)
		assert.True(t, 30*time.Second <= took && took < time.Minute, "%v", took) // the last pause may exceed the limit
	})
}

// clientOption tests the effect of each field on one request.
func clientOption(t *testing.T) {
	var log strings.Builder
	var seen *http.Request
	events := &testkit.Events{}
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
		BaseURL:     "https://api.test/base", UserAgent: "mine/1", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observer: events,
		HTTPClient: &http.Client{Transport: canned.API(func(r *http.Request) (*http.Response, error) {
			seen = r
			resp := canned.JSON(200, canned.RunningSandbox)
			resp.Header.Set("X-RateLimit-Limit", "10")
			resp.Header.Set("X-RateLimit-Remaining", "7")
			resp.Header.Set("X-RateLimit-Reset", "1900000000")
			return resp, nil
		})},
	})
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "box", nil)
	require.NoError(t, err)
	assert.Equal(t, "https://api.test/base/v2/sandboxes/box", seen.URL.Scheme+"://"+seen.URL.Host+seen.URL.Path)
	assert.Equal(t, "Bearer tok", seen.Header.Get("Authorization"))
	assert.Equal(t, []string{"team", "prj"}, []string{seen.URL.Query().Get("teamId"), seen.URL.Query().Get("projectId")})
	assert.True(t, strings.HasPrefix(seen.UserAgent(), "mine/1 "), seen.UserAgent())
	assert.Contains(t, log.String(), "get sandbox")
	assert.Contains(t, log.String(), "rateRemaining=7 rateLimit=10")
	assert.Len(t, events.Ended("request"), 1)
	assert.Len(t, events.Ended(), 2, "with the operation")
}
