package box

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// usualLogins are files in homes in which tools store keys, logins and history.
var usualLogins = strings.Fields(`
	.pulumi/credentials.json .m2/settings.xml .gradle/gradle.properties .cache/huggingface/token .huggingface/token .config/rclone/rclone.conf .s3cfg
	.boto .my.cnf .mysql_history .psql_history .python_history .node_repl_history .local/share/fish/fish_history .config/github-copilot/hosts.json
	.config/containers/auth.json .config/sops/age/keys.txt .config/hub .config/glab-cli/config.yml .config/doctl/config.yaml
	.config/configstore/firebase-tools.json .config/netlify/config.json .config/stripe/config.toml .config/solana/id.json
	.config/Code/User/globalStorage/state.vscdb .config/Cursor/auth.json .config/pip/pip.conf .pip/pip.conf .config/pypoetry/auth.toml
	.composer/auth.json .bundle/config .nuget/NuGet/NuGet.Config .oci/config .databrickscfg .snowsql/config .dbt/profiles.yml .kaggle/kaggle.json
	.fly/config.yml .railway/config.json .supabase/access-token .wrangler/config/default.toml .config/.wrangler/config/default.toml .cloudflared/cert.pem
	.ngrok2/ngrok.yml .config/ngrok/ngrok.yml .aider.conf.yml .config/goose/secrets.yaml .ollama/id_ed25519 .thunderbird/logins.json
	.vscode-server/data/User/settings.json .terraformrc .config/helm/repositories.yaml .helm/repository.yaml .docker/contexts/tls/key.pem
	.config/heroku/config.json .envrc .bashrc .zshrc .profile .zshenv .config/fish/config.fish .config/environment.d/10.conf .subversion/auth/x .hgrc
	.config/filezilla/sitemanager.xml .lftprc .ssh/id_rsa .aws/credentials .npmrc .netrc .config/gh/hosts.yml .kube/config .docker/config.json
	.git-credentials .pypirc .claude.json .cargo/credentials.toml .gnupg/x .vault-token
	.azure/msal_token_cache.json .codex/auth.json .gemini/oauth_creds.json .local/share/keyrings/login.keyring .mozilla/firefox/x/logins.json
	.local/share/com.vercel.cli/auth.json .config/sandbox-cli/config.toml .local/state/sandbox-cli/daemon/socket .cache/sandbox-sessions/token
	.cargo/credentials .local/share/opencode/auth.json a-tool-of-tomorrow/token .a-tool-of-tomorrow dotfiles/netrc project/.env
`)

// TestPrivateFiles: a sandbox sees the machine's files, but only the parts of homes that
// programs need. Even as root it sees no logins, neither existing nor later ones.
func TestPrivateFiles(t *testing.T) {
	real, err := os.UserHomeDir()
	require.NoError(t, err)
	// A sandbox has its own directories there.
	hidden := func(dir string) bool { return strings.HasPrefix(real+"/", dir+"/") }
	if slices.ContainsFunc([]string{"/tmp", "/mnt", "/media", "/srv", "/run"}, hidden) {
		needs.Other(t, "sandboxes don't show this machine's %v", real)
	}
	outer, err := os.MkdirTemp(real, ".sandbox-test-home-") //nolint:usetesting // t.TempDir is below /tmp
	if err != nil {
		needs.Other(t, "no home to have secrets in: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(outer)) })
	t.Setenv("HOME", outer) // the real home stays private, too
	home := filepath.Join(real, filepath.Base(outer))
	write := func(mode os.FileMode, text string, names ...string) {
		t.Helper()
		for _, name := range names {
			name = filepath.Join(home, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, []byte(text), mode))
		}
	}
	assert.Greater(t, len(usualLogins), 79)
	write(0o644, "secret\n", usualLogins...)
	write(0o644, "secret\n", "elsewhere/sandbox-cli/config.toml")
	require.NoError(t, os.Symlink("dotfiles/netrc", filepath.Join(home, "linked-netrc")))
	require.NoError(t, os.Symlink(".", filepath.Join(home, "sdk")), "a link to the whole home")
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "later", "data"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "elsewhere"))
	// Programs, with the files that they need, in a home that is closed to others.
	const script, calls = "#!/bin/sh\necho tool\n", "#!/bin/sh\ncat \"${0%/bin/*}/lib/text\"\n"
	write(0o755, script, "closed/bin/tool-of-path", ".nvm/bin/tool-of-nvm", "mine/tool-of-mine")
	write(0o755, script, ".pyenv/bin/tool-of-nobody")
	write(0o755, calls, "prefix/bin/tool-with-library")
	write(0o644, "library\n", "prefix/lib/text")
	write(0o644, "secret\n", "closed/secret", "prefix/secret", "prefix/etc/secret")
	require.NoError(t, os.Chmod(filepath.Join(home, "closed"), 0o700))
	t.Setenv("PATH", strings.Join([]string{filepath.Join(home, "closed/bin"), filepath.Join(home, "prefix/bin"), os.Getenv("PATH")}, ":"))
	// The host's own directory may be in a home, and so may directories of the process that
	// starts it.
	write(0o600, "secret\n", "mine/beside/key")
	dirs := []string{"mine/state", ".local/state/sandbox-cli/own", ".cache/sandbox-sessions/emulator"}
	if !needs.Slow() {
		dirs = dirs[:1]
	}
	for _, dir := range dirs {
		write(0o600, "secret\n", dir+"/state.json")
		h := openHost(t, Options{Mode: Namespace, Dir: filepath.Join(home, dir, "machines"), Hidden: []string{filepath.Join(home, dir), filepath.Join(home, "mine/beside")}, HomeFolders: []string{"mine", ".nvm", "sdk", "../" + filepath.Base(home) + "/dotfiles", "/dotfiles", ".", ""}})
		b := newBox(t, h, backend.Config{})
		try := func(user, script string) string {
			out, errOut, _ := run(t, b, backend.Spec{Path: "sh", Args: []string{"-c", script, "sh", home, strings.Join(usualLogins, " ")}, User: user})
			return out + errOut
		}
		for _, user := range []string{"", backend.RootUser} {
			assert.Equal(t, "tool\ntool\ntool\nlibrary\n", try(user, `tool-of-path; "$1/.nvm/bin/tool-of-nvm"; "$1/mine/tool-of-mine"; tool-with-library`), "user %q", user)
			assert.Contains(t, try(user, `"$1/.pyenv/bin/tool-of-nobody"`), "not found")
			assert.Contains(t, try(user, `touch "$1/.nvm/new"`), "Read-only file system")
			assert.Empty(t, try(user, `for name in $2; do test ! -e "$1/$name" || echo "$name"; done; grep -rs secret "$1"; cat "$1/linked-netrc" "$1/sdk/.netrc" 2>/dev/null`), "user %q", user)
			if real != "/root" || user == backend.RootUser {
				assert.Empty(t, try(user, `test ! -e "$1/../.bashrc" || ls -A "$1/.."; grep -s . /root/.*rc /root/.profile`), "the home of the account")
			}
		}
		// Creating a namespace uncovers nothing.
		assert.NotContains(t, try(backend.RootUser, `cd /tmp && mkdir a b c && unshare -Urm sh -c '
			umount -l "$1"; mount --bind / a; mount -t overlay -o lowerdir=/ o b; mount --rbind / c; umount -l "c/$1"
			grep -rs secret "$1" "a/$1" "b/$1" "c/$1"' sh "$1"`), "secret")
		// The next host does not hide this directory.
		require.NoError(t, os.Remove(filepath.Join(home, dir, "state.json")))
		if h.Rootless() {
			continue // a home is read-only there
		}
		assert.Equal(t, "own\nown\n", try(backend.RootUser, `cd "$1" && mkdir .ssh && echo own > .ssh/config && echo own > .npmrc && cat .ssh/* .npmrc`))

		// A login that is created while sandboxes run is as private as earlier ones.
		write(0o644, "secret\n", "linked/config.json", "later/data/com.vercel.cli/auth.json", "made-later", ".config/made-later", ".made/later")
		for _, box := range []*Box{b, newBox(t, h, backend.Config{})} {
			b = box
			assert.Empty(t, try(backend.RootUser, `grep -rs secret "$1"`))
		}
	}
}
