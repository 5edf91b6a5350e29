package agent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

// TestRetryAfter: the model and the program get the time of Retry-After, in each of its forms.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header func() string
		text   string
		wait   any
	}{
		{func() string { return "600" }, "can be made in 10m0s", 10 * time.Minute},
		{func() string { return "90" }, "can be made in 1m30s", 90 * time.Second},
		{func() string { return time.Now().Add(2 * time.Hour).UTC().Format(http.TimeFormat) }, "can be made in 2h0m0s", 2 * time.Hour},
		{func() string { return "" }, "does not say for how long", nil},
		{func() string { return "soon" }, "does not say for how long", nil},
		{func() string { return "-5" }, "does not say for how long", nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			header := c.header()
			client, err := sandbox.NewClient(&sandbox.ClientOptions{
				HTTPClient: &http.Client{Transport: canned.API(func(req *http.Request) (*http.Response, error) {
					if req.Method != http.MethodPost {
						return canned.JSON(http.StatusOK, canned.RunningSandbox), nil
					}
					resp := canned.JSON(http.StatusTooManyRequests, `{"error": {"code": "rate_limited", "message": "x"}}`)
					resp.Header.Set("Retry-After", header)
					return resp, nil
				})},
				Credentials: auth.Static(auth.Credentials{Token: "t", TeamID: "team", ProjectID: "prj"}), MaxRetries: -1,
			})
			require.NoError(t, err)
			sb, err := client.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			tools := agent.New(sb, nil)
			defer tools.Close()
			result, err := tools.Call(t.Context(), "bash", json.RawMessage(`{"command": "true"}`))
			require.ErrorIs(t, err, sandbox.ErrRateLimited)
			assert.Contains(t, result.Text, c.text, fmt.Sprintf("%q", header))
			assert.Equal(t, c.wait, result.Data["retry_after"], fmt.Sprintf("%q", header))
		})
	}
}
