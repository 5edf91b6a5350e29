// Package engine starts and supervises commands. [Start] makes the requests of a start, and
// [Run] supervises a command after it. Package logstream reads the output. The three ways to
// run a command (RunCommand, StartCommand and Cmd) are thin layers over this package.
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
	// OpenGrace is how long to wait for the response to a start after the context has
	// ended, to be able to kill a command that did start.
	OpenGrace = 3 * time.Second
	// KillGrace limits the time that a call continues after its context has ended.
	KillGrace = 5 * time.Second
	// appearTimeout is how long after a lost response to its start a command may still
	// appear.
	appearTimeout = 5 * time.Second
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

	// Secret contains the variables of the caller. Env may also contain variables of the
	// client, which an error may show.
	Secret map[string]string `json:"-"`
}

// Secrets returns the part of the request that an error must not show.
func (b *Body) Secrets() any {
	if b == nil {
		return nil
	}
	return map[string]any{"env": b.Secret}
}

// Mark sets TreeVariable for the process. Sudo drops the environment and may exec the
// program that it starts. So Mark also passes the variable to that program: as an argument
// of sudo or, if at is not zero, as an argument of the program env, at that index.
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

// isSudo reports whether a program is sudo, which accepts variables before its options.
func isSudo(program string) bool { return path.Base(program) == "sudo" }

// Unmarked returns the arguments of a program without the one that Mark adds for sudo.
func Unmarked(program string, args []string) []string {
	if isSudo(program) && len(args) > 0 && strings.HasPrefix(args[0], TreeVariable+"=") {
		return args[1:]
	}
	return args
}

// Start is one start of a command. The request takes effect once. If the response is lost, the
// command's ID, which is part of the request, shows whether the command started.
type Start struct {
	// Stream identifies the session. Its ID is the command's; empty if the service chooses
	// it.
	Stream logstream.Command
	// Chosen is set if the caller has chosen the ID.
	Chosen bool
	Body   *Body
	// Check refuses an ID that would change the path of a request.
	Check func(id string) error
	// Honored is set if the service has honored a generated ID before.
	Honored bool
	// Distrust is called if the service does not honor generated IDs, and Doubt if it
	// probably does not.
	Distrust, Doubt func(ctx context.Context, why string)
	// Kill, if not nil, kills a command whose start was canceled. The request then
	// outlives its context, to learn whether the command started.
	Kill func(ctx context.Context, id string)
}

// Request returns the request of the start.
func (s *Start) Request(op *api.Op) *api.Request {
	req := &api.Request{Op: op, Path: []string{s.Stream.Session}, Body: s.Body}
	if s.Stream.ID != "" {
		req.Query = url.Values{"cmdId": {s.Stream.ID}}
	}
	return req
}

// Begin starts the command and returns it. If the body requests the output, r reads it until
// live ends; release frees its resources. The start is canceled when ctx ends, or up to
// OpenGrace later if Kill is set.
func (s *Start) Begin(ctx, live context.Context) (cmd *wire.Command, r *logstream.Reader, release func(), err error) {
	open := &startContext{Context: ctx}
	if s.Kill != nil {
		open = newStartContext(ctx, OpenGrace)
	}
	if s.Body.Logs {
		cmd, r, err = s.startStreaming(live, open)
	} else {
		cmd, err = s.send(open, func() {}, func() (*wire.Command, error) { return s.startDetached(open) })
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

// Late returns the context for a kill after ctx has ended. Its timeout is within, minus
// two times TreeGrace for the final requests.
func Late(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), within-2*TreeGrace)
}

// Patience returns the time limit for the kill of a command that has just started: the start
// may have used part of KillGrace.
func Patience(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return KillGrace - OpenGrace
	}
	return KillGrace
}

func (s *Start) startStreaming(live context.Context, open *startContext) (*wire.Command, *logstream.Reader, error) {
	var r *logstream.Reader
	discard := func() {
		if r != nil {
			r.Close()
			r = nil
		}
	}
	cmd, err := s.send(open, discard, func() (*wire.Command, error) {
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
			discard()
		}
		return first, err
	})
	if err == nil && r == nil { // send found the command by its ID
		stream := s.Stream
		stream.ID = cmd.ID
		r = logstream.Adopt(live, stream, cmd)
	}
	return cmd, r, err
}

func (s *Start) startDetached(open context.Context) (*wire.Command, error) {
	var response wire.CommandResponse
	req := s.Request(api.StartCommand)
	if err := s.Stream.Client.Do(open, req, &response); err != nil {
		return nil, err
	}
	return &response.Command, nil
}

// send calls request. If the response does not show whether the command started, send
// looks for the command. discard closes a response that belongs to another command.
func (s *Start) send(ctx *startContext, discard func(), request func() (*wire.Command, error)) (*wire.Command, error) {
	cmd, err := request()
	if s.isIDRefused(err) {
		s.Distrust(ctx, "the service refused an ID for a command")
		s.Stream.ID = ""
		cmd, err = request()
	}
	if err == nil {
		if err := s.Check(cmd.ID); err != nil {
			return nil, err
		}
		if s.Stream.ID != "" && cmd.ID != s.Stream.ID {
			switch ours, err := s.resolveOtherID(ctx); {
			case err != nil:
				discard()
				return nil, err
			case ours != nil:
				discard()
				return ours, nil
			}
			s.Stream.ID = ""
		}
		return cmd, nil
	}
	if s.Stream.ID == "" || !Unknown(err) && !s.isDuplicate(err) {
		return nil, err
	}
	found := logstream.Find(ctx, s.Stream, appearTimeout)
	switch {
	case found != nil && s.isOurs(found):
		return found, nil
	case found != nil:
		s.Stream.ID = "" // it is not ours to kill
		return nil, fmt.Errorf("%w; a command of this ID runs another program", err)
	case !Unknown(err):
		// The first delivery may still start the command.
		err = &TwiceError{err}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w; %w", api.ContextError(ctx), err)
	}
	return nil, err
}

// resolveOtherID handles a response with another ID than the client chose. If a proxy has
// mixed up responses, it returns our command. It returns nil if the service chooses IDs
// itself: either the API reports that our ID is unknown, or it has never honored an ID and the
// lookup fails, as with a test double without lookups. Otherwise the outcome of the start is
// unknown, and it returns an error.
func (s *Start) resolveOtherID(ctx *startContext) (*wire.Command, error) {
	limited, cancel := context.WithTimeout(ctx.callerContext(), appearTimeout)
	defer cancel()
	ours, err := s.Stream.Look(limited, false)
	const why = "the service gave a command another ID than the client chose"
	if f, ok := err.(*api.Failure); ok && f.Kind.Unknowing() {
		s.Distrust(ctx, why)
		return nil, nil
	}
	switch {
	case err == nil && s.isOurs(ours):
		return ours, nil
	case err == nil:
		s.Stream.ID = "" // it is not ours to kill
		return nil, errors.New("the response belongs to another command, and a command of this ID runs another program")
	case ctx.callerContext().Err() != nil:
		err = api.ContextError(ctx.callerContext())
	case !s.Honored && !s.Chosen:
		s.Doubt(ctx, why)
		return nil, nil
	}
	return nil, fmt.Errorf("the response belongs to another command, and ours can't be looked up: %w", err)
}

// TwiceError is the error of a start that the service has refused because a command with the
// generated ID exists, although a lookup did not find it. The request was delivered twice, and
// the outcome of the first delivery is unknown.
type TwiceError struct{ Err error }

func (e *TwiceError) Error() string { return e.Err.Error() }
func (e *TwiceError) Unwrap() error { return e.Err }

// isDuplicate reports whether the service refused the request because a command with the
// generated ID exists: a proxy has sent the request twice. The first one started the
// command, and the proxy returned the response to the second one.
func (s *Start) isDuplicate(err error) bool {
	f, ok := err.(*api.Failure)
	return ok && !s.Chosen && f.Kind == api.Conflict
}

// isOurs reports whether a command with the start's ID may be the one that it started. An ID
// that the caller chose may belong to an earlier command.
func (s *Start) isOurs(found *wire.Command) bool {
	return !s.Chosen || found.Name == s.Body.Command && slices.Equal(found.Args, s.Body.Args)
}

// isIDRefused reports whether the service refused the request because it contains a generated
// ID.
func (s *Start) isIDRefused(err error) bool {
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
	return true // the stream broke before its first record
}
