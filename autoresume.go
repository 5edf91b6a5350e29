package sandbox

import (
	"context"
	"fmt"
	"io"

	"github.com/go-vercel/sandbox/internal/api"
)

// maxResumes is how often one call resumes the sandbox, as in the official
// client: others may stop sessions as fast as they are started.
const maxResumes = 1

// withResume calls fn with the current session, after a running hook has
// finished. If the API refuses fn's request because the session is stopped or
// stopping, the sandbox is resumed and fn called once more; that is safe
// because the API refused before the request had any effect.
func withResume[T any](ctx context.Context, s *Sandbox, fn func(*Session) (T, error)) (T, error) {
	var zero T
	if _, err := enter(ctx, s); err != nil {
		return zero, err
	}
	cur, err := s.ready(ctx)
	for resumes := 0; ; resumes++ {
		if err == nil {
			err = cur.waitReady(ctx)
		}
		if err != nil {
			return zero, err
		}
		v, err := fn(cur)
		if !refusal(cur, err) || resumes == maxResumes {
			return v, err
		}
		if cur, err = s.resume(ctx, cur, outcome(ctx, err), err); err != nil {
			return zero, err
		}
	}
}

// withResumeDo is withResume for operations without a result.
func withResumeDo(ctx context.Context, s *Sandbox, fn func(*Session) error) error {
	_, err := withResume(ctx, s, func(cur *Session) (struct{}, error) { return struct{}{}, fn(cur) })
	return err
}

// ready returns the session to use: the current one or, while hooks have to run
// for it, the one after they have.
func (s *Sandbox) ready(ctx context.Context) (*Session, error) {
	s.st.mu.Lock()
	cur, calm := s.st.current, s.st.resuming == nil
	s.st.mu.Unlock()
	if cur != nil && (s.hookOf(ctx) != nil || calm && s.resumeHook(cur) == nil) {
		return cur, nil
	}
	return s.resume(ctx, nil, causeHook, nil)
}

// lookAt calls fn with the current session. A session that has stopped is not
// started again for it, but another client may have started the next one.
func lookAt[T any](ctx context.Context, s *Sandbox, fn func(*Session) (T, error)) (T, error) {
	cur, err := s.sessionToLookAt(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := fn(cur)
	if refusal(cur, err) && s.Refresh(ctx) == nil {
		if next := s.CurrentSession(); next != cur {
			return fn(next)
		}
	}
	return v, err
}

// sessionToLookAt returns the session whose commands are looked up. It starts
// none.
func (s *Sandbox) sessionToLookAt(ctx context.Context) (*Session, error) {
	if _, err := enter(ctx, s); err != nil {
		return nil, err
	}
	if cur := s.CurrentSession(); cur != nil {
		return cur, nil
	}
	if err := s.Refresh(ctx); err != nil {
		return nil, err
	}
	if cur := s.CurrentSession(); cur != nil {
		return cur, nil
	}
	return nil, fmt.Errorf("sandbox: %q: %w", s.Name(), ErrStopped)
}

func (s *Sandbox) begin(ctx, live context.Context, name string, args []string, o *CommandOptions, followed bool) (*Command, *follower, error) {
	var f *follower
	cmd, err := withResume(ctx, s, func(cur *Session) (cmd *Command, err error) {
		cmd, f, err = cur.begin(ctx, live, name, args, o, followed)
		return cmd, err
	})
	return cmd, f, err
}

func (s *Sandbox) mkdir(ctx context.Context, path string) error {
	return withResumeDo(ctx, s, func(cur *Session) error { return cur.mkdir(ctx, path) })
}

func (s *Sandbox) openFile(ctx context.Context, path, cwd string) (io.ReadCloser, int64, error) {
	type opened struct {
		body io.ReadCloser
		size int64
	}
	o, err := withResume(ctx, s, func(cur *Session) (opened, error) {
		body, size, err := cur.openFile(ctx, path, cwd)
		return opened{body, size}, err
	})
	return o.body, o.size, err
}

func (s *Sandbox) uploadTarGz(ctx context.Context, open func(cwd string) (io.ReadCloser, error)) (int64, error) {
	return withResume(ctx, s, func(cur *Session) (int64, error) { return cur.uploadTarGz(ctx, open) })
}

// RunCommand is like [Session.RunCommand] for the current session, but resumes
// the sandbox if it is stopped.
func (s *Sandbox) RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginCommand(ctx, s, name, args)
	return s.runCommand(ctx, name, args, opts, e)
}

// StartCommand is like [Session.StartCommand] for the current session, but
// resumes the sandbox if it is stopped.
func (s *Sandbox) StartCommand(ctx context.Context, name string, args []string, opts *StartOptions) (*Command, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginCommand(ctx, s, name, args)
	return s.startCommand(ctx, name, args, *opts.command(), e)
}

func (s *Sandbox) runCommand(ctx context.Context, name string, args []string, opts *CommandOptions, e api.Span) (*CommandResult, error) {
	done, err := withResume(ctx, s, func(cur *Session) (ran, error) { return cur.runCommand(ctx, name, args, opts) })
	done.end(&e, err)
	return done.result, err
}

func (s *Sandbox) startCommand(ctx context.Context, name string, args []string, o CommandOptions, e api.Span) (*Command, error) {
	begun, err := withResume(ctx, s, func(cur *Session) (ran, error) { return cur.startCommand(ctx, name, args, o, e) })
	begun.end(&e, err)
	return begun.cmd, err
}

// GetCommand is like [Session.GetCommand] for the current session. It does not
// resume the sandbox: the commands of a stopped session are gone, and the error
// then matches [ErrStopped].
func (s *Sandbox) GetCommand(ctx context.Context, id string) (*Command, error) {
	return lookAt(ctx, s, func(cur *Session) (*Command, error) { return cur.GetCommand(ctx, id) })
}

// ListCommands is like [Session.ListCommands] for the current session. Like
// [Sandbox.GetCommand], it does not resume the sandbox.
func (s *Sandbox) ListCommands(ctx context.Context) ([]*Command, error) {
	return lookAt(ctx, s, func(cur *Session) ([]*Command, error) { return cur.ListCommands(ctx) })
}
