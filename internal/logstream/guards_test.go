package logstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const record = `{"stream":"stdout","data":"one\n"}` + "\n"

// TestWaitedStreamEnds: the record of its end completes a waited command's stream, without a
// request for the log.
func TestWaitedStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := threeLines()
		r := Waited(t.Context(), s.reach(t), io.NopCloser(strings.NewReader(first+record+strings.Replace(first, "null", "3", 1))))
		_, err := r.Start()
		require.NoError(t, err)
		assert.Nil(t, r.End(), "a command that has just started has no end")
		stdout, _, err := drain(r)
		require.NoError(t, err)
		assert.Equal(t, "one\n", stdout)
		assert.Zero(t, s.opened)
		assert.Zero(t, s.looked)
	})
	synctest.Test(t, func(t *testing.T) {
		s := threeLines()
		r := Waited(t.Context(), s.reach(t), io.NopCloser(strings.NewReader(strings.Replace(first, "null", "3", 1))))
		defer r.Close()
		_, err := r.Start()
		require.NoError(t, err)
		assert.NotNil(t, r.End(), "the first record of a short command may have its end")
	})
}

// TestLastRecordOfAnother: a stream that ends with the record of another command is broken. It
// gives no exit code and no end.
func TestLastRecordOfAnother(t *testing.T) {
	another := strings.NewReplacer(`"c1"`, `"c2"`, "null", "9").Replace(first)
	for name, records := range map[string]string{
		"after all output":  first + threeLines().lines[0].record() + threeLines().lines[1].record() + threeLines().lines[2].record() + another,
		"after some output": first + threeLines().lines[0].record() + another,
		"at once":           first + another,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := threeLines()
				r := Waited(t.Context(), s.reach(t), io.NopCloser(strings.NewReader(records)))
				_, err := r.Start()
				require.NoError(t, err)
				s.assertComplete(t, r)
				assert.Positive(t, s.opened, "the log is requested")
			})
		})
	}
	t.Run("in a log", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := threeLines()
			s.strikes = append(s.strikes, replaceResponse(func() *http.Response { return reply(200, "application/x-ndjson", strings.NewReader(another)) }))
			s.assertComplete(t, Follow(t.Context(), s.reach(t), nil))
		})
	})
}

// TestStartReasons: the error of a stream that ends before its first record wraps its cause,
// unless that is io.EOF.
func TestStartReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cause := range []error{io.EOF, syscall.ECONNRESET} {
			r := Waited(t.Context(), threeLines().reach(t), io.NopCloser(&ending{err: cause}))
			_, err := r.Start()
			r.Close()
			e, ok := errors.AsType[*Error](err)
			require.True(t, ok)
			if cause == io.EOF {
				assert.NoError(t, e.Err)
			} else {
				assert.ErrorIs(t, e.Err, cause)
			}
		}
	})
}

// TestDelivered: stdout and stderr are counted separately, also in a replay.
func TestDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{begin: time.Now(), ends: time.Second, lines: []line{{0, "stderr", "five!\n"}, {0, "stdout", "ab\n"}}}
		s.strikes = append(s.strikes, cut(len(s.lines[0].record()), syscall.ECONNRESET))
		r := Follow(t.Context(), s.reach(t), nil)
		_, _, err := r.Next()
		require.NoError(t, err)
		stdout, stderr := r.Delivered()
		assert.Equal(t, [2]bool{false, true}, [2]bool{stdout, stderr})
		s.lines[0], s.lines[1] = s.lines[1], s.lines[0] // a log may have its streams in another order
		out, more, err := drain(r)
		require.NoError(t, err)
		assert.Equal(t, [2]string{"ab\n", ""}, [2]string{out, more})
	})
}

// TestTalkingStream: while a stream delivers output, its command is not looked up.
func TestTalkingStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{begin: time.Now(), ends: 2 * time.Minute}
		for at := range 40 {
			s.lines = append(s.lines, line{time.Duration(at) * 3 * time.Second, "stdout", "x\n"})
		}
		s.assertComplete(t, Follow(t.Context(), s.reach(t), nil))
		assert.LessOrEqual(t, s.looked, 1, "for the end of the log alone")
	})
}

// TestSilentThroughOutage: a failed lookup does not close a silent stream.
func TestSilentThroughOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{begin: time.Now(), ends: 5 * time.Minute, lines: []line{{0, "stdout", "a\n"}, {4 * time.Minute, "stdout", "b\n"}}}
		for range 6 {
			s.looks = append(s.looks, replaceResponse(func() *http.Response { return page(404) })) // of a proxy: it is not retried
		}
		s.assertComplete(t, Follow(t.Context(), s.reach(t), nil))
		assert.LessOrEqual(t, s.opened, 2, "the log, and its replay at the end")
	})
}

// TestSilentAndGone: if the command is gone, a silent stream ends at the first lookup.
func TestSilentAndGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{begin: time.Now(), ends: 5 * time.Hour, lines: []line{{0, "stdout", "one\n"}}}
		gone := replaceResponse(func() *http.Response { return refused(410, "sandbox_stopped") })
		s.looks = append(s.looks, gone)
		s.strikes = append(s.strikes, silentAfter(s.lines[0].record()), gone)
		_, _, err := drain(Follow(t.Context(), s.reach(t), nil))
		require.Error(t, err)
		assert.Less(t, time.Since(s.begin), time.Minute)
	})
}

// TestForgottenEnd: an end that was found while the stream was silent is not looked up again.
func TestForgottenEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{begin: time.Now(), ends: 5 * time.Second, code: 3, lines: []line{{0, "stdout", "one\n"}}}
		s.strikes = append(s.strikes, silentAfter(s.lines[0].record()))
		s.assertComplete(t, Follow(t.Context(), s.reach(t), nil))
		assert.LessOrEqual(t, s.looked, 1)
	})
}

// TestLookNowAsksOnce: LookNow does not wait if the first response contains the end.
func TestLookNowAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := threeLines()
		time.Sleep(time.Minute)
		cmd := s.reach(t)
		got, err := cmd.LookNow(t.Context())
		require.NoError(t, err)
		assert.Equal(t, s.code, *got.ExitCode)
		assert.Equal(t, 1, s.looked)
	})
}

// silentAfter sends text and then stays silent, without ending the stream.
func silentAfter(text string) func(*http.Request, *http.Response) (*http.Response, error) {
	return func(req *http.Request, resp *http.Response) (*http.Response, error) {
		resp.Body.Close()
		pr, pw := io.Pipe()
		go func() {
			_, _ = io.WriteString(pw, text)
			<-req.Context().Done()
			pw.CloseWithError(req.Context().Err())
		}()
		resp.Body = pr
		return resp, nil
	}
}

// TestErrorOfAnotherKind: an error record other than "stream closed", and an invalid line, end
// the reader at once.
func TestErrorOfAnotherKind(t *testing.T) {
	for code, text := range map[string]string{
		"oom":             `{"stream":"error","data":{"code":"oom","message":"out of memory"}}` + "\n",
		CodeInvalidRecord: "<html>\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := threeLines()
			r := Waited(t.Context(), s.reach(t), io.NopCloser(strings.NewReader(first+record+text)))
			defer r.Close()
			_, err := r.Start()
			require.NoError(t, err)
			_, _, err = drain(r)
			e, ok := errors.AsType[*Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, code, e.Code)
			assert.Zero(t, s.opened)
		})
	}
}

// TestLimitOfAnOutage: the time limit also ends a repair.
func TestLimitOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts(Limits{Attempts: 100, Limit: time.Minute})
		time.Sleep(time.Minute)
		assert.False(t, a.exhausted(io.EOF))
		time.Sleep(time.Nanosecond)
		assert.True(t, a.exhausted(io.EOF))
	})
}
