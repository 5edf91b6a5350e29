package promises_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In these tests, requests and streams stay open without data, because the platform's edge
// has forgotten them but keeps their connections. The tests use a fake clock.

const (
	firstOutput  = `{"stream":"stdout","data":"one\n"}` + "\n"
	secondOutput = `{"stream":"stderr","data":"two\n"}` + "\n"
)

// TestForgottenStream: if a stream sends nothing, the client looks up its command. If the
// command has ended, the call returns all of its output and its exit code.
func TestForgottenStream(t *testing.T) {
	for name, run := range map[string]func(context.Context, *sandbox.Sandbox) (string, int, error){
		"RunCommand": func(ctx context.Context, sb *sandbox.Sandbox) (string, int, error) {
			done, err := sb.RunCommand(ctx, "x", nil, nil)
			if err != nil {
				return "", 0, err
			}
			out, err := done.CombinedOutput(ctx)
			return out, done.ExitCode, err
		},
		"Output": func(ctx context.Context, sb *sandbox.Sandbox) (string, int, error) {
			cmd, err := sb.GetCommand(ctx, "c1")
			if err != nil {
				return "", 0, err
			}
			out, err := cmd.CombinedOutput(ctx)
			return out, 3, err
		},
	} {
		for at, brought := range map[string]string{"before the output": "", "within the output": firstOutput, "after the output": firstOutput + secondOutput} {
			t.Run(name+" "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begin, logs := time.Now(), 0
					const runs = 30 * time.Second
					sb := canned.API(func(req *http.Request) (*http.Response, error) {
						over := time.Since(begin) >= runs
						switch {
						case testkit.IsRun(req):
							return canned.Forgotten(req, canned.Begun+brought)
						case testkit.IsLogs(req):
							if logs++; logs == 1 && name != "RunCommand" {
								return canned.Forgotten(req, brought)
							}
							return canned.Response(200, "application/x-ndjson", strings.NewReader(firstOutput+secondOutput)), nil
						case over:
							return canned.JSON(200, canned.Ended), nil
						case req.URL.Query().Get("wait") == "":
							return canned.JSON(200, canned.Begun), nil
						}
						select {
						case <-time.After(runs - time.Since(begin)):
							return canned.JSON(200, canned.Ended), nil
						case <-req.Context().Done():
							return nil, req.Context().Err()
						}
					}).Sandbox(t)
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					out, code, err := run(ctx, sb)
					require.NoError(t, err)
					assert.Equal(t, "one\ntwo\n", out)
					assert.Equal(t, 3, code)
					assert.Less(t, time.Since(begin), runs+2*time.Minute, "the client looks up the command at least once a minute")
				})
			})
		}
	}
}

// TestStreamClosedByServer: if the server reports that it has closed a stream, the client
// opens it again. If the stream then makes no progress, the client returns the server's
// error.
func TestStreamClosedByServer(t *testing.T) {
	const closed = `{"stream":"error","data":{"code":"sandbox_stream_closed","message":"Sandbox stream closed"}}` + "\n"
	for name, c := range map[string]struct {
		logs  []string // the responses, in order
		fails bool
	}{
		"the stream is closed once":                   {logs: []string{firstOutput + secondOutput, firstOutput + secondOutput}},
		"the stream is closed twice without progress": {logs: []string{firstOutput + closed}, fails: true},
		"the stream is closed again after progress":   {logs: []string{firstOutput + secondOutput + closed, firstOutput + secondOutput, firstOutput + secondOutput}},
		"the log is closed at once":                   {logs: []string{closed}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opened := 0
				sb := canned.API(func(req *http.Request) (*http.Response, error) {
					switch {
					case testkit.IsRun(req):
						return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun+firstOutput+closed)), nil
					case testkit.IsLogs(req):
						if opened++; opened > len(c.logs) {
							t.Errorf("the log was opened %d times", opened)
							return canned.JSON(410, `{"error":{"code":"sandbox_stopped","message":"stopped"}}`), nil
						}
						return canned.Response(200, "application/x-ndjson", strings.NewReader(c.logs[opened-1])), nil
					}
					return canned.JSON(200, canned.Ended), nil
				}).Sandbox(t)
				done, err := sb.RunCommand(t.Context(), "x", nil, nil)
				assert.Equal(t, len(c.logs), opened)
				if c.fails {
					e, ok := errors.AsType[*sandbox.StreamError](err)
					require.True(t, ok, "%v", err)
					assert.Equal(t, "sandbox_stream_closed", e.Code)
					assert.Equal(t, "c1", e.CommandID)
					return
				}
				require.NoError(t, err)
				out, err := done.CombinedOutput(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "one\ntwo\n", out)
			})
		})
	}
}

// TestKeepAliveShortMargin: even with a short margin, KeepAlive extends the session in time
// if one of its requests gets no response.
func TestKeepAliveShortMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step, margin = 20 * time.Second, 2 * time.Second
		begin, end := time.Now(), time.Now().Add(step)
		dropped := false
		var mu sync.Mutex
		sb := canned.API(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case !dropped && time.Until(end) <= margin:
				dropped = true
				mu.Unlock()
				defer mu.Lock()
				return canned.Unanswered(req)
			case req.Method == http.MethodPost:
				end, dropped = end.Add(step), false
			}
			return canned.JSON(200, fmt.Sprintf(`{"session":{"id":"s1","status":"running","startedAt":%d,"timeout":%d},"routes":[]}`, begin.UnixMilli(), end.Sub(begin).Milliseconds())), nil
		}).Sandbox(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Margin: margin, Step: step}) }()
		for range 59 {
			time.Sleep(time.Minute)
			mu.Lock()
			left := time.Until(end)
			mu.Unlock()
			require.Positive(t, left, "the session timed out after %v", time.Since(begin))
		}
		cancel()
		require.NoError(t, <-ended)
	})
}

// TestKeepAliveOutlastsSilence: KeepAlive continues if a request never gets a response, or
// if credentials are temporarily missing. It still extends the session in time.
func TestKeepAliveOutlastsSilence(t *testing.T) {
	for _, what := range []string{"the extension", "the service", "the credentials"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				trouble := func() bool { return time.Since(begin) >= time.Minute && time.Since(begin) < 2*time.Minute }
				var life atomic.Int64
				life.Store(int64(3 * time.Minute))
				session := func() string {
					return fmt.Sprintf(`{"session":{"id":"s1","status":"running","startedAt":%d,"timeout":%d},"routes":[]}`, begin.UnixMilli(), time.Duration(life.Load()).Milliseconds())
				}
				var log testkit.LockedBuffer
				c, err := sandbox.NewClient(&sandbox.ClientOptions{
					BaseURL: "https://api.test", Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Credentials: auth.ProviderFunc(func(context.Context) (auth.Credentials, error) {
						if what == "the credentials" && trouble() {
							return auth.Credentials{}, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("network is unreachable")}
						}
						return auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}, nil
					}),
					HTTPClient: &http.Client{Transport: canned.API(func(req *http.Request) (*http.Response, error) {
						extends := req.Method == http.MethodPost
						switch {
						case strings.HasPrefix(req.URL.Path, "/v2/sandboxes/box"):
							return canned.JSON(200, canned.RunningSandbox), nil
						case trouble() && what == "the extension" && extends:
							return canned.Unanswered(req)
						case trouble() && what == "the service":
							return canned.JSON(503, `{"error":{"code":"unavailable","message":"busy"}}`), nil
						case extends:
							life.Add(int64(3 * time.Minute))
						}
						return canned.JSON(200, session()), nil
					})},
				})
				require.NoError(t, err)
				sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					ended <- sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Margin: 2 * time.Minute, Step: 3 * time.Minute})
				}()
				for range 59 {
					time.Sleep(time.Minute)
					require.Less(t, time.Since(begin), time.Duration(life.Load()), "the session timed out")
				}
				require.NoError(t, <-ended)
				assert.Regexp(t, `level=(WARN|ERROR) msg="sandbox request: .*operation="extend timeout"`, log.String(), "KeepAlive logs the temporary failure")
			})
		})
	}
}

// TestWaitForPortOutlastsSilence: WaitForPort notices that the server is up even if its
// lookup of the session never gets a response.
func TestWaitForPortOutlastsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, looks := time.Now(), 0
		const comesUp = 15 * time.Second
		box := strings.Replace(canned.RunningSandbox, `"routes":[]`, `"routes":[{"url":"https://a-3000.example.com","subdomain":"a","port":3000}]`, 1)
		c := canned.API(func(req *http.Request) (*http.Response, error) {
			if strings.HasPrefix(req.URL.Path, "/v2/sandboxes/box") {
				return canned.JSON(200, box), nil
			}
			looks++
			return canned.Unanswered(req)
		}).Client(t)
		sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = sb.WaitForPort(ctx, 3000, &sandbox.WaitForPortOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(*http.Request) (*http.Response, error) {
			if time.Since(begin) < comesUp {
				return canned.Response(502, "text/plain", strings.NewReader("")), nil
			}
			return canned.Response(200, "text/plain", strings.NewReader("hello")), nil
		})}})
		require.NoError(t, err)
		assert.Positive(t, looks)
		assert.Less(t, time.Since(begin), 2*comesUp)
	})
}
