package client_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

const creatorEnv = "SANDBOX_TEST_CREATOR"

// TestOnCreateOfKilledProcess: a process is killed while its OnCreate runs. Three minutes
// later, the call of another process runs its own OnCreate for the same sandbox.
func TestOnCreateOfKilledProcess(t *testing.T) {
	if os.Getenv(creatorEnv) != "" {
		client, err := sandbox.DefaultClient()
		require.NoError(t, err)
		_, err = getOrCreate(t.Context(), client, func(ctx context.Context, sb *sandbox.Sandbox) error {
			if err := sb.FS().WriteFile(ctx, "half", []byte("written"), 0o644); err != nil {
				return err
			}
			fmt.Println("half done")
			<-ctx.Done() // the process is killed
			return ctx.Err()
		})
		t.Fatal(err)
	}
	srv := newServer(t)
	process := exec.Command(os.Args[0], "-test.run=^TestOnCreateOfKilledProcess$")
	process.Env = append(append(os.Environ(), srv.Environ()...), creatorEnv+"=1")
	stdout, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, process.Process.Kill())
	_ = process.Wait()
	require.NoError(t, err)
	require.Equal(t, "half done\n", line)

	options := sandbox.ClientOptions{BaseURL: srv.URL, Credentials: testkit.Credentials(srv), HTTPClient: &http.Client{Transport: transportOutsideBubble(t)}}
	synctest.Test(t, func(t *testing.T) {
		client, err := sandbox.NewClient(&options)
		require.NoError(t, err)
		begin, found := time.Now(), ""
		sb, err := getOrCreate(t.Context(), client, func(ctx context.Context, sb *sandbox.Sandbox) error {
			assert.Greater(t, time.Since(begin), 3*time.Minute)
			assert.Less(t, time.Since(begin), 4*time.Minute)
			text, err := sb.FS().ReadFile(ctx, "half")
			found = string(text)
			return err
		})
		require.NoError(t, err)
		assert.Equal(t, "written", found)
		assert.Equal(t, map[string]string{"mine": "1"}, sb.Info().Tags)
	})
}

// transportOutsideBubble returns a transport for clients in a synctest bubble. A goroutine outside of the
// bubble sends the requests, one at a time, because the time in a bubble stands still
// while one of its goroutines reads from a connection.
func transportOutsideBubble(t *testing.T) http.RoundTripper {
	t.Helper()
	type result struct {
		resp *http.Response
		err  error
	}
	requests, results := make(chan *http.Request), make(chan result)
	transport := testkit.Transport(t)
	go func() {
		for req := range requests {
			resp, err := transport.RoundTrip(req)
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				resp.Body = io.NopCloser(bytes.NewReader(body))
			}
			results <- result{resp, err}
		}
	}()
	t.Cleanup(func() { close(requests) })
	var mu sync.Mutex
	return canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		requests <- req.Clone(context.Background())
		r := <-results
		return r.resp, r.err
	})
}
