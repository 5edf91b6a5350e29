package tunnel

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/rawshell"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestRawShell: the output of a script after its greeting arrives unchanged, whatever precedes
// the greeting. The exit code follows.
func TestRawShell(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "stty")
	_, sb := testkit.LightStart(t, nil)
	s, err := rawshell.Open(t.Context(), sb, "sh", "echo a login message\n"+rawshell.Raw+rawshell.Greet+`printf '\001\r\n\377'; read -r line; echo "$1 $line"; exit 3`, "got")
	require.NoError(t, err)
	defer s.Close()
	_, err = io.WriteString(s, "\x03\x04\n")
	require.NoError(t, err)
	out, err := io.ReadAll(s)
	require.NoError(t, err)
	assert.Equal(t, "\x01\r\n\xffgot \x03\x04\n", string(out))
	code, err := s.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, code)
}

// TestNoGreeting: Open fails if a script ends without a greeting, or does not begin with one.
func TestNoGreeting(t *testing.T) {
	t.Parallel()
	_, sb := testkit.LightStart(t, nil)
	_, err := rawshell.Open(t.Context(), sb, "sh", `printf 'no such \033[2Jthing\n'; exit 9`)
	var ended *rawshell.EndedError
	require.ErrorAs(t, err, &ended)
	assert.Equal(t, 9, ended.Code)
	require.EqualError(t, err, `the other end of the tunnel ended with exit code 9: "no such \\x1b[2Jthing"`)
	_, err = rawshell.Open(t.Context(), sb, "sh", `while :; do echo 0123456789012345678901234567890123456789; done`)
	require.ErrorContains(t, err, "did not begin")
}
