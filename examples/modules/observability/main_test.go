package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMetricsAreServed: every metric that a panel of the dashboard or a query of
// docs/observability.md asks for is served after a while with trouble.
func TestMetricsAreServed(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	for _, v := range srv.Environ() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = run(ctx, listener, "http://127.0.0.1:1", 2, true) // ends with ctx, in the middle of a call
	}()
	defer func() {
		stop()
		<-ended
	}()

	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	require.NoError(t, json.Unmarshal(dashboard, &board))
	doc, err := os.ReadFile("../../../docs/observability.md")
	require.NoError(t, err)
	_, queries, found := strings.Cut(string(doc), "\n## Ten questions\n")
	require.True(t, found)
	queries, _, _ = strings.Cut(queries, "\n## ")
	for _, p := range board.Panels {
		queries += p.Targets[0].Expr + "\n"
	}
	wanted := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bsandbox_[a-z_]+_(?:bucket|count|sum|total|remaining|active)\b`).FindAllString(queries, -1) {
		wanted[name] = true
	}
	require.Greater(t, len(wanted), 8)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		resp, err := http.Get("http://" + listener.Addr().String() + "/metrics")
		require.NoError(c, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(c, err)
		for name := range wanted {
			assert.Contains(c, string(text), "\n"+name+"{", name)
		}
	}, testkit.Patience, 100*time.Millisecond)
}
