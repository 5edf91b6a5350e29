package main

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestSessionStopsInTheMiddle: the conversation continues after its session has stopped
// during a call.
func TestSessionStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, nil)
	tools := agent.New(sb, nil)
	defer tools.Close()
	go func() {
		other, err := srv.Client().Get(t.Context(), sb.Name(), &sandbox.GetOptions{NoResume: true})
		if !assert.NoError(t, err) {
			return
		}
		for {
			if _, err = other.FS().Stat(t.Context(), "begun"); !errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		_, err = other.Stop(t.Context(), nil)
		assert.NoError(t, err)
	}()
	var seen []string
	require.NoError(t, solve(t.Context(), tools, func(step int, last string) (string, map[string]any) {
		seen = append(seen, last)
		if step > 0 && !stopped(last) {
			return "", nil
		}
		return "bash", map[string]any{"command": "[ -e begun ] || { touch begun; sleep 1000; }"}
	}))
	require.Len(t, seen, 3)
	assert.True(t, stopped(seen[1]), seen[1])
	assert.Equal(t, "Exit code 0. No output.", seen[2])
}
