package logstream

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// threeLines returns a command that prints three lines immediately and ends a second later.
func threeLines() *service {
	return &service{begin: time.Now(), ends: time.Second, code: 3, lines: []line{
		{0, "stdout", "one\n"}, {0, "stderr", "zwei €\n"}, {0, "stdout", "three\n"},
	}}
}

// assertComplete checks that all output of the command was delivered.
func (s *service) assertComplete(t *testing.T, r *Reader) {
	t.Helper()
	stdout, stderr, err := drain(r)
	require.NoError(t, err)
	assert.Equal(t, s.want("stdout"), stdout)
	assert.Equal(t, s.want("stderr"), stderr)
	require.NotNil(t, r.End())
	assert.Equal(t, s.code, *r.End().ExitCode)
}

// TestEndIsConfirmed: a log is complete when a replay after the command's end stops at the
// same position.
func TestEndIsConfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		later          bool // after the command's end
		end            *wire.Command
		opened, looked int
	}{
		"before the end":    {false, nil, 2, 1},
		"after the end":     {true, nil, 2, 1},
		"after a known end": {true, &wire.Command{ID: "c1", ExitCode: new(3)}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := threeLines()
				if c.later {
					time.Sleep(2 * time.Second)
				}
				s.assertComplete(t, Follow(t.Context(), s.reach(t), c.end))
				assert.Equal(t, c.opened, s.opened)
				assert.Equal(t, c.looked, s.looked)
			})
		})
	}
}

// TestEveryCut: wherever and however a log breaks off, all of it is delivered once.
func TestEveryCut(t *testing.T) {
	for _, how := range []error{syscall.ECONNRESET, io.ErrUnexpectedEOF, io.EOF} {
		for _, state := range []string{"runs", "has ended", "is known to have ended"} {
			synctest.Test(t, func(t *testing.T) {
				size := 0
				for _, l := range threeLines().lines {
					size += len(l.record())
				}
				for at := range size {
					s := threeLines()
					var end *wire.Command
					if state != "runs" {
						time.Sleep(2 * time.Second)
					}
					if state == "is known to have ended" {
						end = &wire.Command{ID: "c1", ExitCode: new(3)}
					}
					s.strikes = append(s.strikes, cut(at, how))
					s.assertComplete(t, Follow(t.Context(), s.reach(t), end))
				}
			})
		}
	}
}

// TestRandomTrouble runs thousands of commands with cuts, proxies' error pages,
// refusals and failed lookups: the output is either complete, or a prefix
// followed by an error.
func TestRandomTrouble(t *testing.T) {
	rounds := 5000
	if !needs.Slow() {
		rounds = 500
	}
	synctest.Test(t, func(t *testing.T) {
		failed := 0
		for seed := range uint64(rounds) {
			rng := rand.New(rand.NewPCG(seed, 21))
			s := &service{begin: time.Now(), code: rng.IntN(256)}
			for range rng.IntN(12) {
				s.ends += time.Duration(rng.IntN(2000)) * time.Millisecond
				s.lines = append(s.lines, line{s.ends, []string{"stdout", "stderr"}[rng.IntN(2)], strings.Repeat("€x\n", rng.IntN(20))})
			}
			s.ends += time.Duration(rng.IntN(30_000)) * time.Millisecond
			trouble := func(stream bool) func(*http.Request, *http.Response) (*http.Response, error) {
				switch n := rng.IntN(8); {
				case n < 3 && stream:
					return cut(rng.IntN(600), []error{syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF}[rng.IntN(3)])
				case n == 3:
					return replaceResponse(func() *http.Response { return page([]int{200, 401, 403, 404, 408, 502, 503}[seed%7]) })
				case n == 4:
					return func(*http.Request, *http.Response) (*http.Response, error) { return nil, syscall.ECONNRESET }
				case n == 5:
					return cut(rng.IntN(40), io.ErrUnexpectedEOF)
				}
				return nil
			}
			for range rng.IntN(6) {
				s.strikes = append(s.strikes, trouble(true))
			}
			for range rng.IntN(3) {
				s.looks = append(s.looks, trouble(false))
			}
			if rng.IntN(4) == 0 {
				time.Sleep(s.ends) // it has ended before the first lookup
			}
			stdout, stderr, err := drain(Follow(t.Context(), s.reach(t), nil))
			if err != nil {
				failed++
				require.True(t, strings.HasPrefix(s.want("stdout"), stdout) && strings.HasPrefix(s.want("stderr"), stderr), "seed %d", seed)
				continue
			}
			require.Equal(t, s.want("stdout"), stdout, "seed %d", seed)
			require.Equal(t, s.want("stderr"), stderr, "seed %d", seed)
		}
		assert.Less(t, failed, rounds/20, "three refusals in a row are rare")
		t.Logf("%d commands, %d failed after a prefix of their output", rounds, failed)
	})
}

// TestRefusals: three consecutive responses of a proxy, or one error of the API, end a repair.
// Fewer, and temporary errors, do not.
func TestRefusals(t *testing.T) {
	broken := cut(30, syscall.ECONNRESET)
	forbidden := replaceResponse(func() *http.Response { return page(403) })
	for name, c := range map[string]struct {
		then []func(*http.Request, *http.Response) (*http.Response, error)
		code string // of the error; empty for none
	}{
		"twice a proxy":       {[]func(*http.Request, *http.Response) (*http.Response, error){broken, forbidden, forbidden}, ""},
		"three times":         {[]func(*http.Request, *http.Response) (*http.Response, error){broken, forbidden, forbidden, forbidden}, CodeLost},
		"the API, stopped":    {[]func(*http.Request, *http.Response) (*http.Response, error){broken, replaceResponse(func() *http.Response { return refused(410, "sandbox_stopped") })}, CodeLost},
		"the API, not found":  {[]func(*http.Request, *http.Response) (*http.Response, error){broken, replaceResponse(func() *http.Response { return refused(404, "not_found") })}, CodeLost},
		"an overloaded proxy": {append([]func(*http.Request, *http.Response) (*http.Response, error){broken}, repeat(10, replaceResponse(func() *http.Response { return page(503) }))...), ""},
		"without end":         {append([]func(*http.Request, *http.Response) (*http.Response, error){broken}, repeat(40, replaceResponse(func() *http.Response { return page(503) }))...), CodeEndedEarly},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := threeLines()
				s.strikes = c.then
				r := Follow(t.Context(), s.reach(t), nil)
				if c.code == "" {
					s.assertComplete(t, r)
					return
				}
				stdout, _, err := drain(r)
				e, ok := errors.AsType[*Error](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, c.code, e.Code)
				assert.True(t, strings.HasPrefix(s.want("stdout"), stdout))
			})
		})
	}
}

// TestAdopted: for a command from Adopt, the refusal of the log is an error of the stream.
func TestAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, end := range []*int{nil, new(3)} {
			s := threeLines()
			s.strikes = append(s.strikes, replaceResponse(func() *http.Response { return refused(410, "sandbox_stopped") }))
			_, _, err := drain(Adopt(t.Context(), s.reach(t), &wire.Command{ID: "c1", ExitCode: end}))
			e, ok := errors.AsType[*Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, CodeLost, e.Code)
			s.assertComplete(t, Adopt(t.Context(), s.reach(t), &wire.Command{ID: "c1", ExitCode: end}))
		}
	})
}

func repeat[T any](n int, v T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}

// TestNeverRepairs: without attempts the first break is returned as an error, and a failure to
// open the log is returned unchanged.
func TestNeverRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := threeLines()
		s.strikes = append(s.strikes, cut(40, syscall.ECONNRESET))
		cmd := s.reach(t)
		cmd.Limits.Attempts = -1
		_, _, err := drain(Follow(t.Context(), cmd, nil))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		s.strikes = append(s.strikes, replaceResponse(func() *http.Response { return refused(404, "not_found") }))
		_, _, err = drain(Follow(t.Context(), s.reach(t), nil))
		_, wrapped := errors.AsType[*Error](err)
		assert.Error(t, err)
		assert.False(t, wrapped, "there was no stream to lose")
	})
}

// repairs is an observer of repairs.
type repairs struct {
	begun int
	ended []string // outcomes
}

func (r *repairs) Begin(ctx context.Context, e observe.Event) context.Context {
	if e.Kind == observe.Repair {
		r.begun++
	}
	return ctx
}

func (r *repairs) End(_ context.Context, e observe.Event) {
	if e.Kind == observe.Repair {
		r.ended = append(r.ended, e.Outcome)
	}
}

// TestRepairsAreReported: a repair ends when the log is open again, or can't be opened.
func TestRepairsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen repairs
		s := threeLines()
		s.observer = &seen
		s.strikes = append(s.strikes, cut(40, syscall.ECONNRESET))
		_, _, err := drain(Follow(t.Context(), s.reach(t), nil))
		require.NoError(t, err)
		assert.Equal(t, repairs{1, []string{observe.OK}}, seen)
		s.strikes = append(s.strikes, cut(40, syscall.ECONNRESET), replaceResponse(func() *http.Response { return refused(404, "not_found") }))
		_, _, err = drain(Follow(t.Context(), s.reach(t), nil))
		require.Error(t, err)
		assert.Equal(t, repairs{2, []string{observe.OK, observe.Failed}}, seen)
	})
}

const first = `{"command":{"id":"c1","name":"x","args":[],"cwd":"/","sessionId":"s1","exitCode":null,"startedAt":1}}` + "\n"

// TestStart: the first record of a waited command's stream is the command. Anything else is an
// error that describes it.
func TestStart(t *testing.T) {
	for name, c := range map[string]struct{ stream, code string }{
		"the command":             {first, ""},
		"after an unknown record": {`{"news":1}` + "\n" + first, ""},
		"nothing":                 {"", CodeEndedEarly},
		"half of it":              {first[:20], CodeEndedEarly},
		"output":                  {`{"stream":"stdout","data":"x"}` + "\n", CodeInvalidRecord},
		"a command without ID":    {`{"command":{"name":"x"}}` + "\n", CodeInvalidRecord},
		"of another session":      {strings.Replace(first, `"s1"`, `"s2"`, 1), CodeInvalidRecord},
		"no record":               {"<html>\n", CodeInvalidRecord},
		"an error":                {`{"stream":"error","data":{"code":"out_of_luck","message":"no"}}` + "\n", "out_of_luck"},
		"the stream is closed":    {`{"stream":"error","data":{"code":"sandbox_stream_closed","message":"no"}}` + "\n", "sandbox_stream_closed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := threeLines()
				cmd := s.reach(t)
				cmd.ID = ""
				r := Waited(t.Context(), cmd, io.NopCloser(strings.NewReader(c.stream)))
				defer r.Close()
				got, err := r.Start()
				if c.code == "" {
					require.NoError(t, err)
					assert.Equal(t, "c1", got.ID)
					return
				}
				e, ok := errors.AsType[*Error](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, c.code, e.Code)
			})
		})
	}
}

// TestSilence: while a stream is silent, its command is looked up at least once a minute. The
// stream is closed when the command has ended.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{begin: time.Now(), ends: time.Hour, code: 3, lines: []line{{0, "stdout", "one\n"}, {59 * time.Minute, "stdout", "two\n"}}}
		s.strikes = append(s.strikes, func(req *http.Request, resp *http.Response) (*http.Response, error) {
			// The edge loses the stream after the first line.
			pr, pw := io.Pipe()
			go func() {
				_, _ = io.WriteString(pw, s.lines[0].record())
				<-req.Context().Done()
				pw.CloseWithError(req.Context().Err())
			}()
			resp.Body.Close()
			resp.Body = pr
			return resp, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		s.assertComplete(t, Follow(ctx, s.reach(t), nil))
		assert.Less(t, time.Since(s.begin), s.ends+2*time.Minute)
		assert.Less(t, s.looked, 90)
		cancel()
		synctest.Wait()
	})
}

// TestContextEnds: Reader and Wait end with their context and return its cause.
func TestContextEnds(t *testing.T) {
	why := errors.New("enough")
	for name, call := range map[string]func(context.Context, Command) error{
		"read": func(ctx context.Context, cmd Command) error { _, _, err := drain(Follow(ctx, cmd, nil)); return err },
		"wait": func(ctx context.Context, cmd Command) error { _, err := Wait(ctx, cmd); return err },
		"find": func(ctx context.Context, cmd Command) error {
			down := func(*http.Request, *http.Response) (*http.Response, error) { return nil, syscall.ECONNREFUSED }
			cmd.Client = (&service{begin: time.Now(), looks: repeat(1000, down)}).reach(t).Client
			assert.Nil(t, Find(ctx, cmd, time.Second))
			return api.ContextError(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := threeLines()
				s.ends = time.Hour
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(30*time.Second, func() { cancel(why) })
				begin := time.Now()
				err := call(ctx, s.reach(t))
				require.ErrorIs(t, err, why)
				require.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, 30*time.Second, time.Since(begin))
			})
		})
	}
}

// TestWait: Wait continues if the API is temporarily unreachable or silent, but not if it
// reports that the command is gone.
func TestWait(t *testing.T) {
	down := func(*http.Request, *http.Response) (*http.Response, error) { return nil, syscall.ECONNREFUSED }
	silent := func(req *http.Request, _ *http.Response) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	silentWait := func(req *http.Request, resp *http.Response) (*http.Response, error) {
		if req.URL.Query().Get("wait") == "" {
			return resp, nil
		}
		return silent(req, resp)
	}
	for name, c := range map[string]struct {
		looks []func(*http.Request, *http.Response) (*http.Response, error)
		fails bool
	}{
		"nothing wrong":    {nil, false},
		"an outage":        {repeat(10, down), false},
		"pages of a proxy": {repeat(10, replaceResponse(func() *http.Response { return page(502) })), false},
		"silence":          {repeat(1, silent), false},
		"silence for good": {repeat(1000, silentWait), false},
		"it is gone":       {repeat(1, replaceResponse(func() *http.Response { return refused(410, "sandbox_stopped") })), true},
		"down for good":    {repeat(1000, down), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := threeLines()
				s.ends, s.looks = 5*time.Minute, c.looks
				end, err := Wait(t.Context(), s.reach(t))
				if c.fails {
					require.Error(t, err)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, 3, *end.ExitCode)
				assert.Less(t, time.Since(s.begin), s.ends+2*time.Minute)
			})
		})
	}
}

// TestFind: a command is found even if it appears late or lookups fail. "Not found" counts
// only after patience, and only from the API.
func TestFind(t *testing.T) {
	const patience = 5 * time.Second
	type look = func(*http.Request, *http.Response) (*http.Response, error)
	down := func(*http.Request, *http.Response) (*http.Response, error) { return nil, syscall.ECONNREFUSED }
	silent := func(req *http.Request, _ *http.Response) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	none := replaceResponse(func() *http.Response { return refused(404, "not_found") })
	bad := replaceResponse(func() *http.Response { return page(502) })
	blocked := replaceResponse(func() *http.Response { return page(403) })
	// until makes lookups fail for a duration.
	until := func(after time.Duration, fails look, then ...look) []look {
		begin := time.Now()
		return repeat(1000, func(req *http.Request, resp *http.Response) (*http.Response, error) {
			switch {
			case time.Since(begin) < after:
				return fails(req, resp)
			case len(then) > 0:
				return then[0](req, resp)
			}
			return resp, nil
		})
	}
	for name, c := range map[string]struct {
		looks       func() []look
		attempts    int
		found       bool
		least, most time.Duration
	}{
		"at once":                     {func() []look { return nil }, 20, true, 0, 0},
		"it arrives late":             {func() []look { return until(4*time.Second, none) }, 20, true, 4 * time.Second, patience},
		"it never arrives":            {func() []look { return repeat(1000, none) }, 20, false, patience, patience},
		"after an outage":             {func() []look { return until(35*time.Second, down) }, 20, true, 35 * time.Second, findTimeout},
		"after silence":               {func() []look { return until(35*time.Second, silent) }, 20, true, 35 * time.Second, findTimeout},
		"after a broken proxy":        {func() []look { return until(35*time.Second, bad) }, 20, true, 35 * time.Second, findTimeout},
		"after a proxy that blocks":   {func() []look { return until(4*time.Second, blocked) }, 20, true, 4 * time.Second, 10 * time.Second},
		"an outage, and none":         {func() []look { return until(35*time.Second, down, none) }, 20, false, 35 * time.Second, findTimeout},
		"down for good":               {func() []look { return repeat(1000, down) }, 20, false, findTimeout, findTimeout},
		"silent for good":             {func() []look { return repeat(1000, silent) }, 20, false, findTimeout, findTimeout},
		"down, and nothing to resume": {func() []look { return until(time.Hour, down) }, -1, false, patience, 4 * patience},
		"the session is gone": {func() []look {
			return repeat(1000, replaceResponse(func() *http.Response { return refused(410, "sandbox_stopped") }))
		}, 20, false, 0, 0},
		"the session is being stopped": {func() []look {
			return repeat(1000, replaceResponse(func() *http.Response { return refused(422, "sandbox_stopping") }))
		}, 20, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := threeLines()
				s.ends, s.looks = time.Hour, c.looks()
				cmd := s.reach(t)
				cmd.Limits.Attempts = c.attempts
				begin := time.Now()
				assert.Equal(t, c.found, Find(t.Context(), cmd, patience) != nil)
				assert.GreaterOrEqual(t, time.Since(begin), c.least)
				assert.LessOrEqual(t, time.Since(begin), c.most)
			})
		})
	}
}

// TestLookNow: LookNow returns the end of a finished command, although the service reports it
// only to requests that wait. It does not block for a running command.
func TestLookNow(t *testing.T) {
	for name, over := range map[string]bool{"it runs": false, "it has ended": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := threeLines()
				s.ends = time.Hour
				if over {
					time.Sleep(2 * time.Hour)
				}
				// A request that does not wait gets no end.
				s.looks = append(s.looks, replaceResponse(func() *http.Response {
					return reply(200, "application/json", strings.NewReader(strings.Replace(s.command(), `"exitCode":3`, `"exitCode":null`, 1)))
				}))
				begin := time.Now()
				cmd := s.reach(t)
				got, err := cmd.LookNow(t.Context())
				require.NoError(t, err)
				assert.Equal(t, over, got.ExitCode != nil)
				assert.LessOrEqual(t, time.Since(begin), endGrace)
			})
		})
	}
}
