package settings_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
	"github.com/go-vercel/sandbox/internal/oidc"
)

// TestHomeOfOthers: a home that can't be entered, as that of root is for whom sudo
// and containers run programs as, is none. A file that can't be read is one.
func TestHomeOfOthers(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(home), 0o755))
	dir := filepath.Join(home, "own")
	login := filepath.Join(dir, "auth.json")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.toml"), []byte("profile = 'p'"), 0))
	require.NoError(t, os.WriteFile(login, []byte(`{"token":"t"}`), 0))
	host := oidc.NewHost(nil, func(key string) string { return map[string]string{"VERCEL_AUTH_CONFIG_DIR": dir}[key] }, home)
	look := func() (config, login error) {
		_, config = settings.Dirs{Config: dir, State: dir}.ReadConfig()
		_, login = host.Login(t.Context(), 0, "")
		return config, login
	}
	asNobody(t, func() {
		config, login := look()
		assert.ErrorIs(t, config, os.ErrPermission)
		assert.ErrorIs(t, login, os.ErrPermission)
	})
	require.NoError(t, os.Chmod(dir, 0))
	asNobody(t, func() {
		config, login := look()
		assert.NoError(t, config)
		assert.ErrorIs(t, login, oidc.ErrNotLoggedIn)
	})
	require.NoError(t, os.Chmod(dir, 0o700))
}

// asNobody does something without the rights of root on files.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // which ends with the goroutine
		if os.Geteuid() == 0 {
			assert.NoError(t, syscall.Setfsuid(65534))
		}
		do()
	}()
	<-done
}
