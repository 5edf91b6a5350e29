package client_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStdinConversation: a command gets its input while it runs.
func TestStdinConversation(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", `while read -r line; do echo "got $line"; done; echo end`}, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	in := cmd.Stdin(t.Context())
	_, err = cmd.Stdin(t.Context()).Write([]byte("second writer"))
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	said := make(chan string)
	go func() {
		defer close(said)
		for line, err := range cmd.Lines(t.Context()) {
			if !assert.NoError(t, err) {
				return
			}
			said <- line.Data
		}
	}()
	for i := range 5 {
		fmt.Fprintf(in, "line %d\n", i)
		assert.Equal(t, fmt.Sprintf("got line %d", i), <-said)
	}
	require.NoError(t, in.Close())
	assert.ErrorIs(t, in.Close(), os.ErrClosed)
	_, err = in.Write([]byte("x"))
	assert.ErrorIs(t, err, os.ErrClosed)
	assert.Equal(t, "end", <-said)
	_, open := <-said
	assert.False(t, open)
	assert.Equal(t, 6, testkit.Count(srv, sandboxtest.WriteStdin), "a request for each line, and the end")
}

// TestStdinBatches: the client combines short writes to few requests.
func TestStdinBatches(t *testing.T) {
	t.Parallel()
	srv, outer := start(t, nil)
	// A write waits for a while for more data. Use a synctest bubble, so that this time
	// does not pass: the time in a bubble stands still while it waits for connections.
	synctest.Test(t, func(t *testing.T) {
		sb, err := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: testkit.Transport(t)}}).Get(t.Context(), outer.Name(), nil)
		require.NoError(t, err)
		cmd, err := sb.StartCommand(t.Context(), "wc", []string{"-lc"}, &sandbox.StartOptions{AttachStdin: true})
		require.NoError(t, err)
		in := cmd.Stdin(t.Context())
		for range 50_000 {
			_, err := io.WriteString(in, "a short line\n")
			require.NoError(t, err)
		}
		require.NoError(t, in.Close())
		out, err := cmd.Stdout(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"50000", "650000"}, strings.Fields(out))
		assert.Equal(t, 2, testkit.Count(srv, sandboxtest.WriteStdin), "650 KB, at most 512 KiB in a request")
	})
}

// If a writer ends with its context, or was in another process, the input stays open for
// the next writer.
func TestStdinOfSeveralWriters(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "cat", nil, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	in := cmd.Stdin(ctx)
	_, err = io.WriteString(in, "one ")
	require.NoError(t, err)
	for entry, err := range cmd.Logs(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, "one ", entry.Data)
		break
	}
	cancel()
	require.ErrorIs(t, in.Close(), context.Canceled)
	_, err = in.Write([]byte("x"))
	require.Error(t, err)

	again, err := sb.GetCommand(t.Context(), cmd.ID())
	require.NoError(t, err)
	for i, c := range []*sandbox.Command{cmd, again} {
		in := c.Stdin(t.Context())
		fmt.Fprintf(in, "part %d ", i)
		if c == again {
			require.NoError(t, in.Close())
			continue
		}
		// The data is delivered, but the input is not closed.
		var seen strings.Builder
		for entry, err := range cmd.Logs(t.Context()) {
			require.NoError(t, err)
			if seen.WriteString(entry.Data); seen.String() == "one part 0 " {
				break
			}
		}
	}
	out, err := again.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "one part 0 part 1 ", out)
}

// If a command does not read its input, Write blocks instead of using more and more
// memory. If a command has ended or closed its input, Write returns io.ErrClosedPipe.
func TestStdinOfACommandThatDoesNotRead(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", "while [ ! -e go ]; do sleep .1; done; exec wc -c"}, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	in := cmd.Stdin(t.Context())
	const writes = 24 // more than fits into the pipe and two batches of the client
	var written atomic.Int64
	done := make(chan error, 1)
	go func() {
		for range writes {
			n, err := in.Write(make([]byte, 64<<10))
			written.Add(int64(n))
			if err != nil {
				done <- err
				return
			}
		}
		done <- in.Close()
	}()
	// The writer blocks when the pipe and two batches of the client are full.
	for last := int64(-1); last != written.Load(); testkit.Linger(200 * time.Millisecond) {
		last = written.Load()
	}
	assert.LessOrEqual(t, written.Load(), int64(1<<20+64<<10+64<<10))
	require.NoError(t, sb.FS().WriteFile(t.Context(), "go", nil, 0o644))
	require.NoError(t, <-done)
	out, err := cmd.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, strconv.Itoa(writes*64<<10), strings.TrimSpace(out))

	for _, script := range []string{"exit 3", "exec <&-; sleep 1000", "head -c 100000 >/dev/null"} {
		cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-c", script}, &sandbox.StartOptions{AttachStdin: true})
		require.NoError(t, err)
		in := cmd.Stdin(t.Context())
		for err == nil {
			_, err = in.Write(make([]byte, 64<<10))
		}
		assert.ErrorIs(t, err, io.ErrClosedPipe, script)
		assert.ErrorIs(t, in.Close(), io.ErrClosedPipe, script)
	}
	// Closing the input of an ended command succeeds.
	cmd, err = sb.StartCommand(t.Context(), "true", nil, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	_, err = cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.NoError(t, cmd.Stdin(t.Context()).Close())
}

// If a command was started without AttachStdin, writing to its input or closing it returns
// an error.
func TestStdinWithoutSupport(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sleep", []string{"1000"}, nil)
	require.NoError(t, err)
	in := cmd.Stdin(t.Context())
	_, err = io.WriteString(in, "x")
	require.ErrorIs(t, err, io.ErrClosedPipe, "the handle that started the command knows its options")
	assert.ErrorContains(t, in.Close(), "start it with AttachStdin")
	found, err := sb.GetCommand(t.Context(), cmd.ID())
	require.NoError(t, err)
	in = found.Stdin(t.Context())
	_, err = io.WriteString(in, "x")
	require.NoError(t, err)
	assert.ErrorContains(t, in.Close(), "start it with AttachStdin")
	_, err = new(sandbox.Command).Stdin(t.Context()).Write(nil)
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
}

// If the service does not count the bytes of the input, a write whose response is lost
// can't be repeated. The client then returns ErrOutcomeUnknown and sends nothing again.
func TestStdinWithoutCount(t *testing.T) {
	for _, status := range []int{200, 502} {
		synctest.Test(t, func(t *testing.T) {
			api := &stdinAPI{}
			api.respond = func(_ int64, data []byte, end bool) (int, bool) {
				api.receive(int64(api.got.Len()), data, end)
				return status, false
			}
			in := api.command(t).Stdin(t.Context())
			_, err := io.WriteString(in, "once")
			require.NoError(t, err)
			if err = in.Close(); status == 200 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
			}
			assert.Equal(t, "once", api.got.String())
		})
	}
}

// stdinAPI is a service on which a test chooses the responses to writes. It records the
// input that a command would have received.
type stdinAPI struct {
	// respond handles a write. It returns the status of the response, and whether the
	// response contains the number of received bytes.
	respond func(offset int64, data []byte, end bool) (status int, withCount bool)

	got   bytes.Buffer
	ends  int
	delay time.Duration // before each response
}

func (a *stdinAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/stdin") {
		return respond(200, `{"command":{"id":"cmd_1","name":"cat","args":[],"cwd":"/","sessionId":"sess_1","exitCode":null}}`)
	}
	var body struct {
		Data   []byte
		Offset *int64
		Close  bool
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	if a.delay > 0 {
		select {
		case <-time.After(a.delay):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	at := int64(a.got.Len())
	if body.Offset != nil {
		at = *body.Offset
	}
	status, withCount := a.respond(at, body.Data, body.Close)
	command := `"command":{"id":"cmd_1","name":"cat","args":[],"cwd":"/","sessionId":"sess_1","exitCode":null}`
	switch {
	case status == 200 && withCount:
		return respond(200, fmt.Sprintf(`{%s,"bytesWritten":%d}`, command, a.got.Len()))
	case status == 200:
		return respond(200, `{`+command+`}`)
	case withCount:
		return respond(status, fmt.Sprintf(`{"error":{"code":"x","message":"x"},"bytesWritten":%d}`, a.got.Len()))
	}
	return respond(status, `{"error":{"code":"x","message":"x"}}`)
}

// receive appends the data to the input, except for what it has received before.
func (a *stdinAPI) receive(offset int64, data []byte, end bool) {
	if skip := int64(a.got.Len()) - offset; skip < int64(len(data)) {
		a.got.Write(data[skip:])
	}
	if end {
		a.ends++
	}
}

func (a *stdinAPI) command(t *testing.T) *sandbox.Command {
	t.Helper()
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: "https://api.example.com", Credentials: auth.Static(auth.Credentials{Token: "t", TeamID: "m", ProjectID: "p"}),
		HTTPClient: &http.Client{Transport: a}, ServerCommandIDs: true,
	})
	require.NoError(t, err)
	var sb sandbox.Sandbox
	require.NoError(t, sb.UnmarshalJSON([]byte(`{"metadata":{"id":"sess_1","status":"running","cwd":"/"},"sandboxMetadata":{"name":"a"},"routes":[]}`)))
	client.Bind(&sb)
	cmd, err := sb.StartCommand(t.Context(), "cat", nil, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	return cmd
}

// A command does not read for an hour, and then gets all of its input. Until then, the
// service ends each request after thirty seconds, and accepts at most one byte. If the
// service does not respond at all, the client gives up.
func TestStdinHeldForAnHour(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			api := &stdinAPI{delay: 30 * time.Second}
			if silent {
				api.delay = time.Hour
			}
			api.respond = func(offset int64, data []byte, end bool) (int, bool) {
				if time.Since(began) > time.Hour {
					api.receive(offset, data, end)
					return 200, true
				}
				if len(data) > 0 {
					api.receive(offset, data[:1], false)
				}
				return 504, offset%2 == 0
			}
			if silent {
				api.respond = nil
			}
			in := api.command(t).Stdin(t.Context())
			text := strings.Repeat("0123456789", 100)
			_, err := io.WriteString(in, text)
			require.NoError(t, err)
			err = in.Close()
			if silent {
				require.Error(t, err, "the client must give up if the service does not respond")
				assert.Less(t, time.Since(began), 30*time.Minute)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, text, api.got.String())
			assert.Equal(t, 1, api.ends)
		})
	}
}

// TestStdinOdds: three of four requests fail in some way, and each byte is delivered once.
func TestStdinOdds(t *testing.T) {
	for name, odd := range map[string]func(a *stdinAPI, n int, offset int64, data []byte, end bool) (int, bool){
		"502 before the write": func(a *stdinAPI, n int, offset int64, data []byte, end bool) (int, bool) {
			return 502, false
		},
		"502 after the write": func(a *stdinAPI, n int, offset int64, data []byte, end bool) (int, bool) {
			a.receive(offset, data, end)
			return 502, false
		},
		"partial write": func(a *stdinAPI, n int, offset int64, data []byte, end bool) (int, bool) {
			a.receive(offset, data[:len(data)/2], false)
			return 200, true
		},
		"partial write without a count": func(a *stdinAPI, n int, offset int64, data []byte, end bool) (int, bool) {
			a.receive(offset, data[:len(data)/2], false)
			return 500, false
		},
		"429": func(a *stdinAPI, n int, offset int64, data []byte, end bool) (int, bool) { return 429, false },
		"503 after the write": func(a *stdinAPI, n int, offset int64, data []byte, end bool) (int, bool) {
			a.receive(offset, data, end)
			return 503, false
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				api := &stdinAPI{}
				api.respond = func(offset int64, data []byte, end bool) (int, bool) {
					if n++; n%4 != 0 {
						return odd(api, n, offset, data, end)
					}
					api.receive(offset, data, end)
					return 200, true
				}
				in := api.command(t).Stdin(t.Context())
				var want strings.Builder
				for i := range 20 {
					fmt.Fprintf(io.MultiWriter(in, &want), "line %d\n", i)
					time.Sleep(time.Duration(i%3) * time.Second)
				}
				require.NoError(t, in.Close())
				assert.Equal(t, want.String(), api.got.String())
			})
		})
	}
}

// stdinCutter is a transport that breaks the connections of some writes, before the
// response or during the request.
type stdinCutter struct {
	http.RoundTripper
	mu  sync.Mutex
	rng *rand.Rand
}

func (c *stdinCutter) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/stdin") {
		return c.RoundTripper.RoundTrip(r)
	}
	c.mu.Lock()
	p, after := c.rng.Float64(), c.rng.Int64N(max(1, r.ContentLength))
	c.mu.Unlock()
	switch {
	case p < .05 && r.Body != nil:
		ctx, cancel := context.WithCancel(r.Context())
		r = r.Clone(ctx)
		r.Body = &cutUpload{ReadCloser: r.Body, left: after, cancel: cancel}
		resp, err := c.RoundTripper.RoundTrip(r)
		if err != nil {
			cancel()
		}
		return resp, err
	case p < .1:
		resp, err := c.RoundTripper.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return c.RoundTripper.RoundTrip(r)
}

// cutUpload is the body of a request that fails after some bytes.
type cutUpload struct {
	io.ReadCloser
	left   int64
	cancel context.CancelFunc
}

func (c *cutUpload) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.cancel()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// TestStdinUnderFire writes to many commands while connections break and requests fail.
// Each command computes the checksum of its input, which shows lost and repeated bytes.
// SANDBOX_STDIN_COMMANDS sets the number of commands, and raises the largest input to
// 64 MiB.
func TestStdinUnderFire(t *testing.T) {
	t.Parallel()
	commands, largest := 60, 4<<20
	if !needs.Slow() {
		commands, largest = 8, 1<<18
	}
	if n, err := strconv.Atoi(os.Getenv("SANDBOX_STDIN_COMMANDS")); err == nil {
		commands, largest = n, 64<<20
	}
	srv := newServer(t)
	for _, f := range []sandboxtest.Fault{
		{ActThenStatus: 502}, {Status: 502}, {ActThenStatus: 504}, {Status: 504}, {Status: 429}, {DropAfter: true}, {DropBefore: true}, {CutAfterBytes: 20},
	} {
		f.Operation, f.Probability = sandboxtest.WriteStdin, .03
		srv.Inject(f)
	}
	cutter := &stdinCutter{RoundTripper: testkit.Transport(t), rng: rand.New(rand.NewPCG(18, 21))}
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{
		HTTPClient: &http.Client{Transport: cutter},
		Reattach:   &sandbox.ReattachOptions{Wait: 5 * time.Millisecond},
	}).Create(t.Context(), nil)
	require.NoError(t, err)
	err = sb.ExtendTimeout(t.Context(), time.Hour)
	require.NoError(t, err)
	var group sync.WaitGroup
	slots := make(chan struct{}, 8)
	var right, bytesSent atomic.Int64
	for i := range commands {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			size := 1 + rng.IntN(1<<min(4+i%23, 26))
			size = min(size, largest)
			sum := sha256.New()
			cmd, err := sb.StartCommand(t.Context(), "sha256sum", nil, &sandbox.StartOptions{AttachStdin: true})
			if !assert.NoError(t, err) {
				return
			}
			in := cmd.Stdin(t.Context())
			chunk := make([]byte, 1<<20)
			for left := size; left > 0; {
				n := min(left, 1+rng.IntN(len(chunk)))
				for j := range chunk[:n] {
					chunk[j] = byte(rng.Uint32())
				}
				sum.Write(chunk[:n])
				if _, err := in.Write(chunk[:n]); !assert.NoError(t, err) {
					return
				}
				left -= n
			}
			// The command ends when its input is closed. If the response to this last
			// request is lost, the client can't ask for the outcome anymore.
			if err := in.Close(); err != nil && !assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, "%d bytes", size) {
				return
			}
			out, err := cmd.Stdout(t.Context())
			if assert.NoError(t, err) && assert.Equal(t, hex.EncodeToString(sum.Sum(nil))+"  -\n", out, "%d bytes", size) {
				right.Add(1)
				bytesSent.Add(int64(size))
			}
		})
	}
	group.Wait()
	t.Logf("%d of %d checksums are right, %d MiB, %d requests", right.Load(), commands, bytesSent.Load()>>20, testkit.Count(srv, sandboxtest.WriteStdin))
}

// TestStdinOfAnInterpreter: an interactive shell replies to each line, as with a pipe.
func TestStdinOfAnInterpreter(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sh", []string{"-i"}, &sandbox.StartOptions{AttachStdin: true, Env: sandbox.Env{"PS1": "", "ENV": ""}})
	require.NoError(t, err)
	r, w := io.Pipe()
	go func() {
		for entry, err := range cmd.Logs(t.Context()) {
			if err != nil {
				w.CloseWithError(err)
				return
			}
			if entry.Stream == sandbox.Stdout {
				_, _ = io.WriteString(w, entry.Data)
			}
		}
		w.Close()
	}()
	in, out := cmd.Stdin(t.Context()), bufio.NewReader(r)
	ask := func(line string) string {
		fmt.Fprintln(in, line)
		response, err := out.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(response)
	}
	assert.Equal(t, "3", ask("x=3; echo $x"))
	assert.Equal(t, "12", ask("echo $((x*4))"))
	require.NoError(t, in.Close())
	done, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Zero(t, done.ExitCode)
}

// TestStdinWithoutProgress: if the service responds to writes but accepts no byte, the
// client repeats them with pauses, and finally gives up.
func TestStdinWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int32
		sb := canned.API(func(req *http.Request) (*http.Response, error) {
			switch {
			case testkit.IsRun(req):
				return canned.JSON(200, strings.TrimSpace(canned.Begun)), nil
			case strings.HasSuffix(req.URL.Path, "/stdin"):
				if writes.Add(1) > 1000 {
					<-req.Context().Done()
					return nil, req.Context().Err()
				}
				return canned.JSON(200, strings.Replace(strings.TrimSpace(canned.Begun), `{"command"`, `{"bytesWritten":0,"command"`, 1)), nil
			}
			return canned.JSON(404, `{}`), nil
		}).Sandbox(t)
		cmd, err := sb.StartCommand(t.Context(), "x", nil, &sandbox.StartOptions{AttachStdin: true})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		in := cmd.Stdin(ctx)
		_, err = in.Write([]byte("hello"))
		require.NoError(t, err)
		require.ErrorContains(t, in.Close(), "accepts nothing")
		assert.Less(t, writes.Load(), int32(100))
	})
}
