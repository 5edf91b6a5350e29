package main_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/canned"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// service is an API that responds with observed or documented responses, and records the
// requests. The first matching pattern determines the response to a request. A pattern is
// "METHOD /path", optionally followed by "?" and a text that the query must contain.
type service struct {
	t         *testing.T
	responses [][2]string // pairs of a pattern and "STATUS BODY"
	header    http.Header
	asked     []string // the requests, as "METHOD path?query"
	bodies    []string
	types     []string
	agents    []string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	asked := r.Method + " " + r.URL.Path + "?" + r.URL.RawQuery
	s.asked, s.bodies, s.types = append(s.asked, asked), append(s.bodies, string(body)), append(s.types, r.Header.Get("Content-Type"))
	s.agents = append(s.agents, r.Header.Get("User-Agent"))
	for i, a := range s.responses {
		path, query, _ := strings.Cut(strings.TrimSuffix(a[0], " once"), "?")
		if r.Method+" "+r.URL.Path != path || !strings.Contains(r.URL.RawQuery, query) {
			continue
		}
		if strings.HasSuffix(a[0], " once") {
			s.responses = append(s.responses[:i:i], s.responses[i+1:]...)
		}
		status, text, _ := strings.Cut(a[1], " ")
		code, err := strconv.Atoi(status)
		require.NoError(s.t, err)
		resp := canned.JSON(code, text)
		if strings.Contains(text, "}\n") {
			resp.Header.Set("Content-Type", "application/x-ndjson")
		}
		maps.Copy(resp.Header, s.header)
		return resp, nil
	}
	if r.Method == http.MethodGet && ownCommand.MatchString(r.URL.Path) {
		return canned.JSON(http.StatusNotFound, `{"error":{"code":"not_found","message":"Command not found"}}`), nil
	}
	s.t.Errorf("unexpected request: %s %s", asked, body)
	return canned.JSON(418, `{}`), nil
}

// ownCommand matches the path of a command with an ID that the client has chosen. This
// service ignores such IDs.
var ownCommand = regexp.MustCompile(`/cmd/c[0-9a-f]{32}$`)

func (s *service) client() *sandbox.Client {
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		HTTPClient: &http.Client{Transport: s}, BaseURL: "https://api.test",
		Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
	})
	require.NoError(s.t, err)
	return c
}

// count returns the number of requests that begin with a text.
func (s *service) count(begin string) (n int) {
	for _, a := range s.asked {
		if strings.HasPrefix(a, begin) {
			n++
		}
	}
	return n
}

// sent returns the body of the last request that begins with a text.
func (s *service) sent(begin string) (body map[string]any) {
	for i, a := range s.asked {
		if strings.HasPrefix(a, begin) {
			body = nil
			require.NoError(s.t, json.Unmarshal([]byte(s.bodies[i]), &body))
		}
	}
	return body
}
