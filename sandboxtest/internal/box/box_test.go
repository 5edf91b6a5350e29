package box

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testmain"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

func TestMain(m *testing.M) {
	needs.Overlap()
	testmain.Main(withShared{m})
}

// shared has the hosts that tests share, by mode, and a running sandbox of each.
var shared struct {
	sync.Mutex
	hosts map[Mode]*Host
	boxes map[Mode]*Box
}

// withShared closes the shared hosts after the tests.
type withShared struct{ tests *testing.M }

func (m withShared) Run() int {
	shared.hosts, shared.boxes = make(map[Mode]*Host), make(map[Mode]*Box)
	code := m.tests.Run()
	for mode, h := range shared.hosts {
		if err := h.Close(); err != nil {
			fmt.Fprintln(os.Stderr, mode, err)
			code = 1
		}
	}
	return code
}

// sharedHost returns the host that tests share. Use it unless a test closes or changes the
// host, or counts what is in it.
func sharedHost(t testing.TB, mode Mode) *Host {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.hosts[mode] == nil {
		shared.hosts[mode] = newHost(t, Options{Mode: mode, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	}
	return shared.hosts[mode]
}

// eachMode runs a test on the shared host of every mode that this machine supports.
func eachMode(t *testing.T, f func(t *testing.T, h *Host)) {
	for _, mode := range []Mode{Namespace, Folder} {
		t.Run(string(mode), func(t *testing.T) { f(t, sharedHost(t, mode)) })
	}
}

// eachNewHost runs a test on a new host of every mode that this machine supports.
func eachNewHost(t *testing.T, f func(t *testing.T, h *Host)) {
	for _, mode := range []Mode{Namespace, Folder} {
		t.Run(string(mode), func(t *testing.T) { f(t, openHost(t, Options{Mode: mode})) })
	}
}

// eachBox runs a test of commands in the shared sandbox of every mode. Other tests run
// commands there at the same time.
func eachBox(t *testing.T, f func(t *testing.T, b *Box)) {
	eachMode(t, func(t *testing.T, h *Host) { f(t, sharedBox(t, h)) })
}

func sharedBox(t testing.TB, h *Host) *Box {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.boxes[h.Mode()] == nil {
		shared.boxes[h.Mode()] = newBox(t, h, backend.Config{})
	}
	return shared.boxes[h.Mode()]
}

// openHost opens a host that is closed at the end of the test.
func openHost(t testing.TB, opts Options) *Host {
	t.Helper()
	opts.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	h := newHost(t, opts)
	t.Cleanup(func() { assert.NoError(t, h.Close()) })
	return h
}

// newHost skips the test if this machine does not support the mode.
func newHost(t testing.TB, opts Options) *Host {
	t.Helper()
	h, err := NewHost(opts)
	if errors.Is(err, ErrUnavailable) {
		needs.Other(t, "%v", err)
	}
	require.NoError(t, err)
	return h
}

func newBox(t testing.TB, h *Host, cfg backend.Config) *Box {
	t.Helper()
	b, err := h.New(context.Background(), cfg)
	require.NoError(t, err)
	return b
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// run runs a command to its end.
func run(t testing.TB, b *Box, spec backend.Spec) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut buffer
	spec.Stdout, spec.Stderr = &out, &errOut
	p, err := b.Start(context.Background(), spec)
	if failure, ok := errors.AsType[*backend.LaunchError](err); ok {
		return "", failure.Message, failure.Code
	}
	require.NoError(t, err)
	code = p.Wait()
	return out.String(), errOut.String(), code
}

// sh runs a shell script, which must succeed, and returns its output.
func sh(t testing.TB, b *Box, script string, args ...string) string {
	t.Helper()
	out, errOut, code := run(t, b, backend.Spec{Path: "sh", Args: append([]string{"-c", script, "sh"}, args...)})
	require.Zero(t, code, "%s%s", out, errOut)
	return strings.TrimSpace(out)
}

func read(t testing.TB, b *Box, path string) string {
	t.Helper()
	r, err := b.ReadFile(path, "")
	require.NoError(t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(data)
}

// archive returns a gzipped tar archive.
func archive(t testing.TB, entries ...tar.Header) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	for _, hdr := range entries {
		var data []byte
		if hdr.Typeflag == tar.TypeReg || hdr.Typeflag == 0 {
			hdr.Typeflag, data = tar.TypeReg, []byte("data of "+hdr.Name)
			hdr.Size = int64(len(data))
		}
		if hdr.Mode == 0 {
			hdr.Mode = 0o644
		}
		require.NoError(t, tw.WriteHeader(&hdr))
		_, err := tw.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	require.NoError(t, zw.Close())
	return &buf
}

func TestCommand(t *testing.T) {
	t.Parallel()
	eachBox(t, func(t *testing.T, b *Box) {
		out, errOut, code := run(t, b, backend.Spec{
			Path: "sh", Args: []string{"-c", `printf '%s|' "$1" "$GREETING"; echo oops >&2; pwd; exit 7`, "sh", "a b"},
			Env: []string{"GREETING=hello"},
		})
		assert.Equal(t, 7, code)
		assert.True(t, strings.HasPrefix(out, "a b|hello|"), out)
		assert.Contains(t, out, backend.WorkDir)
		assert.Equal(t, "oops\n", errOut)
	})
}
