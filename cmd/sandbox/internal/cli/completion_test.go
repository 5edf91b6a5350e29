package cli

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/files"
)

// TestCompletionsWithoutTheAPI: no name is offered when there is no API, or none that
// can be asked.
func TestCompletionsWithoutTheAPI(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", "")
	for _, address := range []string{"ftp://127.0.0.1:1", "http://127.0.0.1:1/api"} {
		t.Setenv("VERCEL_SANDBOX_BASE_URL", address)
		assert.Empty(t, newApp(nil).sandboxNames(t.Context(), ""), address)
	}
}

// TestProgressLearnsTheTotal: a download begins before it is known how long the file
// is, and tells so once it is.
func TestProgressLearnsTheTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int64
		info, err := fstest.MapFS{"f": {Data: []byte("12345")}}.Stat("f")
		require.NoError(t, err)
		update := files.WithTotal(func(p sandbox.Progress) { told = append(told, p.Total) }, func() (fs.FileInfo, error) { return info, nil })
		for range 2 {
			synctest.Wait()
			update(sandbox.Progress{Total: -1})
		}
		synctest.Wait()
		update(sandbox.Progress{Total: -1})
		assert.EqualValues(t, 5, told[2])
		assert.Nil(t, files.WithTotal(nil, nil))
	})
}
