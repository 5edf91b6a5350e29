package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// Command is a process in a session, or a stub that replaces it. Fields that mu does not
// guard never change.
type Command struct {
	sess      *Session
	id        string
	name      string
	args      []string
	cwd       string
	startedAt time.Time
	began     time.Time // by the machine's clock
	log       *commandLog
	input     *commandInput // nil without an open standard input
	done      chan struct{} // closed at the end

	mu       sync.Mutex
	proc     runner
	exitCode *int
	duration time.Duration
	timeout  *timer
	// waited is set when a client has waited for the end. Until then the API shows no
	// client that the command has ended.
	waited bool
	// cut is set if the end of the session has ended the command.
	cut bool
	// signalled is when the command last received a signal, by the machine's clock.
	signalled time.Time
}

// Exited reports whether the command has ended.
func (cmd *Command) Exited() bool {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	return cmd.exitCode != nil
}

// Report describes an ended command to a client that has waited for it. From then on
// Describe reports the end to all clients.
func (cmd *Command) Report() wire.Command {
	cmd.mu.Lock()
	cmd.waited = true
	cmd.mu.Unlock()
	return cmd.Describe()
}

// Describe returns the command as the API shows it.
func (cmd *Command) Describe() wire.Command {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	w := wire.Command{
		ID: cmd.id, Name: cmd.name, Args: cmd.args, Cwd: cmd.cwd, SessionID: cmd.sess.rec.ID,
		StartedAt: wire.At(cmd.startedAt),
	}
	if w.Args == nil {
		w.Args = []string{}
	}
	if cmd.exitCode != nil && cmd.waited {
		w.ExitCode, w.DurationMs = cmd.exitCode, new(wholeMillis(cmd.duration))
	}
	return w
}

// WasCut reports whether the end of the session has ended the command.
func (cmd *Command) WasCut() bool {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	return cmd.cut
}

// minSignalAge is the minimum age of a command when a signal reaches it.
const minSignalAge = 150 * time.Millisecond

// Signal sends a signal to the command alone.
func (cmd *Command) Signal(ctx context.Context, n int) error {
	cmd.mu.Lock()
	proc := cmd.proc
	cmd.mu.Unlock()
	// Over a network, a signal never arrives before the program has set its traps.
	if early := minSignalAge - time.Since(cmd.began); early > 0 {
		t := time.NewTimer(early)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cmd.mu.Lock()
	cmd.signalled = time.Now()
	cmd.mu.Unlock()
	switch err := proc.Signal(n); {
	case errors.Is(err, os.ErrProcessDone):
		return reply.ErrCommandGone
	case err != nil:
		return fmt.Errorf("signal: %w", err)
	}
	return nil
}

// Command returns a command of the session, which must be running.
func (sess *Session) Command(ctx context.Context, id string) (*Command, error) {
	if _, err := sess.Use(ctx); err != nil {
		return nil, err
	}
	sess.sb.st.mu.Lock()
	defer sess.sb.st.mu.Unlock()
	if cmd := sess.commands[id]; cmd != nil {
		return cmd, nil
	}
	return nil, reply.ErrCommandNotFound
}

// reserveID reserves an ID for a command that is about to start. If id is empty, it
// generates one. If another command is about to start with the ID, reserveID waits for that
// start. A client that gets a conflict can then find the other command.
func (sess *Session) reserveID(ctx context.Context, id string) (string, error) {
	id = cmp.Or(id, newCommandID())
	st := sess.sb.st
	for {
		st.mu.Lock()
		cmd, taken := sess.commands[id]
		if !taken {
			sess.commands[id] = nil
		}
		changed := sess.changed
		st.mu.Unlock()
		switch {
		case !taken:
			return id, nil
		case cmd != nil:
			return "", reply.Fail(http.StatusConflict, "conflict", "A command with the ID '%s' already exists.", id)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// endReservation ends the reservation of an ID. If no command has started with the ID, it
// becomes free. Goroutines that wait for the outcome are woken.
func (sess *Session) endReservation(id string) {
	st := sess.sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if sess.commands[id] == nil {
		delete(sess.commands, id)
	}
	sess.wakeLocked()
}

// Ended returns a channel that is closed when the command has ended.
func (cmd *Command) Ended() <-chan struct{} { return cmd.done }

// CopyLog copies the output to w, until it ends.
func (cmd *Command) CopyLog(ctx context.Context, w io.Writer, flush func() error) error {
	return cmd.log.CopyTo(ctx, w, flush)
}

// SessionFailed reports whether the machine has died while the command was running.
func (cmd *Command) SessionFailed() bool { return cmd.sess.hasFailed() }
