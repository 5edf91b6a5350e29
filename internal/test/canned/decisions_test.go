package canned_test

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

// TestPlainRefusal: if the API refuses a start, the call returns the error at once. It does
// not look up the command.
func TestPlainRefusal(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*sandbox.Sandbox) error{
		"RunCommand": func(sb *sandbox.Sandbox) error {
			_, err := sb.RunCommand(t.Context(), "x", nil, &sandbox.CommandOptions{KillOnCancel: true})
			return err
		},
		"StartCommand": func(sb *sandbox.Sandbox) error {
			_, err := sb.StartCommand(t.Context(), "x", nil, nil)
			return err
		},
		"Cmd": func(sb *sandbox.Sandbox) error { return sb.CommandContext(t.Context(), "x").Run() },
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			sb := canned.API(func(req *http.Request) (*http.Response, error) {
				requests = append(requests, req.Method+" "+req.URL.Path)
				return canned.JSON(400, `{"error":{"code":"bad_request","message":"no"}}`), nil
			}).Sandbox(t)
			err := start(sb)
			assert.ErrorIs(t, err, sandbox.ErrRefused)
			assert.NotErrorIs(t, err, sandbox.ErrOutcomeUnknown)
			assert.Len(t, requests, 1, "%q", requests)
		})
	}
}

// TestCallersRedirects: the client follows a redirect only if the CheckRedirect of the
// caller's HTTP client permits it.
func TestCallersRedirects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // because of the pauses between retries
		refused := errors.New("refused redirect")
		var target string
		c, err := sandbox.NewClient(&sandbox.ClientOptions{
			BaseURL: "https://api.test", Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
			HTTPClient: &http.Client{
				Transport: canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
					resp := canned.Response(http.StatusTemporaryRedirect, "text/plain", strings.NewReader(""))
					resp.Header.Set("Location", "https://api.test/elsewhere")
					resp.Request = req
					return resp, nil
				}),
				CheckRedirect: func(req *http.Request, _ []*http.Request) error {
					target = req.URL.Path
					return refused
				},
			},
		})
		require.NoError(t, err)
		_, err = c.Get(t.Context(), "box", nil)
		assert.ErrorIs(t, err, refused)
		assert.Equal(t, "/elsewhere", target)
	})
}

// TestDeleteOfAnother: the API deletes a sandbox by its name. If the response shows that it
// has deleted another sandbox than the handle's, the error matches ErrReplaced.
func TestDeleteOfAnother(t *testing.T) {
	t.Parallel()
	for created, want := range map[string]error{"1760000000000": nil, "1760000000001": sandbox.ErrReplaced} {
		c := canned.API(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodDelete {
				return canned.JSON(200, `{"sandbox":{"name":"box","status":"running","createdAt":`+created+`}}`), nil
			}
			return canned.JSON(200, strings.Replace(canned.RunningSandbox, `"name"`, `"createdAt":1760000000000,"name"`, 1)), nil
		}).Client(t)
		sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
		require.NoError(t, err)
		err = sb.Delete(t.Context(), nil)
		if want == nil {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, want)
		}
	}
}

// TestDeleteFindsAnother: if another sandbox has the handle's name, Delete deletes nothing.
func TestDeleteFindsAnother(t *testing.T) {
	t.Parallel()
	created, deletes := "1760000000000", 0
	c := canned.API(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodDelete {
			deletes++
		}
		return canned.JSON(200, strings.Replace(canned.RunningSandbox, `"name"`, `"createdAt":`+created+`,"name"`, 1)), nil
	}).Client(t)
	sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	created = "1760000000001"
	require.ErrorIs(t, sb.Delete(t.Context(), nil), sandbox.ErrDeleted)
	assert.Zero(t, deletes)
}

// TestUpdateReachesTheMachine: an update also applies to a session that another client has
// started without the handle's knowledge.
func TestUpdateReachesTheMachine(t *testing.T) {
	t.Parallel()
	var policies []string
	now := "s1"
	c := canned.API(func(req *http.Request) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/network-policy") {
			policies = append(policies, req.URL.Path)
			return canned.JSON(200, `{"session":{"id":"s2","status":"running"}}`), nil
		}
		return canned.JSON(200, strings.ReplaceAll(canned.RunningSandbox, "s1", now)), nil
	}).Client(t)
	sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	now = "s2"
	require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{NetworkPolicy: &sandbox.NetworkPolicy{Mode: sandbox.PolicyDenyAll}}))
	require.Len(t, policies, 1)
	assert.Contains(t, policies[0], "/s2/")
}

// TestOpenFailsAtOnce: if a file can't be read, Open returns the error, and not a later Read.
// This includes files that a helper program reads.
func TestOpenFailsAtOnce(t *testing.T) {
	t.Parallel()
	sb := canned.API(func(*http.Request) (*http.Response, error) {
		said := `{"stream":"stderr","data":"base64: x: No such file or directory\n"}` + "\n"
		return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun+said+canned.Ended)), nil
	}).Sandbox(t)
	ada, err := sb.AsUser("ada")
	require.NoError(t, err)
	for name, fsys := range map[string]*sandbox.FileSystem{"missing\xff": sb.FS(), "missing": ada.FS()} {
		file, err := fsys.Open(t.Context(), name, nil)
		assert.ErrorIs(t, err, fs.ErrNotExist, "%q", name)
		assert.Nil(t, file, "%q", name)
	}
}

// TestFileSizeUnknown: the client runs a helper program to get a file's size. If the API
// refuses the program, or the sandbox lacks it, the client reads the file without a check.
// If the program fails in another way, the read fails.
func TestFileSizeUnknown(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]struct {
		status     int
		kind, body string
		fails      bool
	}{
		"the credentials permit no commands": {403, "application/json", `{"error":{"code":"forbidden","message":"not for you"}}`, false},
		"the API refuses the command":        {400, "application/json", `{"error":{"code":"bad_request","message":"no"}}`, false},
		"the sandbox has no program stat":    {400, "application/json", `{"error":{"code":"executable_not_found","message":"stat"}}`, false},
		"the page of a gateway":              {403, "text/html", `<html>blocked</html>`, true},
		"an empty page":                      {200, "text/html", ``, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := canned.API(func(req *http.Request) (*http.Response, error) {
					if strings.HasSuffix(req.URL.Path, "/fs/read") {
						return canned.Response(200, "application/octet-stream", strings.NewReader("content")), nil
					}
					return canned.Response(size.status, size.kind, strings.NewReader(size.body)), nil
				}).Sandbox(t)
				data, err := sb.FS().ReadFile(t.Context(), "f")
				if size.fails {
					assert.Error(t, err)
					return
				}
				assert.NoError(t, err)
				assert.Equal(t, "content", string(data))
			})
		})
	}
}
