package limits_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

// TestLongRecord: the output in a record of almost 16 MiB arrives, and a longer one
// is an error that comes with the exit code, by each way to run a command, which
// runs once.
func TestLongRecord(t *testing.T) {
	t.Parallel()
	// records serves a stream whose output is one record with so many bytes.
	records := func(t *testing.T, size int64, exit int) (*sandbox.Sandbox, *atomic.Int32) {
		var runs atomic.Int32
		stream := func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			fmt.Fprintf(w, canned.Command+"\n"+`{"data":"before","stream":"stderr"}`+"\n"+`{"data":"`, "null")
			block := strings.Repeat("x", 1<<20)
			for left := size; left > 0; left -= int64(len(block)) {
				if _, err := io.WriteString(w, block[:min(left, int64(len(block)))]); err != nil {
					return
				}
			}
			fmt.Fprintf(w, `","stream":"stdout"}`+"\n"+`{"data":"after","stream":"stderr"}`+"\n"+canned.Command+"\n", fmt.Sprint(exit))
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/cmd"):
				runs.Add(1)
				var body bytes.Buffer
				_, _ = io.Copy(&body, r.Body)
				if strings.Contains(body.String(), `"wait":true`) {
					stream(w)
					return
				}
				fmt.Fprintf(w, canned.Command, "null")
			case strings.HasSuffix(r.URL.Path, "/logs"):
				stream(w)
			case strings.Contains(r.URL.Path, "/cmd/"):
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, canned.Command, fmt.Sprint(exit))
			default:
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"sandbox":`+canned.Sandbox+`,"session":`+canned.Session+`,"routes":[]}`, 0)
			}
		}))
		t.Cleanup(srv.Close)
		c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: srv.URL, Credentials: auth.Static(auth.Credentials{Token: "any", TeamID: "team", ProjectID: "project"})})
		require.NoError(t, err)
		t.Cleanup(c.CloseIdleConnections)
		sb, err := c.Create(t.Context(), nil)
		require.NoError(t, err)
		return sb, &runs
	}
	for name, run := range map[string]func(sb *sandbox.Sandbox, w io.Writer) (int, error){
		"RunCommand": func(sb *sandbox.Sandbox, w io.Writer) (int, error) {
			done, err := sb.RunCommand(t.Context(), "print", nil, &sandbox.CommandOptions{Stdout: w})
			if done == nil {
				return 0, err
			}
			return done.ExitCode, err
		},
		"StartCommand": func(sb *sandbox.Sandbox, w io.Writer) (int, error) {
			cmd, err := sb.StartCommand(t.Context(), "print", nil, &sandbox.StartOptions{Stdout: w})
			require.NoError(t, err)
			done, err := cmd.Wait(t.Context())
			if done == nil {
				return 0, err
			}
			return done.ExitCode, err
		},
		"Cmd": func(sb *sandbox.Sandbox, w io.Writer) (int, error) {
			cmd := sb.CommandContext(t.Context(), "print")
			cmd.Stdout = w
			err := cmd.Run()
			return cmd.ProcessState.ExitCode(), err
		},
		"Logs": func(sb *sandbox.Sandbox, w io.Writer) (int, error) {
			cmd, err := sb.StartCommand(t.Context(), "print", nil, nil)
			require.NoError(t, err)
			for chunk, err := range cmd.Logs(t.Context()) {
				if err != nil {
					return 7, err // there is none to ask for
				}
				if chunk.Stream == sandbox.Stdout {
					_, _ = io.WriteString(w, chunk.Data)
				}
			}
			return 7, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 16<<20 - 64
			exit := 7
			if name == "Cmd" {
				exit = 0 // any other would be the error
			}
			sb, runs := records(t, most, exit)
			var out counter
			code, err := run(sb, &out)
			require.NoError(t, err)
			assert.Equal(t, []int{exit, most}, []int{code, int(out)})
			assert.EqualValues(t, 1, runs.Load())

			sb, runs = records(t, 1<<30, exit)
			out = 0
			code, err = run(sb, &out)
			lost, ok := errors.AsType[*sandbox.StreamError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, "record_too_long", lost.Code)
			assert.Contains(t, lost.Error(), "longer than 16777216 bytes")
			assert.Equal(t, []int{exit, 0}, []int{code, int(out)})
			assert.EqualValues(t, 1, runs.Load())
		})
	}
}
