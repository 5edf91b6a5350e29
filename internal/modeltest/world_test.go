package modeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// stepTime is how long a step may take: a step that takes longer hangs.
const stepTime = 45 * time.Second

// world is an emulator with a sandbox, a client behind faults, and one without.
type world struct {
	srv    *sandboxtest.Server
	faulty *sandbox.Client
	sane   *sandbox.Client
	box    *sandbox.Sandbox // by the faulty client
	same   *sandbox.Sandbox // by the sane one
	net    *network
	n      int
	lines  string // what the appended file has to hold
}

// network is the transport of the faulty client.
type network struct {
	next http.RoundTripper
	mu   sync.Mutex
	via  func(*http.Request) (*http.Response, error)
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	via := n.via
	n.mu.Unlock()
	if via == nil {
		return n.next.RoundTrip(req)
	}
	return via(req)
}

func (n *network) set(via func(*http.Request) (*http.Response, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.via = via
}

func newWorld(ctx context.Context) (*world, error) {
	srv, err := sandboxtest.NewServer(nil)
	if err != nil {
		return nil, err
	}
	creds := srv.Credentials()
	client := func(rt http.RoundTripper) *sandbox.Client {
		c, clientErr := sandbox.NewClient(&sandbox.ClientOptions{
			BaseURL: srv.URL, HTTPClient: &http.Client{Transport: rt},
			Credentials: auth.Static(auth.Credentials{Token: creds.Token, TeamID: creds.TeamID, ProjectID: creds.ProjectID}),
			Retry:       &sandbox.RetryOptions{Wait: time.Millisecond},
			Reattach:    &sandbox.ReattachOptions{Wait: time.Millisecond},
		})
		err = errors.Join(err, clientErr)
		return c
	}
	w := &world{srv: srv, net: &network{next: &http.Transport{}}}
	w.faulty, w.sane = client(w.net), client(&http.Transport{})
	if err != nil {
		return nil, err
	}
	if w.box, err = w.faulty.Create(ctx, &sandbox.CreateOptions{Name: "model"}); err != nil {
		return nil, err
	}
	w.same, err = w.sane.Get(ctx, "model", nil)
	return w, err
}

func (w *world) close() {
	w.faulty.CloseIdleConnections()
	w.sane.CloseIdleConnections()
	_ = w.srv.Close()
}

// play runs the program and returns what was found wrong with it.
func play(ctx context.Context, steps []Step) error {
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	for i, s := range steps {
		w.n = i + 1
		limited, cancel := context.WithTimeoutCause(ctx, stepTime, errHangs)
		err := w.step(limited, s)
		cancel()
		w.net.set(nil)
		if err != nil {
			return fmt.Errorf("step %d (%s, %s): %w", i+1, s.Kind, s.Fault, err)
		}
	}
	return nil
}

var errHangs = fmt.Errorf("not done after %v", stepTime)

func (w *world) step(ctx context.Context, s Step) error {
	switch s.Kind {
	case Append:
		return w.append(ctx, s)
	case Write:
		return w.write(ctx, s)
	case Kill:
		return w.kill(ctx, s)
	case Replace:
		return w.replace(ctx, s)
	case Resume:
		return w.resume(ctx, s)
	}
	return w.command(ctx, s)
}

func stream(req *http.Request) bool { return run(req) || logs(req) }
func run(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/cmd")
}
func logs(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/logs") }

// once strikes the first request that fits.
func (w *world) once(fits func(*http.Request) bool, strike func(*http.Request) (*http.Response, error)) {
	var mu sync.Mutex
	done := false
	w.net.set(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		now := !done && fits(req)
		done = done || now
		mu.Unlock()
		if now {
			return strike(req)
		}
		return w.net.next.RoundTrip(req)
	})
}

// limit ends the body of an answer behind the record that crosses so many bytes,
// and behind so many records.
func (w *world) limit(req *http.Request, after, records int, end func() error) (*http.Response, error) {
	resp, err := w.net.next.RoundTrip(req)
	if err != nil || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		return resp, err
	}
	resp.ContentLength = -1
	resp.Body = &ending{ReadCloser: resp.Body, after: after, records: records, end: end}
	return resp, nil
}

// ending is a body that ends in its own way.
type ending struct {
	io.ReadCloser
	after, records int
	over           bool
	end            func() error
}

func (e *ending) Read(p []byte) (int, error) {
	if e.over {
		return 0, e.end()
	}
	n, err := e.ReadCloser.Read(p)
	for i, b := range p[:n] {
		if e.after--; b == '\n' {
			if e.records--; e.after <= 0 && e.records <= 0 {
				e.over = true
				return i + 1, nil
			}
		}
	}
	return n, err
}

func (w *world) lose(req *http.Request) (*http.Response, error) {
	resp, err := w.net.next.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
		err = syscall.ECONNRESET
	}
	return nil, err
}

// command runs a command that appends its name to the journal and prints.
func (w *world) command(ctx context.Context, s Step) error {
	name := fmt.Sprintf("c%d", w.n)
	script := fmt.Sprintf(`echo %s >> /vercel/journal; i=0; while [ $i -lt %d ]; do echo "%s $i"; i=$((i+1)); [ $((i %% 20)) = 0 ] && sleep 0.01; done; exit 3`, name, s.Size, name)
	var text strings.Builder
	for i := range s.Size {
		fmt.Fprintf(&text, "%s %d\n", name, i)
	}
	broken := func() error { return syscall.ECONNRESET }
	var arm func()
	switch s.Fault {
	case Cut:
		arm = func() {
			w.once(stream, func(req *http.Request) (*http.Response, error) { return w.limit(req, s.At, 1, broken) })
		}
	case Clean:
		arm = func() {
			w.once(logs, func(req *http.Request) (*http.Response, error) {
				return w.limit(req, s.At, 1, func() error { return io.EOF })
			})
		}
	case Lost:
		arm = func() { w.once(run, w.lose) }
	case Stop:
		script = strings.Replace(script, "exit 3", "sleep 10; exit 3", 1)
		arm = func() {
			w.once(stream, func(req *http.Request) (*http.Response, error) {
				return w.limit(req, 0, 2, func() error {
					_, err := w.same.Stop(ctx, nil)
					return errors.Join(err, syscall.ECONNRESET)
				})
			})
		}
	default:
		arm = func() {}
	}
	var out string
	var code int
	var err error
	args := []string{"-c", script}
	switch s.Kind {
	case Run:
		arm()
		var done *sandbox.CommandResult
		if done, err = w.box.RunCommand(ctx, "sh", args, nil); err == nil {
			code = done.ExitCode
			out, err = done.Stdout(ctx)
		}
	case Start:
		arm()
		var b bytes.Buffer
		var cmd *sandbox.Command
		if cmd, err = w.box.StartCommand(ctx, "sh", args, &sandbox.CommandOptions{Stdout: &b}); err == nil {
			var done *sandbox.CommandResult
			if done, err = cmd.Wait(ctx); err == nil {
				code, out = done.ExitCode, b.String()
			}
		}
	case Fetch:
		var cmd *sandbox.Command
		if cmd, err = w.box.StartCommand(ctx, "sh", args, nil); err == nil {
			var done *sandbox.CommandResult
			if done, err = cmd.Wait(ctx); err == nil {
				arm()
				code = done.ExitCode
				out, err = cmd.Stdout(ctx)
			}
		}
	case Exec:
		arm()
		var b []byte
		b, err = w.box.CommandContext(ctx, "sh", args...).Output()
		if e, ok := errors.AsType[*sandbox.ExitError](err); ok {
			out, code, err = string(b), e.ExitCode(), nil
		}
	}
	w.net.set(nil)
	runs, readErr := w.journal(ctx, name)
	switch {
	case readErr != nil:
		return readErr
	case runs > 1:
		return fmt.Errorf("the command has run %d times, error %v", runs, err)
	case err == nil && (runs != 1 || code != 3 || out != text.String()):
		return fmt.Errorf("%d runs, exit code %d, %d of %d bytes of output, and no error", runs, code, len(out), text.Len())
	case err != nil && !errors.Is(err, sandbox.ErrOutcomeUnknown) && !(s.Fault == Stop && errors.Is(err, sandbox.ErrStopped)):
		return fmt.Errorf("failed: %w", err)
	}
	return nil
}

// journal counts the runs of a command.
func (w *world) journal(ctx context.Context, name string) (int, error) {
	data, err := w.same.FS().ReadFile(ctx, "/vercel/journal")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	runs := 0
	for line := range strings.Lines(string(data)) {
		if line == name+"\n" {
			runs++
		}
	}
	return runs, err
}

// append adds a line to a file, of which nothing may get lost.
func (w *world) append(ctx context.Context, s Step) error {
	const file = "/vercel/appended"
	line := fmt.Sprintf("%d %s\n", w.n, strings.Repeat("x", s.Size))
	switch s.Fault {
	case Lost:
		w.once(run, w.lose)
	case Missing:
		w.once(run, func(*http.Request) (*http.Response, error) {
			return nil, &fs.PathError{Op: "open", Path: "/run/token", Err: syscall.ENOENT}
		})
	}
	err := w.box.FS().AppendFile(ctx, file, []byte(line))
	w.net.set(nil)
	data, readErr := w.same.FS().ReadFile(ctx, file)
	if errors.Is(readErr, fs.ErrNotExist) {
		readErr = nil
	}
	switch {
	case readErr != nil:
		return readErr
	case string(data) == w.lines+line:
		w.lines += line
	case err == nil || string(data) != w.lines:
		return fmt.Errorf("the file has %d bytes, %d before the line of %d; the error is %v", len(data), len(w.lines), len(line), err)
	}
	return nil
}

// write writes a file in pieces.
func (w *world) write(ctx context.Context, s Step) error {
	box, same, file := w.box, w.same, fmt.Sprintf("/vercel/written%d", w.n)
	if s.Fault == Stop {
		name := fmt.Sprintf("short%d", w.n)
		var err error
		if box, err = w.faulty.Create(ctx, &sandbox.CreateOptions{Name: name, Persistent: new(false)}); err != nil {
			return err
		}
		if same, err = w.sane.Get(ctx, name, nil); err != nil {
			return err
		}
	}
	upload := func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/fs/write") }
	if s.Fault == Late {
		w.net.set(w.late(upload))
	}
	piece := bytes.Repeat([]byte("0123456789abcde\n"), 300_000) // more than one piece of an upload
	f, err := box.FS().Create(ctx, file, nil)
	if err != nil {
		return err
	}
	_, err = f.Write(piece)
	if err == nil && s.Fault == Stop {
		if _, err := same.Stop(ctx, nil); err != nil {
			return err
		}
	}
	if err == nil {
		_, err = f.Write(piece)
	}
	err = errors.Join(err, f.Close())
	w.net.set(nil)
	if err != nil {
		return nil // nothing was promised
	}
	data, err := same.FS().ReadFile(ctx, file)
	if err != nil || len(data) != 2*len(piece) {
		return fmt.Errorf("the file has %d of %d bytes, and no error of the writer; reading it: %v", len(data), 2*len(piece), err)
	}
	return nil
}

// late loses the first upload, and delivers half of it behind the next one.
func (w *world) late(upload func(*http.Request) bool) func(*http.Request) (*http.Response, error) {
	var mu sync.Mutex
	var first *http.Request
	var half []byte
	return func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !upload(req) || first != nil && half == nil:
			return w.net.next.RoundTrip(req)
		case first == nil:
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			first, half = req, body[:len(body)/2]
			return nil, syscall.ECONNRESET
		}
		resp, err := w.net.next.RoundTrip(req)
		again := first.Clone(context.WithoutCancel(first.Context()))
		again.Body, again.ContentLength, again.GetBody = io.NopCloser(bytes.NewReader(half)), int64(len(half)), nil
		half = nil
		if stale, staleErr := w.net.next.RoundTrip(again); staleErr == nil {
			_, _ = io.Copy(io.Discard, stale.Body)
			stale.Body.Close()
		}
		return resp, err
	}
}

var ready = regexp.MustCompile("^ready$")

// kill sends one signal to a command that counts them.
func (w *world) kill(ctx context.Context, s Step) error {
	gone := fmt.Sprintf("/vercel/go%d", w.n)
	// The loop starts no program: bash 5.2 now and then misses the end of one when
	// a signal with a trap comes at that moment, and spins for ever beside a zombie.
	cmd, err := w.box.StartCommand(ctx, "bash", []string{"-c", `mkfifo "$0.pause"; exec 3<>"$0.pause"; trap 'echo signal' INT; echo ready; while [ ! -e "$0" ]; do read -r -t 0.02 <&3; done`, gone}, nil)
	if err != nil {
		return err
	}
	if _, err := cmd.WaitForLog(ctx, ready); err != nil {
		return err
	}
	if s.Fault == Lost {
		w.once(func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/kill") }, w.lose)
	}
	err = cmd.Kill(ctx, sandbox.SIGINT)
	if err != nil && !errors.Is(err, sandbox.ErrOutcomeUnknown) {
		return err
	}
	if err := w.same.FS().WriteFile(ctx, gone, nil, 0o644); err != nil {
		return err
	}
	out, err := cmd.Output(ctx)
	if n := strings.Count(out, "signal"); err != nil || n != 1 {
		return fmt.Errorf("one Kill delivered %d signals, error %v", n, err)
	}
	return nil
}

// replace has two callers replace a sandbox whose files are gone.
func (w *world) replace(ctx context.Context, s Step) error {
	name := fmt.Sprintf("lost%d", w.n)
	box, err := w.sane.Create(ctx, &sandbox.CreateOptions{Name: name})
	if err != nil {
		return err
	}
	stopped, err := box.Stop(ctx, nil)
	if err != nil {
		return err
	}
	snapshot, err := w.sane.GetSnapshot(ctx, stopped.Snapshot.ID)
	if err == nil {
		err = snapshot.Delete(ctx)
	}
	if err != nil {
		return err
	}
	opts := &sandbox.CreateOptions{Resume: new(true)}
	var other *sandbox.Sandbox
	var created time.Time
	if s.Fault == Held {
		w.once(func(req *http.Request) bool { return req.Method == http.MethodDelete }, func(req *http.Request) (*http.Response, error) {
			var err error
			if other, err = w.sane.GetOrCreate(ctx, name, opts); err != nil {
				return nil, err
			}
			created = other.Info().CreatedAt
			return w.net.next.RoundTrip(req)
		})
	}
	_, err = w.faulty.GetOrCreate(ctx, name, opts)
	w.net.set(nil)
	if other == nil {
		return err
	}
	now, getErr := w.sane.Get(ctx, name, nil)
	if err == nil && getErr == nil && !now.Info().CreatedAt.Equal(created) {
		return errors.New("the sandbox of the quicker caller was replaced, and nobody was told")
	}
	return nil
}

// resume gets a stopped sandbox with a hook that fails.
func (w *world) resume(ctx context.Context, s Step) error {
	name := fmt.Sprintf("hooked%d", w.n)
	box, err := w.sane.Create(ctx, &sandbox.CreateOptions{Name: name})
	if err != nil {
		return err
	}
	if err := box.FS().WriteFile(ctx, "kept", []byte("kept"), 0o644); err != nil {
		return err
	}
	if _, err := box.Stop(ctx, nil); err != nil {
		return err
	}
	runs := 0
	opts := &sandbox.CreateOptions{Resume: new(true), OnResume: func(context.Context, *sandbox.Sandbox) error {
		if runs++; runs == 1 && s.Fault == Hook {
			return &sandbox.APIError{Operation: "get sandbox", Status: 410, Code: "snapshot_not_found", SandboxName: "another"}
		}
		return nil
	}}
	got, err := w.faulty.GetOrCreate(ctx, name, opts)
	if s.Fault == Hook {
		if err == nil {
			return errors.New("the hook failed, and nobody was told")
		}
		got, err = w.faulty.GetOrCreate(ctx, name, opts)
	}
	if err != nil {
		return err
	}
	if data, err := got.FS().ReadFile(ctx, "kept"); err != nil || string(data) != "kept" {
		return fmt.Errorf("the file is gone: %q, %v", data, err)
	}
	if s.Fault == Hook && runs != 2 {
		return fmt.Errorf("the hook that failed ran %d times", runs)
	}
	return nil
}
