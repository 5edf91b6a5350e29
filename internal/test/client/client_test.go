package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// TestLines: Lines yields whole lines of either stream, however they were sent.
func TestLines(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c",
		`printf 'a'; sleep 0.1; printf 'b\r\n\nc\n'; printf 'e1\ne2' >&2; printf 'last'`}, nil)
	require.NoError(t, err)
	got := map[string][]string{}
	for line, err := range cmd.Lines(t.Context()) {
		require.NoError(t, err)
		got[line.Stream] = append(got[line.Stream], line.Data)
	}
	assert.Equal(t, map[string][]string{
		sandbox.Stdout: {"ab", "", "c", "last"}, sandbox.Stderr: {"e1", "e2"},
	}, got)
	for line := range cmd.Lines(t.Context()) {
		assert.NotContains(t, line.Data, "\n")
		break // closes the stream
	}
}

// TestResultPrints: a printed result names the command and how it ended, but no
// arguments, which may be secret.
func TestResultPrints(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "exit 3 # hunter2"}, nil)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprint(done), fmt.Sprint(*done), fmt.Sprintf("%#v", done)} {
		assert.Regexp(t, `command \w+ \(sh\)`, text)
		assert.Contains(t, text, "3")
		assert.NotContains(t, text, "hunter2")
	}
}

// TestContextWithClient: package functions use the client of their context.
func TestContextWithClient(t *testing.T) {
	t.Parallel()
	srv, _ := start(t, nil)
	ctx := sandbox.ContextWithClient(t.Context(), srv.Client())
	sb, err := sandbox.GetOrCreate(ctx, "of-this-context", nil)
	require.NoError(t, err)
	var names []string
	for info, err := range sandbox.List(ctx, nil) {
		require.NoError(t, err)
		names = append(names, info.Name)
	}
	assert.Contains(t, names, sb.Name())
	_, err = sandbox.Get(t.Context(), "of-this-context", nil)
	assert.ErrorIs(t, err, auth.ErrNoCredentials, "a context without a client uses the default client")
	require.NoError(t, sb.Delete(ctx, nil))
}

// TestServerRefuses: the client does not check limits that the platform may change. The
// server checks them, and the caller gets the server's error.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, &sandbox.CreateOptions{Name: "taken"})
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	_, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: sb.Name()})
	e := testkit.APIError(t, err)
	assert.Equal(t, 400, e.Status)
	assert.Equal(t, "bad_request", e.Code)
	assert.Contains(t, err.Error(), e.Message)
	assert.NotEmpty(t, e.Message)

	_, err = client.Create(t.Context(), &sandbox.CreateOptions{VCPUs: 1 << 20})
	assert.Contains(t, strings.ToLower(testkit.APIError(t, err).Message), "vcpus")

	_, err = client.Get(t.Context(), "missing", nil)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	assert.Equal(t, "missing", testkit.APIError(t, err).SandboxName)
}
