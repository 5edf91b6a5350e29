package settings_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
)

func setProfile(name string, p settings.Profile) func(*settings.Config) error {
	return func(c *settings.Config) error {
		c.Profiles[name] = p
		return nil
	}
}

// TestChangesAtOnce loses none of the changes that several make at the same time.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	dirs := settings.Dirs{Config: t.TempDir()}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			assert.NoError(t, dirs.ChangeConfig(setProfile(fmt.Sprint("p", i), settings.Profile{Team: fmt.Sprint("t", i)})))
		})
	}
	wg.Wait()
	c, err := dirs.ReadConfig()
	require.NoError(t, err)
	assert.Len(t, c.Profiles, 24)
}

// TestWhatStays: comments, unknown keys, the order and a link to the file stay.
func TestWhatStays(t *testing.T) {
	t.Parallel()
	dirs := settings.Dirs{Config: t.TempDir()}
	at := filepath.Join(t.TempDir(), "dotfiles.toml")
	require.NoError(t, os.WriteFile(at, []byte(`# mine
profile = "work" # for now
future = [1, 2]

[profiles.work]
team = "t" # the team
later = true

# of the other customer
[profiles."a b"]
project = "p"

[editor]
x = 1`), 0o600))
	name := filepath.Join(dirs.Config, "config.toml")
	require.NoError(t, os.Symlink(at, name))
	require.NoError(t, dirs.ChangeConfig(setProfile("work", settings.Profile{Team: "t", Project: "q\"x", Token: "k"})))
	require.NoError(t, dirs.ChangeConfig(setProfile("new", settings.Profile{APIURL: "http://x"})))
	require.NoError(t, dirs.ChangeConfig(func(c *settings.Config) error {
		c.Profile = ""
		delete(c.Profiles, "a b")
		return nil
	}))
	data, err := os.ReadFile(at)
	require.NoError(t, err)
	assert.Equal(t, `# mine
future = [1, 2]

[profiles.work]
team = "t" # the team
later = true
project = 'q"x'
token = 'k'

# of the other customer
[editor]
x = 1
[profiles.new]
api_url = 'http://x'
`, string(data))
	info, err := os.Lstat(name)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSymlink, info.Mode().Type())

	// What says it in another way is left to an editor.
	for _, text := range []string{"profiles = {work = {team = 't'}}", "profiles.work.team = 't'", "[profiles]\nwork = {team = 't'}"} {
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		require.ErrorContains(t, dirs.ChangeConfig(setProfile("work", settings.Profile{Team: "other"})), "only an editor", text)
		data, err := os.ReadFile(at)
		require.NoError(t, err)
		assert.Equal(t, text, string(data))
	}
	require.NoError(t, os.WriteFile(at, []byte("# one\nprofile = [\n"), 0o600))
	_, err = dirs.ReadConfig()
	require.ErrorContains(t, err, "config.toml:2:")
}
