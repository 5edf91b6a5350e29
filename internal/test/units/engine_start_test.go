package units_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/logstream"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// commandResponse returns a response with a command.
func commandResponse(id, name string, args ...string) (*http.Response, error) {
	list, err := json.Marshal(append([]string{}, args...))
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(
			`{"command":{"id":%q,"name":%q,"args":%s,"cwd":"/","sessionId":"s1","exitCode":null,"startedAt":1}}`, id, name, list))),
	}, nil
}

// apiClient returns a client whose requests go to a function.
func apiClient(t *testing.T, respond transport) *api.Client {
	t.Helper()
	base, err := url.Parse("https://api.test")
	require.NoError(t, err)
	return api.New(api.Config{
		BaseURL: base, UserAgent: func() string { return "test" },
		Auth:       func(context.Context) (api.Auth, error) { return api.Auth{Token: "tok", TeamID: "team"}, nil },
		HTTPClient: &http.Client{Transport: respond},
	})
}

// TestCanceledStartIsKilled: if a start is canceled, the client kills the command, unless it knows
// that the ID belongs to another command.
func TestCanceledStartIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		chosen      bool
		start, look transport
		late        time.Duration
		killed      []string
	}{
		"the client knows nothing about the command": {
			start: func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			},
			look:   func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED },
			killed: []string{"ours"},
		},
		"another program has the ID": {
			chosen: true,
			start:  func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNRESET },
			late:   2 * time.Second, // the start gets its response after the caller has given up
			look:   func(*http.Request) (*http.Response, error) { return commandResponse("ours", "another") },
		},
		"the program runs with other arguments": {
			chosen: true,
			start:  func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNRESET },
			look:   func(*http.Request) (*http.Response, error) { return commandResponse("ours", "x", "other") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := apiClient(t, func(req *http.Request) (*http.Response, error) {
					if req.Method == http.MethodPost {
						time.Sleep(c.late)
						return c.start(req)
					}
					return c.look(req)
				})
				var killed []string
				start := &engine.Start{
					Stream: logstream.Command{Client: client, Session: "s1", ID: "ours", Limits: logstream.Limits{Attempts: 3, Limit: time.Minute, Wait: time.Second}},
					Chosen: c.chosen, Body: &engine.Body{Command: "x", Args: []string{}},
					Check:    func(string) error { return nil },
					Distrust: func(context.Context, string) {},
					Kill:     func(_ context.Context, id string) { killed = append(killed, id) },
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, _, err := start.Begin(ctx, t.Context())
				require.Error(t, err)
				assert.Equal(t, c.killed, killed)
			})
		})
	}
}

// TestStartOutlivesItsCaller: a command starts after its caller has given up. It continues
// with the context of its stream, and not with the caller's context.
func TestStartOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, stream := io.Pipe()
		defer stream.Close()
		start := &engine.Start{
			Stream: logstream.Command{Client: apiClient(t, func(req *http.Request) (*http.Response, error) {
				resp, err := commandResponse("ours", "x")
				if err != nil || req.Method == http.MethodGet {
					return resp, err
				}
				time.Sleep(2 * time.Second)
				context.AfterFunc(req.Context(), func() { stream.CloseWithError(req.Context().Err()) })
				resp.Header.Set("Content-Type", "application/x-ndjson")
				resp.Body = struct {
					io.Reader
					io.Closer
				}{io.MultiReader(resp.Body, strings.NewReader("\n"), body), body}
				return resp, nil
			}), Session: "s1", ID: "ours", Limits: logstream.Limits{Attempts: 1, Limit: time.Minute, Wait: time.Second}},
			Body:  &engine.Body{Command: "x", Args: []string{}, Wait: true, Logs: true},
			Check: func(string) error { return nil },
			Kill:  func(context.Context, string) {},
		}
		caller, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		live, end := context.WithCancel(t.Context())
		defer end()
		_, r, release, err := start.Begin(caller, live)
		require.NoError(t, err)
		defer release()
		time.AfterFunc(time.Minute, func() {
			_, err := io.WriteString(stream, `{"stream":"stdout","data":"late\n"}`+"\n")
			assert.NoError(t, err)
		})
		_, data, err := r.Next()
		require.NoError(t, err)
		assert.Equal(t, "late\n", string(data))
		time.AfterFunc(time.Minute, end)
		_, _, err = r.Next()
		assert.ErrorIs(t, err, context.Canceled)
	})
}
