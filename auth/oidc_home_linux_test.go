package auth_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// TestHomeOfOthers: a home directory without access counts as one without a login. HOME may be that
// of root in programs that sudo starts, or in containers. A login that can't be read is an error.
func TestHomeOfOthers(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(home), 0o755))
	dir := filepath.Join(home, "own")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "auth.json"), []byte(`{"token":"t"}`), 0))
	host := oidc.NewHost(nil, func(key string) string { return map[string]string{"VERCEL_AUTH_CONFIG_DIR": dir}[key] }, home)
	asNobody(t, func() {
		_, err := host.Login(t.Context(), 0, "")
		assert.ErrorIs(t, err, os.ErrPermission)
	})
	require.NoError(t, os.Chmod(dir, 0))
	asNobody(t, func() {
		_, err := host.Login(t.Context(), 0, "")
		assert.ErrorIs(t, err, oidc.ErrNotLoggedIn)
	})
	require.NoError(t, os.Chmod(dir, 0o700))
}

// asNobody calls do without root's file permissions.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if os.Geteuid() == 0 {
			assert.NoError(t, syscall.Setfsuid(65534))
		}
		do()
	}()
	<-done
}
