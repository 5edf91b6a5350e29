package durable

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
)

// RunOptions configures a command. The zero value runs it in the working directory,
// without a time limit.
type RunOptions struct {
	Cwd  string `json:"cwd,omitempty"`
	Sudo bool   `json:"sudo,omitempty"`
	// ArgFrom is the key of an object in the worker's output store. Its text becomes the
	// last argument, and stays out of the history.
	ArgFrom string `json:"argFrom,omitempty"`
	// Timeout ends the command. Zero means no limit but the platform's cap on a
	// machine's time.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Output is the key of the stored output. Empty means a key of the workflow's ID, the
	// sandbox's name and the command's number.
	Output string `json:"output,omitempty"`
	// NoTail leaves the tail out of the result, and so out of the workflow's history, if
	// the output is stored.
	NoTail bool `json:"noTail,omitempty"`
	// MaxOutput limits the stored output, in bytes. Of the rest, only the tail is kept.
	// Zero means no limit.
	MaxOutput int64 `json:"maxOutput,omitempty"`
}

// Outcome says how a command ended.
type Outcome string

const (
	// Exited commands ended by themselves or by their timeout. They have an exit code.
	Exited Outcome = "exited"
	// Killed commands were ended by [Sandbox.Kill]. They have an exit code.
	Killed Outcome = "killed"
	// Lost commands have an unknown end, because their machine ended first. They may
	// never have started.
	Lost Outcome = "lost"
)

// Command is a started command. It is a plain value.
type Command struct {
	// ID is the platform's ID of the command, and VM that of the machine's session. They
	// are empty if the machine ended before the outcome of the start was known.
	ID string `json:"id,omitempty"`
	VM string `json:"vm,omitempty"`
	// Output is the key of the stored output.
	Output string `json:"output"`
	// Handle is the SDK's handle, as JSON, without the arguments.
	Handle json.RawMessage `json:"handle,omitempty"`
	// Signaled is set by Kill.
	Signaled bool `json:"signaled,omitempty"`
	// NoTail and MaxOutput are copied from the RunOptions.
	NoTail    bool  `json:"noTail,omitempty"`
	MaxOutput int64 `json:"maxOutput,omitempty"`
}

// Result is the result of a command.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// ExitCode is 128 plus the signal's number if a signal ended the command. It means
	// nothing if the outcome is [Lost].
	ExitCode int           `json:"exitCode"`
	Duration time.Duration `json:"duration,omitempty"`
	// Bytes counts the output of both streams. Tail is the last 2 KiB of it, as text.
	Bytes int64  `json:"bytes"`
	Tail  string `json:"tail,omitempty"`
	// Archived says that the output is in the store under Output. The output of a lost
	// command ends where its machine did.
	Archived bool   `json:"archived,omitempty"`
	Output   string `json:"output,omitempty"`
	// Truncated says that the command wrote more than MaxOutput.
	Truncated bool `json:"truncated,omitempty"`
	// ExpiresAt is the end of the machine's lease, which the end of the command renewed.
	// It is zero if the machine has ended.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Rewound is set only by an activity: [Sandbox.Result] returns ErrRewound for it.
	Rewound bool `json:"rewound,omitempty"`
}

// Err returns an error unless the command exited with code 0.
func (r *Result) Err() error {
	if err := entry.Made(r != nil, "durable", "the Result"); err != nil {
		return err
	}
	switch {
	case r.Outcome == Lost:
		return errors.New("durable: the machine ended before the command's end was known")
	case r.ExitCode != 0:
		return fmt.Errorf("durable: the command ended with exit code %d", r.ExitCode)
	}
	return nil
}

// Run starts a command and waits for its end. A non-zero exit code and a lost
// command are results, not errors; see [Result.Err].
func (s *Sandbox) Run(ctx workflow.Context, name string, args []string, o *RunOptions) (*Result, error) {
	cmd, err := s.Start(ctx, name, args, o)
	if err != nil {
		return nil, err
	}
	return s.Wait(ctx, cmd)
}

// Start starts a command, at most once. If no machine runs, it starts one. If Start returns
// an error, this call did not run the command and will not. If the error matches [ErrReset]
// or [ErrRewound], the sandbox lost something earlier (see [Sandbox.OnLoss]); call Start
// again to run the command.
func (s *Sandbox) Start(ctx workflow.Context, name string, args []string, o *RunOptions) (*Command, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	opts := *cmp.Or(o, new(RunOptions))
	info := workflow.GetInfo(ctx)
	s.Commands++
	// After Temporal's database was restored, a lost history of this workflow may have made
	// the same call. That call had another time, and so another nonce.
	nonce := timestamp(ctx)
	opts.Output = cmp.Or(opts.Output, fmt.Sprintf("%s/%s/%d-%s", info.WorkflowExecution.ID, s.Options.Name, s.Commands, nonce))
	in := startInput{Sandbox: s.Options.Name, EnvFrom: s.Options.EnvFrom, Name: name, Args: args, Options: opts, Nonce: nonce, Lease: s.Options.lease()}
	for again := false; ; again = true {
		if err := s.ensureMachine(ctx); err != nil {
			return nil, err
		}
		in.Key = fmt.Sprintf("%s.%s.%d", info.FirstRunID, s.Epoch, s.Commands)
		in.VM, in.Expires = s.VM, s.ExpiresAt
		got, err := s.start(ctx, in)
		if err != nil {
			return nil, err
		}
		if !got.ExpiresAt.IsZero() {
			s.ExpiresAt = got.ExpiresAt
		}
		switch {
		case got.Rewound:
			s.noteRewound(ctx)
			if err := s.checkLoss(ctx, ErrRewound); err != nil {
				return nil, err
			}
		case got.Refused && !again:
			s.noteEnded() // the machine ended before anything was sent: try again
		case got.Refused, got.Lost:
			s.noteEnded()
			return &Command{Output: opts.Output}, nil
		default:
			return &Command{ID: got.ID, VM: s.VM, Output: opts.Output, Handle: got.Handle, NoTail: opts.NoTail, MaxOutput: opts.MaxOutput}, nil
		}
	}
}

// start executes the activity. It returns an error about the command itself, and retries
// after any other refusal.
func (s *Sandbox) start(ctx workflow.Context, in startInput) (got started, err error) {
	for again := true; again; {
		err = workflow.ExecuteActivity(withSummary(s.withShortOptions(ctx), in.Options.Output), activityStart, in).Get(ctx, &got)
		if refusalType(err) == errInvalid {
			break
		}
		if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
			in.Again = !app.HasDetails() // the details say that no attempt started it
		}
		again, err = s.Outlast(ctx, err)
	}
	return got, err
}

// Wait waits for the command's end, while its output goes to the store. If ctx is
// canceled, the command continues; see [Sandbox.Kill].
func (s *Sandbox) Wait(ctx workflow.Context, c *Command) (*Result, error) {
	if err := cmp.Or(s.check(ctx), entry.Made(c != nil, "durable", "the Command")); err != nil {
		return nil, err
	}
	for {
		res, err := s.Result(ctx, c, s.Follow(ctx, c))
		again, err := s.Outlast(ctx, err)
		if !again {
			return res, err
		}
	}
}

// Follow begins to follow the command and returns a future of its end, for workflows that
// do other things in the meantime. Pass the future to [Sandbox.Result].
func (s *Sandbox) Follow(ctx workflow.Context, c *Command) workflow.Future {
	if err := cmp.Or(s.check(ctx), entry.Made(c != nil, "durable", "the Command")); err != nil || c.ID == "" {
		done, settable := workflow.NewFuture(ctx)
		settable.Set(Result{Outcome: Lost}, err)
		return done
	}
	return workflow.ExecuteActivity(withSummary(s.withFollowOptions(ctx), c.Output), activityFollow, followInput{
		Command: *c, Sandbox: s.Options.Name, Lease: s.Options.lease(), Expires: s.ExpiresAt,
	})
}

// Result waits for a future of [Sandbox.Follow]. An error that matches [ErrRewound] means
// that the command did not run.
func (s *Sandbox) Result(ctx workflow.Context, c *Command, f workflow.Future) (*Result, error) {
	if err := cmp.Or(s.check(ctx), entry.Made(c != nil, "durable", "the Command")); err != nil {
		return nil, err
	}
	var res Result
	if err := f.Get(ctx, &res); err != nil {
		return nil, err
	}
	if res.Rewound {
		s.noteRewound(ctx)
		return nil, ErrRewound
	}
	if c.Signaled && res.Outcome == Exited {
		res.Outcome = Killed
	}
	switch {
	case s.VM != c.VM:
	case res.Outcome == Lost:
		s.noteEnded()
	case !res.ExpiresAt.IsZero():
		s.ExpiresAt = res.ExpiresAt
	}
	return &res, nil
}

// Kill sends the command a signal, even if ctx was canceled. It is not an error if the
// command has ended.
func (s *Sandbox) Kill(ctx workflow.Context, c *Command, sig sandbox.Signal) error {
	if err := cmp.Or(s.check(ctx), entry.Made(c != nil, "durable", "the Command")); err != nil {
		return err
	}
	if c.ID == "" {
		return nil
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	c.Signaled = true
	return workflow.ExecuteActivity(withSummary(s.withShortOptions(ctx), c.Output), activityKill, *c, int(sig)).Get(ctx, nil)
}
