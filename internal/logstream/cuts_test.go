package logstream

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReplayCutShort: a replay shorter than the delivered output does not confirm the end.
func TestReplayCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := threeLines()
		time.Sleep(2 * time.Second)
		one := len(s.lines[0].record())
		two := one + len(s.lines[1].record())
		s.strikes = append(s.strikes, cut(two, io.EOF), cut(one, io.EOF))
		s.assertComplete(t, Follow(t.Context(), s.reach(t), nil))
	})
}

// TestStreamFlowsAgain: a silent stream is read further, not reopened, if output follows
// just after the lookup of its command.
func TestStreamFlowsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := threeLines()
		pr, pw := io.Pipe()
		s.strikes = append(s.strikes, func(_ *http.Request, resp *http.Response) (*http.Response, error) {
			resp.Body.Close()
			resp.Body = pr
			go func() { _, _ = io.WriteString(pw, s.lines[0].record()) }()
			return resp, nil
		})
		s.looks = append(s.looks, func(_ *http.Request, resp *http.Response) (*http.Response, error) {
			go func() {
				time.Sleep(endGrace / 2)
				_, _ = io.WriteString(pw, s.lines[1].record())
				time.Sleep(endGrace)
				_, _ = io.WriteString(pw, s.lines[2].record())
				pw.Close()
			}()
			return resp, nil
		})
		s.assertComplete(t, Follow(t.Context(), s.reach(t), nil))
		assert.Equal(t, 2, s.opened, "the log, and its replay at the end")
	})
}

// TestCutsByThePlatform: a stream that the platform cuts every few minutes is reopened as long
// as its command runs, even without output.
func TestCutsByThePlatform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := threeLines()
		s.ends = 4 * time.Hour
		for range 40 {
			s.strikes = append(s.strikes, func(_ *http.Request, resp *http.Response) (*http.Response, error) {
				from := resp.Body
				time.AfterFunc(5*time.Minute, func() { from.Close() })
				return resp, nil
			})
		}
		s.assertComplete(t, Follow(t.Context(), s.reach(t), nil))
		assert.Empty(t, s.strikes)
	})
}

// TestWaitCountsInARow: only consecutive failures count. A lookup that shows a running command
// resets the count.
func TestWaitCountsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := threeLines()
		s.ends = time.Hour
		for range 25 {
			s.looks = append(s.looks,
				func(*http.Request, *http.Response) (*http.Response, error) { return page(404), nil },
				func(_ *http.Request, resp *http.Response) (*http.Response, error) { return resp, nil })
		}
		end, err := Wait(t.Context(), s.reach(t))
		require.NoError(t, err)
		assert.Equal(t, s.code, *end.ExitCode)
		assert.Empty(t, s.looks)
	})
}
