package box

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// TestAccounts: each account has its user, home and working directory, and
// nothing of the other account.
func TestAccounts(t *testing.T) {
	t.Parallel()
	needs.Long(t, "tests of the server see both accounts by day")
	eachMode(t, func(t *testing.T, h *Host) {
		for account, other := range map[backend.Account]string{backend.RuntimeAccount: "", backend.ImageAccount: backend.WorkDir} {
			b := newBox(t, h, backend.Config{Account: account})
			out, _, code := run(t, b, backend.Spec{Path: "sh", Args: []string{"-c", "echo $USER; echo x > f; test -w $HOME && cd ~ && pwd -P"}})
			require.Zero(t, code)
			assert.Contains(t, out, account.Name+"\n")
			assert.Contains(t, out, account.Home+"\n")
			f, err := b.ReadFile(account.WorkDir+"/f", "")
			require.NoError(t, err)
			require.NoError(t, f.Close())
			if other != "" {
				_, err := b.ReadFile(other, "")
				assert.ErrorContains(t, err, "no such file")
			}
			if h.Mode() == Namespace {
				out, _, _ := run(t, b, backend.Spec{Path: "id", Args: []string{"-un"}})
				assert.Equal(t, account.Name+"\n", out)
			}
			out, _, _ = run(t, b, backend.Spec{Path: "sh", Args: []string{"-c", "echo $SUDO_USER"}, User: "root"})
			assert.Equal(t, account.Name+"\n", out)
			require.NoError(t, b.Stop())
			layer, _, err := b.Freeze()
			require.NoError(t, err)
			b = newBox(t, h, backend.Config{Layer: layer, Account: account})
			out, _, _ = run(t, b, backend.Spec{Path: "cat", Args: []string{"f"}})
			assert.Equal(t, "x\n", out)
		}
	})
}
