package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/logstream"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// OpenGrace is how long the response to a start is waited for after the
	// context has ended, so that a command that did start can be killed.
	OpenGrace = 3 * time.Second
	// KillGrace is how long a call continues after its context in total.
	KillGrace = 5 * time.Second
	// settleTime is how long after the loss of the response to its start a
	// command may appear. Until then, nothing can be concluded from its absence.
	settleTime = 5 * time.Second
)

// Body is the request that starts a command.
type Body struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env"`
	Sudo    bool              `json:"sudo"`
	Wait    bool              `json:"wait,omitempty"`
	Logs    bool              `json:"logs,omitempty"`
	Timeout wire.Duration     `json:"timeout,omitzero"`
	Stdin   bool              `json:"attachStdin,omitempty"`

	// Secret holds the variables that the caller has set. Env may have others,
	// which the client sets and which an error may show.
	Secret map[string]string `json:"-"`
}

// Secrets returns the part of the request that an error must not show.
func (b *Body) Secrets() any {
	if b == nil {
		return nil
	}
	return map[string]any{"env": b.Secret}
}

// Mark gives the process the variable by which it is known in the sandbox. Sudo
// drops the environment and may become the program that it starts, so the variable
// is also given to that: as an argument of sudo, or if at is not zero, as that
// argument, of the program env.
func (b *Body) Mark(token string, at int) {
	env := maps.Clone(b.Env)
	if env == nil {
		env = make(map[string]string, 1)
	}
	env[TreeVariable] = token
	b.Env = env
	if at > 0 || isSudo(b.Command) && !slices.Contains(b.Args, "-e") {
		b.Args = slices.Insert(slices.Clone(b.Args), at, TreeVariable+"="+token)
	}
}

// isSudo reports whether a program is sudo. It takes variables before its options.
func isSudo(program string) bool { return path.Base(program) == "sudo" }

// Unmarked returns the arguments of a program without what Mark has added for sudo.
func Unmarked(program string, args []string) []string {
	if isSudo(program) && len(args) > 0 && strings.HasPrefix(args[0], TreeVariable+"=") {
		return args[1:]
	}
	return args
}

// Start is one start of a command. The request is sent once. If the response is
// lost, the command's ID, which is part of the request, tells whether it
// started.
type Start struct {
	// Stream gives access to the session. Its ID is the command's: empty if the
	// service chooses it.
	Stream logstream.Command
	// Chosen is set if the caller has chosen the ID.
	Chosen bool
	Body   *Body
	// Check refuses an ID that would lead a request elsewhere.
	Check func(id string) error
	// Honored is set if the service has honored a generated ID before.
	Honored bool
	// Distrust is called if the service does not honor generated IDs, and Doubt if
	// it seems so.
	Distrust, Doubt func(ctx context.Context, why string)
	// Kill, if not nil, kills the command whose start was given up: the request
	// then outlives its context, so that a command that did start is known.
	Kill func(ctx context.Context, id string)
}

// Request is the request of the start.
func (s *Start) Request(op *api.Op) *api.Request {
	req := &api.Request{Op: op, Path: []string{s.Stream.Session}, Body: s.Body}
	if s.Stream.ID != "" {
		req.Query = url.Values{"cmdId": {s.Stream.ID}}
	}
	return req
}

// Begin starts the command and returns it. If the body asks for the output, r
// reads it until live ends; release frees what that needs. The start itself is
// given up when ctx ends, or shortly after if the command is to be killed then.
func (s *Start) Begin(ctx, live context.Context) (cmd *wire.Command, r *logstream.Reader, release func(), err error) {
	open := &opening{Context: ctx}
	if s.Kill != nil {
		open = newOpening(ctx, OpenGrace)
	}
	if s.Body.Logs {
		cmd, r, err = s.followed(live, open)
	} else {
		cmd, err = s.send(open, func() {}, func() (*wire.Command, error) { return s.detached(open) })
	}
	if err != nil {
		open.release()
		if s.Kill != nil && s.Stream.ID != "" && ctx.Err() != nil && Unknown(err) {
			s.Kill(ctx, s.Stream.ID)
		}
		return nil, nil, nil, err
	}
	open.follow(live)
	return cmd, r, open.release, nil
}

// Late returns the context of a kill after ctx has ended, which leaves TreeGrace
// twice of the time that the kill may take.
func Late(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), within-2*TreeGrace)
}

// Patience returns how long the kill of a command may take that has just begun:
// the start may have used up a part of KillGrace.
func Patience(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return KillGrace - OpenGrace
	}
	return KillGrace
}

func (s *Start) followed(live context.Context, open *opening) (*wire.Command, *logstream.Reader, error) {
	var r *logstream.Reader
	drop := func() {
		if r != nil {
			r.Close()
			r = nil
		}
	}
	cmd, err := s.send(open, drop, func() (*wire.Command, error) {
		req := s.Request(api.RunCommand)
		resp, err := s.Stream.Client.Stream(open, req)
		if err != nil {
			return nil, err
		}
		stream := s.Stream
		stream.ID = ""
		r = logstream.Waited(live, stream, resp.Body)
		first, err := r.Start()
		if err != nil {
			drop()
		}
		return first, err
	})
	if err == nil && r == nil { // it was found by its ID
		stream := s.Stream
		stream.ID = cmd.ID
		r = logstream.Adopt(live, stream, cmd)
	}
	return cmd, r, err
}

func (s *Start) detached(open context.Context) (*wire.Command, error) {
	var response wire.CommandResponse
	req := s.Request(api.StartCommand)
	if err := s.Stream.Client.Do(open, req, &response); err != nil {
		return nil, err
	}
	return &response.Command, nil
}

// send sends the request and, if the response does not tell whether it took
// effect, looks for the command. drop drops a response that was another's.
func (s *Start) send(ctx *opening, drop func(), once func() (*wire.Command, error)) (*wire.Command, error) {
	cmd, err := once()
	if s.refusedID(err) {
		s.Distrust(ctx, "the service refused an ID for a command")
		s.Stream.ID = ""
		cmd, err = once()
	}
	if err == nil {
		if err := s.Check(cmd.ID); err != nil {
			return nil, err
		}
		if s.Stream.ID != "" && cmd.ID != s.Stream.ID {
			switch ours, err := s.exchanged(ctx); {
			case err != nil:
				drop()
				return nil, err
			case ours != nil:
				drop()
				return ours, nil
			}
			s.Stream.ID = ""
		}
		return cmd, nil
	}
	if s.Stream.ID == "" || !Unknown(err) && !s.twice(err) {
		return nil, err
	}
	found := logstream.Find(ctx, s.Stream, settleTime)
	switch {
	case found != nil && s.mayBe(found):
		return found, nil
	case found != nil:
		s.Stream.ID = "" // it is not ours to kill
		return nil, fmt.Errorf("%w; a command of this ID runs another program", err)
	case !Unknown(err):
		// The one that was delivered before may still be carried out.
		err = &TwiceError{err}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w; %w", api.ContextError(ctx), err)
	}
	return nil, err
}

// exchanged returns the command that was started, if the response to the start
// was another's, which something in between has exchanged for ours. It returns nil
// if the service gives IDs of its own: it then refuses, in the API's own words, to
// know ours, or it has never honored one and the look tells nothing, as with a
// test's double that knows no look. Otherwise nothing is known of the start.
func (s *Start) exchanged(ctx *opening) (*wire.Command, error) {
	limited, cancel := context.WithTimeout(ctx.asker(), settleTime)
	defer cancel()
	ours, err := s.Stream.Look(limited, false)
	const why = "the service gave a command another ID than the client chose"
	if f, ok := err.(*api.Failure); ok && f.Kind.Unknowing() {
		s.Distrust(ctx, why)
		return nil, nil
	}
	switch {
	case err == nil && s.mayBe(ours):
		return ours, nil
	case err == nil:
		s.Stream.ID = "" // it is not ours to kill
		return nil, errors.New("the response is that of another command, and a command of this ID runs another program")
	case ctx.asker().Err() != nil:
		err = api.ContextError(ctx.asker())
	case !s.Honored && !s.Chosen:
		s.Doubt(ctx, why)
		return nil, nil
	}
	return nil, fmt.Errorf("the response is that of another command, and ours can't be looked up: %w", err)
}

// TwiceError is the error of a start that the service has refused because of a
// command that has the generated ID already, which was not found: the request
// was delivered twice, and the outcome of the first is unknown.
type TwiceError struct{ Err error }

func (e *TwiceError) Error() string { return e.Err.Error() }
func (e *TwiceError) Unwrap() error { return e.Err }

// twice reports whether the service refused the request because of a command
// that has the generated ID already: a proxy has delivered the request before,
// and passes on the response to its retry.
func (s *Start) twice(err error) bool {
	f, ok := err.(*api.Failure)
	return ok && !s.Chosen && f.Kind == api.Conflict
}

// mayBe reports whether a command that has the start's ID may be the one that it
// started. An ID of the caller's may belong to an earlier command, because of
// which the API has refused this one.
func (s *Start) mayBe(found *wire.Command) bool {
	return !s.Chosen || found.Name == s.Body.Command && slices.Equal(found.Args, s.Body.Args)
}

// refusedID reports whether the service refused the request because of a
// generated ID.
func (s *Start) refusedID(err error) bool {
	f, ok := err.(*api.Failure)
	return ok && s.Stream.ID != "" && !s.Chosen && !f.Uncertain && f.Kind == api.IDsRefused
}

// Unknown reports whether a failed start may have taken effect.
func Unknown(err error) bool {
	switch e := err.(type) {
	case *api.Failure:
		return e.OutcomeUnknown()
	case *api.AuthError:
		return false
	}
	return true // a stream that broke before it named the command
}
