package promises_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The planted secrets, which must not appear in any text that the SDK prints.
const (
	plantedToken    = "planted-token-5f1c"
	plantedEnv      = "planted-env-9a2d"
	plantedPassword = "planted-password-77be"
	plantedHeader   = "planted-header-31c0"
)

var planted = []string{plantedToken, plantedEnv, plantedPassword, plantedHeader}

// TestSecretsDoNotShow makes calls with planted secrets, which succeed and fail in every
// way, and prints the results with each format.
func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, Token: plantedToken})
	var logs testkit.LockedBuffer
	creds := srv.Credentials()
	given := auth.Credentials{Token: plantedToken, TeamID: creds.TeamID, ProjectID: creds.ProjectID}
	client := clientWith(t, srv, given, &logs)

	var seen []any
	keep := func(v ...any) { seen = append(seen, v...) }

	create := &sandbox.CreateOptions{
		Name: "secrets", Env: map[string]string{"SECRET": plantedEnv},
		Source: sandbox.GitSource{URL: "https://user:" + plantedPassword + "@127.0.0.1:1/r.git", Username: "u", Password: plantedPassword},
	}
	_, err := client.Create(t.Context(), create)
	require.Error(t, err, "there is no such repository")
	keep(err, create, *create, create.Source, create.Env)
	create.Source = nil

	sb, err := client.Create(t.Context(), create)
	require.NoError(t, err)
	opts := &sandbox.CommandOptions{Env: map[string]string{"SECRET": plantedEnv}}
	done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", `test "$SECRET" = "` + plantedEnv[:7] + `"`}, opts)
	require.NoError(t, err)
	keep(sb, sb.Info(), sb.CurrentSession(), sb.CurrentSession().Info(), done, done.Command, opts, *opts, given, &given, client)

	interactive, err := sb.OpenInteractive(t.Context())
	require.NoError(t, err)
	shown, err := json.Marshal(interactive)
	require.NoError(t, err)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v %s", interactive, interactive, *interactive, shown), interactive.Token)

	// Use synctest, because the client spends five seconds looking for a lost start.
	for _, fault := range []sandboxtest.Fault{{Status: 500}, {Status: 401}, {Status: 429}, {ActThenStatus: 502}, {DropBefore: true}, {DropAfter: true}, {CutAfterBytes: 3}} {
		synctest.Test(t, func(t *testing.T) {
			client := clientWith(t, srv, given, &logs)
			sb, err := client.Get(t.Context(), "secrets", nil)
			require.NoError(t, err)
			defer srv.Inject(fault)()
			_, createErr := client.Create(t.Context(), &sandbox.CreateOptions{Env: create.Env})
			_, runErr := sb.RunCommand(t.Context(), "true", nil, opts)
			_, startErr := sb.StartCommand(t.Context(), "true", nil, &sandbox.StartOptions{Env: opts.Env})
			updateErr := sb.Update(t.Context(), &sandbox.UpdateOptions{Tags: map[string]string{"a": "b"}})
			for _, err := range []error{createErr, runErr, startErr, updateErr} {
				assert.Error(t, err, "%+v", fault)
				keep(err)
			}
		})
	}
	for _, bad := range []map[string]string{{"A=B": plantedEnv}, {"A": plantedEnv + "\x00"}, {"A": plantedEnv + "\xff"}} {
		_, err = sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{Env: bad})
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		keep(err)
	}

	text := &strings.Builder{}
	handler := slog.New(slog.NewJSONHandler(text, nil))
	for _, v := range seen {
		fmt.Fprintf(text, "%v\n%+v\n%#v\n%s\n%q\n", v, v, v, v, v)
		handler.Info("value", "v", v)
		if err, ok := v.(error); ok {
			for ; err != nil; err = errors.Unwrap(err) {
				fmt.Fprintf(text, "%+v\n", err)
			}
			continue
		}
		// Options with hooks can't be marshaled.
		if data, err := json.Marshal(v); err == nil {
			text.Write(data)
		}
	}
	for _, secret := range planted {
		assert.NotContains(t, text.String(), secret)
		assert.NotContains(t, logs.String(), secret)
	}
	assert.Contains(t, logs.String(), "operation=\"run command\"", "requests are logged")
}

// clientWith returns a client that also works in a synctest bubble.
func clientWith(t *testing.T, srv *sandboxtest.Server, creds auth.Credentials, logs *testkit.LockedBuffer) *sandbox.Client {
	t.Helper()
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: srv.URL, Credentials: auth.Static(creds), MaxRetries: -1, Reattach: &sandbox.ReattachOptions{Limit: time.Second},
		HTTPClient: &http.Client{Transport: bubbleTransport()},
		Logger:     slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	return client
}

// bubbleTransport returns a transport for a client in a synctest bubble and an emulator
// outside of it. It keeps no idle connections, because it would read from them all the
// time, and the bubble's clock stands still during such a read.
func bubbleTransport() http.RoundTripper { return &http.Transport{DisableKeepAlives: true} }

// TestSecretsOfSourcesAreNotEchoed: the service may quote the secret of a source, as in the
// error of a clone. The client's error does not show it.
func TestSecretsOfSourcesAreNotEchoed(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]sandbox.Source{
		"token as the user":   sandbox.GitSource{URL: "https://" + plantedToken + "@git.example/r.git"},
		"password":            sandbox.GitSource{URL: "https://user:" + plantedPassword + "@git.example/r.git"},
		"token in the query":  sandbox.GitSource{URL: "https://git.example/r.git?private_token=" + plantedToken},
		"password beside it":  sandbox.GitSource{URL: "https://git.example/r.git", Username: "u", Password: plantedPassword},
		"signature":           sandbox.TarballSource{URL: "https://host.example/x.tgz?X-Amz-Signature=" + plantedToken},
		"user of a tarball":   sandbox.TarballSource{URL: "https://" + plantedToken + "@host.example/x.tgz"},
		"password of one too": sandbox.TarballSource{URL: "https://user:" + plantedPassword + "@host.example/x.tgz"},
	} {
		gate := &testkit.Gateway{}
		gate.Set(func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
			defer req.Body.Close()
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(string(body))
			return canned.JSON(400, `{"error":{"code":"bad_request","message":`+string(text)+`}}`), err
		})
		c, err := sandbox.NewClient(&sandbox.ClientOptions{
			HTTPClient: &http.Client{Transport: gate}, BaseURL: "https://api.test",
			Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
		})
		require.NoError(t, err)
		_, err = c.Create(t.Context(), &sandbox.CreateOptions{Source: source})
		require.ErrorContains(t, err, ".example", name)
		for _, secret := range planted {
			assert.NotContains(t, everyForm(err), secret, name)
		}
	}
}

// TestRequestsAreNotEchoed: a server, a stream or the transport may quote the variables,
// header rules or additional parameters of a request. No error or log shows them. Every
// operation with such parameters needs a row.
func TestRequestsAreNotEchoed(t *testing.T) {
	t.Parallel()
	env := sandbox.Env{"SECRET": plantedEnv + `"<\é`}
	policy := &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{
		"a.example": {{Transform: []sandbox.PolicyTransform{{Headers: sandbox.PolicyHeaders{"Authorization": plantedHeader}}}}},
	}}
	extra := map[string]any{"__new": map[string]any{"x": []string{plantedPassword}}}
	calls := map[string]func(context.Context, *sandbox.Sandbox, *sandbox.Client) error{
		"CreateOptions": func(ctx context.Context, _ *sandbox.Sandbox, c *sandbox.Client) error {
			_, err := c.Create(ctx, &sandbox.CreateOptions{
				Env: env, NetworkPolicy: policy, Extra: extra, Credentials: &sandbox.Credentials{Extra: map[string]any{"new": plantedPassword}},
			})
			return err
		},
		"ForkOptions": func(ctx context.Context, _ *sandbox.Sandbox, c *sandbox.Client) error {
			_, err := c.Fork(ctx, "box", &sandbox.ForkOptions{Env: env, NetworkPolicy: policy, Extra: extra})
			return err
		},
		"GetOptions": func(ctx context.Context, _ *sandbox.Sandbox, c *sandbox.Client) error {
			_, err := c.Get(ctx, "box", &sandbox.GetOptions{Extra: extra})
			return err
		},
		"UpdateOptions": func(ctx context.Context, sb *sandbox.Sandbox, _ *sandbox.Client) error {
			return sb.Update(ctx, &sandbox.UpdateOptions{Env: env, NetworkPolicy: policy, Extra: extra})
		},
		"NetworkPolicy": func(ctx context.Context, sb *sandbox.Sandbox, _ *sandbox.Client) error {
			_, err := sb.UpdateNetworkPolicy(ctx, policy)
			return err
		},
		"CommandOptions": func(ctx context.Context, sb *sandbox.Sandbox, _ *sandbox.Client) error {
			_, err := sb.RunCommand(ctx, "true", nil, &sandbox.CommandOptions{Env: env})
			return err
		},
		"StartOptions": func(ctx context.Context, sb *sandbox.Sandbox, _ *sandbox.Client) error {
			_, err := sb.StartCommand(ctx, "true", nil, &sandbox.StartOptions{Env: env})
			return err
		},
		"a User's command": func(ctx context.Context, sb *sandbox.Sandbox, _ *sandbox.Client) error {
			u, err := sb.AsUser("ann")
			if err != nil {
				return err
			}
			_, err = u.RunCommand(ctx, "true", nil, &sandbox.CommandOptions{Env: env})
			return err
		},
		"Cmd": func(ctx context.Context, sb *sandbox.Sandbox, _ *sandbox.Client) error {
			cmd := sb.CommandContext(ctx, "true")
			cmd.Env = []string{"SECRET=" + env["SECRET"]}
			return cmd.Run()
		},
	}
	for name, typ := range publicTypes(t) {
		if name, root := strings.CutPrefix(name, "."); root && (strings.HasSuffix(name, "Options") || name == "Cmd") && carriesSecrets(typ) {
			if name == "EnsureOptions" {
				name = "StartOptions" // EnsureCommand passes them to the start
			}
			assert.Contains(t, calls, name, "these options contain secrets: add a call")
		}
	}
	for way, quote := range map[string]func(text string) (*http.Response, error){
		"a message": func(text string) (*http.Response, error) {
			quoted, err := json.Marshal("you sent " + text)
			return canned.JSON(400, `{"error":{"code":"bad_request","message":`+string(quoted)+`}}`), err
		},
		"a page": func(text string) (*http.Response, error) {
			return canned.Response(502, "text/plain", strings.NewReader("you sent\n"+text)), nil
		},
		"a stream": func(text string) (*http.Response, error) {
			quoted, err := json.Marshal("you sent " + text)
			return canned.Response(200, "application/x-ndjson", strings.NewReader(
				`{"stream":"error","data":{"code":"x","message":`+string(quoted)+`}}`+"\n"+canned.Begun+`{"stream":"error","data":{"code":"x","message":`+string(quoted)+`}}`+"\n")), err
		},
		"the transport": func(text string) (*http.Response, error) { return nil, errors.New("you sent " + text) },
	} {
		for call, do := range calls {
			synctest.Test(t, func(t *testing.T) {
				var logs testkit.LockedBuffer
				quoted := false
				gate := &testkit.Gateway{}
				gate.Set(func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
					text := req.URL.RawQuery
					if query, err := url.QueryUnescape(text); err == nil {
						text += " " + query
					}
					if req.Body != nil {
						body, err := io.ReadAll(req.Body)
						req.Body.Close()
						if err != nil {
							return nil, err
						}
						text += " " + string(body)
					}
					switch {
					case strings.Contains(text, "planted-") || strings.Contains(text, "REDACTED"):
						quoted = true
						return quote(text)
					case strings.Contains(req.URL.Path, "/cmd/"):
						return canned.JSON(404, `{"error":{"code":"not_found","message":"there is no such command"}}`), nil
					}
					return canned.JSON(200, canned.RunningSandbox), nil
				})
				c, err := sandbox.NewClient(&sandbox.ClientOptions{
					HTTPClient: &http.Client{Transport: gate}, BaseURL: "https://api.test", MaxRetries: 1,
					Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
					Logger:      slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
				})
				require.NoError(t, err)
				sb, err := c.Get(t.Context(), "box", nil)
				require.NoError(t, err)
				err = do(t.Context(), sb, c)
				require.Error(t, err, "%s, %s", call, way)
				assert.True(t, quoted, "%s, %s: %v", call, way, err)
				for _, secret := range planted {
					assert.NotContains(t, everyForm(err), secret, "%s, %s", call, way)
					assert.NotContains(t, logs.String(), secret, "%s, %s", call, way)
				}
			})
		}
	}
}

// carriesSecrets reports whether a struct has environment variables, headers, or a field
// that a struct tag marks as secret.
func carriesSecrets(typ reflect.Type) bool {
	root := func(t reflect.Type) bool { return t.PkgPath() == reflect.TypeFor[sandbox.Client]().PkgPath() }
	switch typ {
	case reflect.TypeFor[sandbox.Env](), reflect.TypeFor[sandbox.PolicyHeaders]():
		return true
	}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return carriesSecrets(typ.Elem())
	case reflect.Struct:
		for field := range typ.Fields() {
			if field.IsExported() && (field.Tag.Get("secret") != "" || root(field.Type) && carriesSecrets(field.Type) ||
				field.Type.Kind() == reflect.Pointer && root(field.Type.Elem()) && field.Type.Elem().Name() == "NetworkPolicy") {
				return true
			}
		}
	}
	return false
}
