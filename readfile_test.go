package sandbox_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// io.Copy and Read give the same, for whole files and for those that break off.
func TestReadFileCopied(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 100_000)
	size := len(content)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, "/fs/read") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"sandbox":%s,"session":%s,"routes":[]}`, fmt.Sprintf(cannedSandbox, 0), cannedSession)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(srv.Close)
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL:     srv.URL,
		Credentials: sandbox.StaticCredentials(sandbox.Credentials{Token: "token", TeamID: "team", ProjectID: "project"}),
	})
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)

	read := func(t *testing.T, hide bool) (string, error) {
		rc, err := sb.ReadFile(t.Context(), "/file", nil)
		require.NoError(t, err)
		defer rc.Close()
		var src io.Reader = rc
		if hide {
			src = struct{ io.Reader }{rc}
		}
		var buf bytes.Buffer
		n, err := io.Copy(&buf, src)
		assert.EqualValues(t, buf.Len(), n)
		return buf.String(), err
	}
	for _, hide := range []bool{false, true} {
		got, err := read(t, hide)
		require.NoError(t, err)
		assert.True(t, got == content)
	}
	size++
	for _, hide := range []bool{false, true} {
		got, err := read(t, hide)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		var pathErr *fs.PathError
		require.ErrorAs(t, err, &pathErr)
		assert.Equal(t, "/file", pathErr.Path)
		assert.True(t, got == content)
	}
}
