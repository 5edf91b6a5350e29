package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// output takes what the program and the service's log write at the same time.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func TestExample(t *testing.T) {
	needs.Programs(t, "curl")
	var out output
	require.NoError(t, run(t.Context(), &out))
	text := out.b.String()
	assert.Contains(t, text, "my token is PLACEHOLDER\n")
	assert.Contains(t, text, "welcome\n")
	assert.Contains(t, text, "who are you?\n")
	assert.Contains(t, text, "Forbidden\n")
	assert.NotContains(t, text, apiToken)
	assert.Equal(t, 3, strings.Count(text, "sandbox request"), "one line a request")
}
