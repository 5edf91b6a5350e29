package canned_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

// ran returns a sandbox in which every command writes the texts and exits with the code.
func ran(t *testing.T, stdout, stderr string, code int) *sandbox.Sandbox {
	t.Helper()
	return canned.API(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/cmd") {
			return canned.Ran(stdout, stderr, code), nil
		}
		return canned.JSON(200, canned.Exited(code)), nil
	}).Sandbox(t)
}

// TestInvalidProgramOutput: if a helper program prints invalid output, short or long, the call fails.
func TestInvalidProgramOutput(t *testing.T) {
	for _, out := range []string{"", "f 644 1 0 0 0 0 0 1 1 1 1 ../evil\x00", "\x00", "nonsense", strings.Repeat("x", 1<<20)} {
		synctest.Test(t, func(t *testing.T) {
			sb := ran(t, out, "", 0)
			_, err := sb.FS().Stat(t.Context(), "x")
			assert.Error(t, err, "%.20q", out)
			list, err := sb.FS().ReadDir(t.Context(), "x")
			if out != "" {
				assert.Error(t, err, "%.20q", out)
			}
			assert.Empty(t, list)
		})
	}
}

// TestDownloadDirScripted downloads archives that no tar would create.
func TestDownloadDirScripted(t *testing.T) {
	t.Parallel()
	dst := filepath.Join(t.TempDir(), "dst")
	for name, out := range map[string]string{
		"nothing":       "",
		"no base64":     "!!!!",
		"no gzip":       "AAAAAAAAAAAAAAAAAAAA\n",
		"cut gzip":      "H4sIAAAAAAAAA+3RMQ4CMQwAwfwkP0B2lATec0V6\n",
		"only the head": "H4sIAAAAAAAA/w==\n",
	} {
		err := ran(t, out, "", 0).FS().DownloadDir(t.Context(), "d", dst, nil)
		assert.Error(t, err, name)
	}
	for _, out := range []string{"", "H4sIAAAAAAAA/w==\n"} { // tar fails before or after it has written
		err := ran(t, out, "bash: line 1: cd: d: Permission denied\n", 1).FS().DownloadDir(t.Context(), "d", dst, nil)
		assert.ErrorIs(t, err, fs.ErrPermission)
		pathErr, ok := errors.AsType[*fs.PathError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, "d", pathErr.Path)
	}
}

// TestDownloadCompressed: if a response is compressed although the client did not ask for
// it, the call fails.
func TestDownloadCompressed(t *testing.T) {
	t.Parallel()
	sb := canned.API(func(*http.Request) (*http.Response, error) {
		resp := canned.Response(200, "application/octet-stream", strings.NewReader("x"))
		resp.Header.Set("Content-Encoding", "gzip")
		return resp, nil
	}).Sandbox(t)
	_, err := sb.FS().ReadFile(t.Context(), "f")
	assert.ErrorContains(t, err, "gzip")
	dir := t.TempDir()
	assert.ErrorContains(t, sb.FS().DownloadFile(t.Context(), "f", filepath.Join(dir, "f"), nil), "gzip")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestBinaryWithoutPrograms: if the output can't be encoded, the error says so.
func TestBinaryWithoutPrograms(t *testing.T) {
	t.Parallel()
	_, err := ran(t, "", "Binary needs the programs dd and base64\n", 127).RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{Binary: true})
	var broken *sandbox.StreamError
	require.ErrorAs(t, err, &broken)
	assert.ErrorContains(t, err, "needs the programs dd and base64")
}

// writerWithError is a writer that fails with err.
type writerWithError struct{ err error }

func (f writerWithError) Write([]byte) (int, error) { return 0, f.err }

// TestWriterFails: the error of a writer is returned to the caller.
func TestWriterFails(t *testing.T) {
	t.Parallel()
	sb, full := ran(t, "x\n", "", 0), errors.New("disk full")
	_, err := sb.RunCommand(t.Context(), "echo", []string{"x"}, &sandbox.CommandOptions{Stdout: writerWithError{full}})
	require.ErrorIs(t, err, full)
	cmd, err := sb.StartCommand(t.Context(), "echo", []string{"x"}, &sandbox.StartOptions{Stdout: writerWithError{full}})
	require.NoError(t, err)
	done, err := cmd.Wait(t.Context())
	require.ErrorIs(t, err, full)
	assert.Equal(t, 0, done.ExitCode)
}

// TestResultPrints: a printed result names the command and how it ended, but no
// arguments, which may be secret.
func TestResultPrints(t *testing.T) {
	t.Parallel()
	done, err := ran(t, "", "", 3).RunCommand(t.Context(), "x", []string{"-c", "exit 3 # hunter2"}, nil)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprint(done), fmt.Sprint(*done), fmt.Sprintf("%#v", done)} {
		assert.Regexp(t, `command \w+ \(x\)`, text)
		assert.Contains(t, text, "3")
		assert.NotContains(t, text, "hunter2")
	}
}
