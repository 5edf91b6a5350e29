package devserver_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestErrorsOfRoutes: each route responds with an error to a request that it cannot serve.
func TestErrorsOfRoutes(t *testing.T) {
	_, config := startEmulator(t)
	_, base := startService(t, config)
	request := func(method, path, body, origin string) (int, string) {
		req, err := http.NewRequest(method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, b.String()
	}
	for _, c := range []struct {
		method, path, body, origin string
		want                       int
	}{
		{"POST", "/command", `{"runId":"ses-nobody","command":"x"}`, "", 410},
		{"POST", "/command", `{"command":"x"}`, "", 400},
		{"POST", "/command", `{"runId":"a","command":""}`, "", 400},
		{"POST", "/command", `{`, "", 400},
		{"POST", "/command", `{"runId":"../../etc","command":"x"}`, "", 410},
		{"POST", "/command", `{"runId":"a","command":"` + strings.Repeat("x", 300<<10) + `"}`, "", 413},
		{"POST", "/interrupt", `{"runId":"a","signal":"SIGNOTHING"}`, "", 400},
		{"GET", "/events?runId=ses-nobody", "", "", 410},
		{"GET", "/events?runId=a&cursor=x", "", "", 400},
		{"GET", "/session?runId=ses-nobody", "", "", 410},
		{"POST", "/start", "", "https://evil.example", 403},
		{"GET", "/nothing", "", "", 404},
	} {
		status, text := request(c.method, c.path, c.body, c.origin)
		assert.Equal(t, c.want, status, "%s %s %.60s: %s", c.method, c.path, c.body, text)
	}
	if status, text := request("GET", "/", "", ""); assert.Equal(t, 200, status) {
		assert.Contains(t, text, "Sandbox sessions")
	}
}
