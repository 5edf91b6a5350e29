package promises_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
	"github.com/go-vercel/sandbox/internal/test/printing"
	"github.com/go-vercel/sandbox/observe"
	"github.com/go-vercel/sandbox/outputs"
	"github.com/go-vercel/sandbox/pool"
	"github.com/go-vercel/sandbox/preview"
	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/terminal"
	"github.com/go-vercel/sandbox/tunnel"
)

const module = "github.com/go-vercel/sandbox"

// publicTypes returns all exported types that have fields.
func publicTypes(t *testing.T) map[string]reflect.Type {
	return root().Types(t)
}

// root describes this module. Invocation may be printed in full, because only tests fill it,
// for their own commands.
func root() printing.Module {
	return printing.Module{Dir: "../../..", Open: []reflect.Type{reflect.TypeFor[sandboxtest.Invocation]()}, Roots: []reflect.Type{
		reflect.TypeFor[sandbox.Client](), reflect.TypeFor[sandbox.ClientOptions](),
		reflect.TypeFor[sandbox.GitSource](), reflect.TypeFor[sandbox.TarballSource](), reflect.TypeFor[sandbox.SnapshotSource](),
		reflect.TypeFor[sandbox.APIError](), reflect.TypeFor[sandbox.RequestError](), reflect.TypeFor[sandbox.StreamError](),
		reflect.TypeFor[sandbox.FSError](), reflect.TypeFor[sandbox.ChangedError](),
		reflect.TypeFor[sandbox.ExitError](),
		reflect.TypeFor[sandbox.FileStat](), reflect.TypeFor[sandbox.Signal](),
		reflect.TypeFor[auth.Credentials](), reflect.TypeFor[auth.Options](), reflect.TypeFor[device.Code](),
		reflect.TypeFor[auth.MissingError](), reflect.TypeFor[auth.OIDCError](),
		reflect.TypeFor[proxy.Options](), reflect.TypeFor[proxy.Forwarder](), reflect.TypeFor[proxy.ForwarderOptions](), reflect.TypeFor[proxy.Meta](),
		reflect.TypeFor[proxytest.Authority](), reflect.TypeFor[proxytest.Firewall](),
		reflect.TypeFor[sandboxtest.Server](), reflect.TypeFor[sandboxtest.Options](),
		reflect.TypeFor[terminal.Options](), reflect.TypeFor[terminal.ShellOptions](), reflect.TypeFor[terminal.Shell](),
		reflect.TypeFor[terminal.ShellError](), reflect.TypeFor[terminal.SignalError](),
		reflect.TypeFor[agent.Toolset](), reflect.TypeFor[agent.Options](), reflect.TypeFor[agent.Limits](), reflect.TypeFor[agent.Conversations](),
		reflect.TypeFor[agent.ConversationsOptions](), reflect.TypeFor[pool.Options](), reflect.TypeFor[pool.Pool](), reflect.TypeFor[pool.Box](),
		reflect.TypeFor[preview.Options](), reflect.TypeFor[preview.Proxy](), reflect.TypeFor[tunnel.Conn](), reflect.TypeFor[tunnel.Dialer](), reflect.TypeFor[tunnel.ForwardOptions](),
		reflect.TypeFor[observe.Event](), reflect.TypeFor[outputs.HeadTail](), reflect.TypeFor[outputs.Lines](), reflect.TypeFor[outputs.Tail](),
	}}
}

// TestPrintingEveryType prints every exported type with each format. No secret field shows.
func TestPrintingEveryType(t *testing.T) {
	t.Parallel()
	root().Print(t)

	// The other modules of this repository need their own tests.
	dir := filepath.Join("..", "..", "..")
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch path.Base(name) {
		case "internal", "tools", "examples", "perf", "cmd", "testdata", ".git":
			return fs.SkipDir
		case "go.mod":
			if name == "go.mod" {
				return nil
			}
			inside := path.Dir(name)
			tests, err := filepath.Glob(filepath.Join(dir, inside, "printing_test.go"))
			require.NoError(t, err)
			below, err := filepath.Glob(filepath.Join(dir, inside, "*", "printing_test.go"))
			require.NoError(t, err)
			assert.NotEmpty(t, append(tests, below...), "%s has no test that prints its types", inside)
		}
		return err
	}))
}

// TestPrintingValuesInUse prints values that methods have created and used, instead of
// values that the test has filled.
func TestPrintingValuesInUse(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Token: printing.Mark})
	creds := srv.Credentials()
	require.Equal(t, printing.Mark, creds.Token)
	static := auth.Static(creds)
	cached := auth.Cache(static, 0)
	_, err := cached.Credentials(t.Context())
	require.NoError(t, err)
	client, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: srv.URL, Credentials: cached})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	env := sandbox.Env{"NAME": printing.Mark}
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Env: env})
	require.NoError(t, err)
	done, err := sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{Env: env})
	require.NoError(t, err)
	cmd := sb.CommandContext(t.Context(), "true")
	cmd.Env = []string{"NAME=" + printing.Mark}
	policy := &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{
		"a.example": {{Transform: []sandbox.PolicyTransform{{Headers: sandbox.PolicyHeaders{"Authorization": printing.Mark}}}}},
	}}
	values := map[string]any{
		"server": srv, "client": client, "sandbox": sb, "session": sb.CurrentSession(), "info": sb.Info(), "result": done, "command": done.Command,
		"Cmd": cmd, "policy": policy, "rule": &policy.Rules["a.example"][0], "static": static, "cached": cached,
		"chain": auth.Chain(static, cached), "client options": &sandbox.ClientOptions{Credentials: cached}, "context": auth.ContextWithToken(t.Context(), printing.Mark),
		"create with a policy":    &sandbox.CreateOptions{NetworkPolicy: policy, Env: env},
		"create with a source":    &sandbox.CreateOptions{Source: sandbox.GitSource{URL: "https://" + printing.Mark + "@github.com/acme/x.git"}},
		"create with a tarball":   &sandbox.CreateOptions{Source: &sandbox.TarballSource{URL: "https://u:" + printing.Mark + "@host/x.tgz"}},
		"a token as the user":     &sandbox.GitSource{URL: "https://x-access-token:" + printing.Mark + "@github.com/acme/x.git"},
		"a token in the query":    &sandbox.GitSource{URL: "https://git.example/acme/x.git?access_token=" + printing.Mark},
		"an address that is none": &sandbox.GitSource{URL: "https://%zz" + printing.Mark},
		"an address for ssh":      &sandbox.GitSource{URL: printing.Mark + "@github.com:acme/x.git"},
		"a signed address":        &sandbox.TarballSource{URL: "https://bucket.example/x.tgz?X-Amz-Signature=" + printing.Mark},
		"rule of a proxy":         &proxy.Rule{Secret: proxy.StaticSecret(printing.Mark)},
	}
	for name, v := range values {
		root().Hidden(t, name, v)
	}
	assert.Equal(t, "{https://github.com/acme/x.git   0 main}", fmt.Sprint(sandbox.GitSource{URL: "https://github.com/acme/x.git", Revision: "main"}))
	assert.Equal(t, `{Token:REDACTED TeamID:t ProjectID:p}`, auth.Credentials{Token: "x", TeamID: "t", ProjectID: "p"}.String())
	assert.Equal(t, `auth.Credentials{Token:"REDACTED", TeamID:"t", ProjectID:"p"}`, fmt.Sprintf("%#v", &auth.Credentials{Token: "x", TeamID: "t", ProjectID: "p"}))
}
