package promises_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/terminal"
)

// plantedClient returns a client with a planted token. It does not retry.
func plantedClient(t *testing.T, base string, hc *http.Client, logs *testkit.LockedBuffer) *sandbox.Client {
	t.Helper()
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: base, HTTPClient: hc, MaxRetries: -1, Reattach: &sandbox.ReattachOptions{Attempts: -1},
		Credentials: auth.Static(auth.Credentials{Token: plantedToken, TeamID: "team_x", ProjectID: "prj_x"}),
		Logger:      slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// operationsOf returns one operation of each kind.
func operationsOf(ctx context.Context, c *sandbox.Client) map[string]func() error {
	first := func(_ any, err error) error { return err }
	return map[string]func() error{
		"create": func() error {
			return first(c.Create(ctx, &sandbox.CreateOptions{Name: "n", Env: sandbox.Env{"A": plantedEnv}}))
		},
		"create from git": func() error {
			return first(c.Create(ctx, &sandbox.CreateOptions{Source: sandbox.GitSource{URL: "https://h/x.git", Username: "u", Password: plantedPassword}}))
		},
		"create from a tarball": func() error {
			return first(c.Create(ctx, &sandbox.CreateOptions{Source: &sandbox.TarballSource{URL: "https://u:" + plantedPassword + "@h/x.tgz"}}))
		},
		"create unnamed": func() error { return first(c.Create(ctx, nil)) },
		"fork":           func() error { return first(c.Fork(ctx, "n", nil)) },
		"get": func() error {
			return first(c.Get(ctx, "n", &sandbox.GetOptions{Extra: map[string]any{"__secret": plantedHeader}}))
		},
		"get or create": func() error { return first(c.GetOrCreate(ctx, "n", nil)) },
		"delete":        func() error { return c.Delete(ctx, "n", nil) },
		"get snapshot":  func() error { return first(c.GetSnapshot(ctx, "snap_1")) },
		"list": func() error {
			for _, err := range c.List(ctx, nil) {
				return err
			}
			return nil
		},
		"list snapshots": func() error {
			for _, err := range c.ListSnapshots(ctx, nil) {
				return err
			}
			return nil
		},
	}
}

// everyForm prints an error, and all errors that it wraps, with each format.
func everyForm(err error) string {
	var b strings.Builder
	for todo := []error{err}; len(todo) > 0; {
		e := todo[0]
		todo = todo[1:]
		if e == nil {
			continue
		}
		fmt.Fprintf(&b, "%v %+v %#v %q\n", e, e, e, e)
		if e, ok := e.(*sandbox.APIError); ok {
			fmt.Fprintf(&b, "%s\n", e.Body)
		}
		switch u := any(e).(type) {
		case interface{ Unwrap() error }:
			todo = append(todo, u.Unwrap())
		case interface{ Unwrap() []error }:
			todo = append(todo, u.Unwrap()...)
		}
	}
	return b.String()
}

// TestEchoes: no error or log shows a secret that a server or proxy echoes.
func TestEchoes(t *testing.T) {
	t.Parallel()
	token := func(r *http.Request) string { return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") }
	for name, resp := range map[string]http.HandlerFunc{
		"message": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			fmt.Fprintf(w, `{"error":{"code":"forbidden","message":"token %s is not valid"}}`, token(r))
		},
		"what was to be cloned": func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				Source struct{ URL, Password string }
			}
			_ = json.NewDecoder(r.Body).Decode(&body)
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"error":{"code":"bad_request","message":"can't fetch %s with %s"}}`, body.Source.URL, body.Source.Password)
		},
		"code": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			fmt.Fprintf(w, `{"error":{"code":"%s","message":"x"}}`, r.Header.Get("Authorization"))
		},
		"page": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502); fmt.Fprintf(w, "<html>%v", r.Header) },
		"request ID": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Vercel-Id", r.Header.Get("Authorization"))
			w.WriteHeader(500)
		},
		"content type": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Authorization"))
			_, _ = io.WriteString(w, "{")
		},
		"bad JSON": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"sandbox": %s`, r.Header.Get("Authorization"))
		},
		"bad address": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://[::1%"+r.Header.Get("Authorization")+"/")
			w.WriteHeader(302)
		},
		"address's query": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/?t="+r.Header.Get("Authorization"))
			w.WriteHeader(302)
		},
		"address's path": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/"+token(r))
			w.WriteHeader(302)
		},
		"bad head": func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+r.Header.Get("Authorization")+"\r\n\r\n")
				conn.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(resp)
			defer srv.Close()
			var logs testkit.LockedBuffer
			for operation, do := range operationsOf(t.Context(), plantedClient(t, srv.URL, nil, &logs)) {
				err := do()
				if operation != "delete" { // the client does not read the response to a delete
					require.Error(t, err, operation)
				}
				assert.NotContains(t, everyForm(err), plantedToken, operation)
				assert.NotContains(t, everyForm(err), plantedPassword, operation)
			}
			assert.NotContains(t, logs.String(), plantedToken)
		})
	}
}

// TestRedirects: the client sends no credentials or data to the target of a redirect.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var mu sync.Mutex
		var seen []string
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			seen = append(seen, fmt.Sprint(r.RequestURI, r.Header, string(body)))
			mu.Unlock()
			assert.Empty(t, r.Header["Referer"])
			assert.NotContains(t, r.Header.Get("Authorization"), "Bearer")
			assert.Empty(t, body)
			w.WriteHeader(404)
		}))
		defer target.Close()
		port := target.URL[strings.LastIndexByte(target.URL, ':'):]
		for name, location := range map[string]string{
			"another host": "http://localhost" + port + "/steal", "another port": target.URL + "/steal",
			"a user": "http://127.0.0.1@127.0.0.1" + port + "/steal", "a file": "file:///etc/passwd", "no host": "http:///x",
		} {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			}))
			var logs testkit.LockedBuffer
			for operation, do := range operationsOf(t.Context(), plantedClient(t, srv.URL, nil, &logs)) {
				err := do()
				require.Error(t, err, operation)
				for _, secret := range planted {
					assert.NotContains(t, everyForm(err), secret, "status %d, redirect to %s: %s", status, name, operation)
				}
			}
			for _, secret := range planted {
				assert.NotContains(t, logs.String(), secret)
			}
			srv.Close()
		}
		mu.Lock()
		for _, secret := range append(planted, "team_x", "prj_x") {
			assert.NotContains(t, strings.Join(seen, "\n"), secret)
		}
		assert.NotEmpty(t, seen, "the client follows the redirects of reads")
		mu.Unlock()
	}
}

// TestErrorsArePrintable: errors and logs escape the text of a hostile sandbox or API, so
// that it can't control a terminal or forge lines of a log.
func TestErrorsArePrintable(t *testing.T) {
	t.Parallel()
	sb, err := sandboxtest.New(t, nil).Client().Create(t.Context(), nil)
	require.NoError(t, err)
	testkit.NeedRoot(t, sb)
	const evil = `for n in ls stat find rm mv readlink realpath useradd chown id; do
		printf '#!/bin/sh\nprintf "\\033]52;c;cm0gLXJmIC8K\\007\\033[2J\\n2026/01/01 00:00:00 INFO all is well\\n" >&2\nexit 3\n' > /usr/local/bin/$n
		chmod +x /usr/local/bin/$n; done`
	_, err = sb.RunCommand(t.Context(), "bash", []string{"-c", evil}, &sandbox.CommandOptions{Sudo: true})
	require.NoError(t, err)
	plain := func(name string, err error) {
		t.Helper()
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "\x1b", name)
		assert.NotContains(t, err.Error(), "\n", name)
		assert.Contains(t, err.Error(), `\x1b`, name)
	}
	_, err = sb.FS().ReadDir(t.Context(), "/tmp")
	plain("ReadDir", err)
	_, err = sb.FS().Stat(t.Context(), "/tmp")
	plain("Stat", err)
	reason, ok := errors.AsType[*sandbox.FSError](err)
	require.True(t, ok)
	assert.Contains(t, reason.Message, "\x1b", "the field has the text as it was received")
	plain("Remove", sb.FS().Remove(t.Context(), "/tmp/x"))
	plain("Rename", sb.FS().Rename(t.Context(), "/tmp/x", "/tmp/y"))
	_, err = sb.CreateUser(t.Context(), "alice")
	plain("CreateUser", err)

	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Vercel-Id", "\u009b31m")
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"error":{"code":"x\u001b[31m","message":"file \u001b]0;t\u0007\n2026 INFO fine \u202e"}}`)
	}))
	defer srv.Close()
	var logs testkit.LockedBuffer
	for operation, do := range operationsOf(t.Context(), plantedClient(t, srv.URL, nil, &logs)) {
		err := do()
		plain(operation, err)
		assert.NotContains(t, err.Error(), "\u202e")
	}
	assert.NotContains(t, logs.String(), "\x1b")
	assert.NotContains(t, logs.String(), "\u009b")
}

// TestHandlesFromJSON: if a handle's name or ID would lead to another route, it sends no request.
func TestHandlesFromJSON(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "thename"})
	require.NoError(t, err)
	command, err := sb.StartCommand(t.Context(), "sleep", []string{"5"}, nil)
	require.NoError(t, err)
	defer func() { _ = command.Kill(t.Context()) }()
	session, snapshot := sb.CurrentSession().ID(), "snap_0123"

	var asked []string
	var mu sync.Mutex
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.EscapedPath())
		mu.Unlock()
		w.WriteHeader(404)
	}))
	defer api.Close()
	var logs testkit.LockedBuffer
	c := plantedClient(t, api.URL, nil, &logs)
	with := func(v json.Marshaler, old, id string) []byte {
		data, err := v.MarshalJSON()
		require.NoError(t, err)
		changed := strings.ReplaceAll(string(data), `"`+old+`"`, `"`+id+`"`)
		require.NotEqual(t, string(data), changed)
		return []byte(changed)
	}
	ctx := t.Context()
	for _, id := range []string{".", "..", ""} {
		for what, use := range map[string]func() error{
			"a sandbox's name": func() error {
				var s sandbox.Sandbox
				if err := s.UnmarshalJSON(with(sb, "thename", id)); err != nil {
					return err
				}
				c.Bind(&s)
				return s.Delete(ctx, nil)
			},
			"a session's ID": func() error {
				var s sandbox.Session
				if err := s.UnmarshalJSON(with(sb.CurrentSession(), session, id)); err != nil {
					return err
				}
				c.Bind(&s)
				_, err := s.RunCommand(ctx, "true", nil, nil)
				if _, getErr := s.GetCommand(ctx, "cmd_1"); getErr == nil {
					return nil
				}
				return err
			},
			"a command's ID": func() error {
				var s sandbox.Command
				if err := s.UnmarshalJSON(with(command, command.ID(), id)); err != nil {
					return err
				}
				c.Bind(&s)
				return s.Signal(ctx, sandbox.SIGTERM)
			},
			"a command's session": func() error {
				var s sandbox.Command
				if err := s.UnmarshalJSON(with(command, session, id)); err != nil {
					return err
				}
				c.Bind(&s)
				_, err := s.Wait(ctx)
				return err
			},
			"a snapshot's ID": func() error {
				var s sandbox.Snapshot
				if err := s.UnmarshalJSON([]byte(`{"snapshot":{"id":"` + id + `","status":"created"}}`)); err != nil {
					return err
				}
				c.Bind(&s)
				return s.Delete(ctx)
			},
		} {
			assert.Error(t, use(), "%s %q", what, id)
		}
	}
	for _, name := range []string{"sessions", "snapshots"} {
		var s sandbox.Sandbox
		require.NoError(t, s.UnmarshalJSON(with(sb, "thename", name)))
		c.Bind(&s)
		assert.ErrorIs(t, s.Delete(ctx, nil), sandbox.ErrInvalid, name)
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Empty(t, asked, "the client sent a request, %s", snapshot)
}

// TestTerminalInTheClear: if an API with TLS returns the address of a terminal without TLS,
// the client refuses it.
func TestTerminalInTheClear(t *testing.T) {
	t.Parallel()
	srv := testkit.LightServer(t)
	var reached bool
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reached = true; w.WriteHeader(404) }))
	defer plain.Close()
	behind, err := url.Parse(srv.URL)
	require.NoError(t, err)
	through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }}
	for _, scheme := range []string{"ws", "http"} {
		api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/interactive") {
				fmt.Fprintf(w, `{"url":"%s://%s/x","token":"terminal-token"}`, scheme, plain.Listener.Addr())
				return
			}
			through.ServeHTTP(w, r)
		}))
		defer api.Close()
		c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: api.URL, Credentials: auth.Static(srv.Credentials()), HTTPClient: api.Client()})
		require.NoError(t, err)
		sb, err := c.Create(t.Context(), nil)
		require.NoError(t, err)
		_, err = terminal.Open(t.Context(), sb, nil)
		assert.ErrorContains(t, err, "not encrypted")
		assert.NotContains(t, everyForm(err), "terminal-token")
	}
	assert.False(t, reached)
}

// TestBaseURLs: the client accepts a base URL only if it has TLS or leads to this machine.
func TestBaseURLs(t *testing.T) {
	t.Parallel()
	creds := auth.Static(auth.Credentials{Token: plantedToken, TeamID: "t", ProjectID: "p"})
	for base, want := range map[string]bool{
		"https://vercel.com/api": true, "https://api.example.com": true, "https://10.0.0.1:8443/x": true,
		"http://127.0.0.1:8080": true, "http://127.9.9.9": true, "http://[::1]:8080/api": true, "http://localhost:1": true, "http://[::ffff:127.0.0.1]": true,
		"http://api.evil.example/api": false, "http://169.254.169.254": false, "http://10.0.0.1": false, "HTTP://x": false, "http://localhost.evil.example": false,
		"http://127.0.0.1.evil.example": false, "http://127.1": false, "http://0x7f000001": false, "http://0.0.0.0": false, "http://foo.localhost": false,
		"http://vercel.com/api": false, "ftp://x": false, "https://u:p@x": false, "https://x?y": false, "https://x#y": false, "http://x\n": false,
		"file:///etc/passwd": false, "//x": false, "vercel.com/api": false, "https://": false, "unix:///x": false,
	} {
		_, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: base, Credentials: creds})
		if want {
			assert.NoError(t, err, base)
		} else {
			assert.ErrorIs(t, err, sandbox.ErrInvalid, base)
		}
	}
	_, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: "http://emulator:8080", AllowHTTP: true, Credentials: creds})
	assert.NoError(t, err)
	_, err = sandbox.NewClient(&sandbox.ClientOptions{BaseURL: "https://user:" + plantedPassword + "@x/?t=" + plantedToken, Credentials: creds})
	assert.NotContains(t, everyForm(err), plantedPassword)
	assert.NotContains(t, everyForm(err), plantedToken)
}

// TestIDsOfStreamsChooseNoRoute: the ID in the first record of a stream is "..", and the
// stream breaks. The client does not use this ID in the path of a request.
func TestIDsOfStreamsChooseNoRoute(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, *sandbox.Sandbox) error{
		"RunCommand": func(ctx context.Context, sb *sandbox.Sandbox) error {
			return errorOf(sb.RunCommand(ctx, "true", nil, nil))
		},
		"StartCommand": func(ctx context.Context, sb *sandbox.Sandbox) error {
			return errorOf(sb.StartCommand(ctx, "true", nil, &sandbox.StartOptions{Stdout: io.Discard}))
		},
		"Cmd": func(ctx context.Context, sb *sandbox.Sandbox) error {
			return errorOf(sb.CommandContext(ctx, "true").Output())
		},
	} {
		synctest.Test(t, func(t *testing.T) { // each call looks for the command for five seconds
			starts := 0
			sb := canned.API(func(req *http.Request) (*http.Response, error) {
				assert.Equal(t, path.Clean(req.URL.Path), req.URL.Path, name)
				if !testkit.IsRun(req) {
					return canned.JSON(404, `{"error":{"code":"not_found","message":"there is no such command"}}`), nil
				}
				starts++
				return canned.Response(http.StatusOK, "application/x-ndjson", strings.NewReader(strings.Replace(canned.Begun, `"c1"`, `".."`, 1))), nil
			}).Sandbox(t)
			assert.Error(t, run(t.Context(), sb), name)
			assert.Equal(t, 1, starts, name)
		})
	}
}
