package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/redact"
)

// EnsureOptions are the options of [Sandbox.EnsureCommand]. The zero value runs
// the program as the sandbox's user in the session's working directory, and does
// not wait for anything.
type EnsureOptions struct {
	// Cwd, Env and Sudo are those of [CommandOptions].
	Cwd  string
	Env  Env
	Sudo bool
	// Port is an exposed port to wait for, as [Sandbox.WaitForPort] does. Zero
	// waits for none.
	Port int
	// Log matches a line of output to wait for. Nil waits for none.
	Log *regexp.Regexp
}

// Format prints the options without values that may be secret, for every verb.
func (o EnsureOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

const maxEnsureID = 40

// EnsureCommand returns the program that runs under an ID in the sandbox's current
// session, for example a server, and starts it if there is none. All callers with that ID,
// in all processes, get the same command. EnsureCommand waits until the port and the line
// of the log in opts are ready, or ctx ends. A program that has ended is started again, so
// it must not move to the background by itself. A nil opts means the defaults. The SDK
// assumes, but has not observed, that the service refuses an ID that is taken. Otherwise
// callers that start the program at the same moment could get two commands.
//
// The ID has at most 40 letters, digits, underscores and dashes; [Command.ID] is longer,
// since each start has its own. An ID stands for one program with its arguments. If
// another program runs under it, EnsureCommand returns that command with an error that
// matches [ErrConflict]. The caller can kill it, or choose another ID.
//
// EnsureCommand resumes a stopped sandbox. It makes one or two requests if the program
// runs, and two or three to start it. The waits for a port and for a line of the log add
// the requests of [Sandbox.WaitForPort] and [Command.WaitForLog]. If the service does not
// let clients choose IDs, the error matches [ErrCommandIDs]. If the program ends early,
// the error shows its exit code and last line.
func (s *Sandbox) EnsureCommand(ctx context.Context, id, name string, args []string, opts *EnsureOptions) (*Command, error) {
	o := orZero(opts)
	if _, err := enter(ctx, s); err != nil {
		return nil, err
	}
	if id == "" || len(id) > maxEnsureID {
		return nil, invalid("id", "has %d characters; 1 to %d are allowed", len(id), maxEnsureID)
	}
	if o.Port != 0 {
		if err := checkPort("Port", o.Port); err != nil {
			return nil, err
		}
	}
	run := &StartOptions{Cwd: o.Cwd, Env: o.Env, Sudo: o.Sudo, ID: id}
	if _, err := newCommandBody(name, args, run.command()); err != nil {
		return nil, err
	}
	cmd, err := withResume(ctx, s, func(cur *Session) (*Command, error) {
		if o.Port != 0 {
			if _, err := cur.URL(o.Port); err != nil {
				return nil, err // the program could never be ready
			}
		}
		return cur.ensure(ctx, id, name, args, *run)
	})
	if err != nil {
		return nil, err
	}
	if other := cmd.Name(); other != name || !slices.Equal(cmd.Args(), args) {
		if other == name {
			other += " with other arguments"
		}
		return cmd, fmt.Errorf("sandbox: %w: %q of %q is already %s, command %s: kill it first, or take another ID", ErrConflict, id, s.Name(), other, cmd.ID())
	}
	if err := s.awaitReady(ctx, cmd, &o); err != nil {
		if code, over := cmd.ExitStatus(); over && code == 0 {
			err = fmt.Errorf("%w; run the program in the foreground, without & and not as a daemon", err)
		}
		return nil, fmt.Errorf("sandbox: %q of %q is not ready: %w", id, s.Name(), err)
	}
	return cmd, nil
}

// ensure finds the program that runs under an ID, or starts it. The IDs of its starts
// contain the session, so that they differ between sessions.
func (s *Session) ensure(ctx context.Context, id, name string, args []string, o StartOptions) (*Command, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(s.ID()))
	base := id + "-" + hex.EncodeToString(sum[:4])
	// The starts are numbered consecutively, and all but the last have ended. So the search
	// can double its steps, and then halve them, to find the last start. With a lookup for
	// each number, a program that ends again and again would cost more and more requests.
	ended := 0
	find := func() (*Command, error) {
		missing, known := math.MaxInt, ended
		for missing-ended > 1 {
			n := ended + min(max(1, ended-known), (missing-ended)/2)
			o.ID = base + "-" + strconv.Itoa(n)
			data, err := c.lookAtCommand(ctx, s.ID(), o.ID)
			switch e, is := errors.AsType[*APIError](err); {
			case is && !e.refused && errors.Is(e, ErrNotFound):
				missing = n
			case err != nil:
				return nil, err
			case data.ExitCode == nil:
				return newCommand(c, s.ID(), *data), nil
			default:
				ended = n
			}
		}
		o.ID = base + "-" + strconv.Itoa(missing)
		return nil, nil
	}
	for refused := ""; ; refused = o.ID {
		if cmd, err := find(); cmd != nil || err != nil {
			return cmd, err
		}
		// The ID is the lock: the service gives it to one start.
		cmd, err := s.StartCommand(ctx, name, args, &o)
		switch {
		case errors.Is(err, ErrConflict) && o.ID != refused:
			continue // another caller was faster: take its command
		case err == nil && cmd.ID() != o.ID:
			return nil, cmd.killAfterCancel(ctx, engine.KillGrace, fmt.Errorf("sandbox: %q can't be found again: %w", id, ErrCommandIDs))
		}
		return cmd, err
	}
}

// awaitReady waits until a program is ready, and gives up when it ends.
func (s *Sandbox) awaitReady(ctx context.Context, cmd *Command, o *EnsureOptions) error {
	if o.Log != nil {
		if _, err := cmd.WaitForLog(ctx, o.Log); err != nil {
			return err
		}
	}
	if o.Port == 0 {
		return nil
	}
	watched, end := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if _, err := cmd.waitForLog(watched, nil); watched.Err() == nil {
			end(err)
		}
	}()
	_, err := s.WaitForPort(watched, o.Port, nil)
	ended := context.Cause(watched)
	end(nil)
	<-over
	if err != nil && ended != nil && ctx.Err() == nil {
		return ended
	}
	return err
}
