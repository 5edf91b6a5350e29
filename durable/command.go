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

// RunOptions says how a command is run. The zero value runs it in the working
// directory for as long as it takes.
type RunOptions struct {
	Cwd  string `json:"cwd,omitempty"`
	Sudo bool   `json:"sudo,omitempty"`
	// ArgFrom is the key of an object in the worker's output store that is one more
	// argument, the last: for a text that is too large, or too private, for a history.
	ArgFrom string `json:"argFrom,omitempty"`
	// Timeout ends the command. Zero never does; the platform's cap on a
	// machine's time does.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Key makes the start idempotent beyond this workflow: of all starts with
	// the same key in one machine, one runs, and those of another command are
	// errors. Empty means a key of this call's own. It has letters, digits, "-",
	// "_" and ".", at most 128.
	Key string `json:"key,omitempty"`
	// RerunIfLost runs the command again, once for each time that its machine
	// ends, instead of reporting it as lost. It is for what may run twice.
	RerunIfLost bool `json:"rerunIfLost,omitempty"`
	// Output is the key that the output is stored under. Empty means one that
	// begins with the workflow's ID, the sandbox's name and the command's number.
	Output string `json:"output,omitempty"`
	// NoTail leaves the tail out of the result, and so out of the workflow's
	// history, if the output is stored.
	NoTail bool `json:"noTail,omitempty"`
	// MaxOutput is how many bytes of the output are stored; the rest is read, and
	// dropped but for the tail. Zero stores all.
	MaxOutput int64 `json:"maxOutput,omitempty"`
}

// Outcome says how a command came to its end.
type Outcome string

const (
	// Exited commands ended by themselves, or by their timeout, and have an
	// exit code.
	Exited Outcome = "exited"
	// Killed commands were ended by [Sandbox.Kill], and have an exit code.
	Killed Outcome = "killed"
	// Lost commands have an unknown end: their machine ended first,
	// or ended before it was known whether they had started.
	Lost Outcome = "lost"
)

// Command is a command that was started. It is a plain value.
type Command struct {
	// ID and VM are those of the platform. They are empty when the start's
	// outcome is unknown because the machine has ended.
	ID string `json:"id,omitempty"`
	VM string `json:"vm,omitempty"`
	// Key is what the start was made idempotent by, Output where the output is
	// stored.
	Key    string `json:"key"`
	Output string `json:"output"`
	// Handle is the SDK's handle, as JSON, without the arguments.
	Handle json.RawMessage `json:"handle,omitempty"`
	// Signaled is set by Kill.
	Signaled bool `json:"signaled,omitempty"`
	// NoTail and MaxOutput are those of the RunOptions.
	NoTail    bool  `json:"noTail,omitempty"`
	MaxOutput int64 `json:"maxOutput,omitempty"`
}

// Result is what became of a command.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// ExitCode is 128 plus the signal's number when a signal ended it. It means
	// nothing when the outcome is [Lost].
	ExitCode int           `json:"exitCode"`
	Duration time.Duration `json:"duration,omitempty"`
	// Bytes is how much it wrote, to both streams; Tail the last 2 KiB of that, as text.
	Bytes int64  `json:"bytes"`
	Tail  string `json:"tail,omitempty"`
	// Archived says that the output, or what there was of it when the machine
	// ended, is in the store under Output.
	Archived bool   `json:"archived,omitempty"`
	Output   string `json:"output,omitempty"`
	// Truncated says that it wrote more than MaxOutput.
	Truncated bool `json:"truncated,omitempty"`
	// ExpiresAt is when the machine's lease ends, which its end has renewed. It is
	// zero if the machine has ended.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Rewound is that of an activity's result; [Sandbox.Result] makes it ErrRewound.
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
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	for {
		cmd, err := s.Start(ctx, name, args, o)
		if err != nil {
			return nil, err
		}
		res, err := s.Wait(ctx, cmd)
		if err != nil || res.Outcome != Lost || o == nil || !o.RerunIfLost {
			return res, err
		}
	}
}

// Start starts a command, at most once, on a machine that it starts if there is
// none. An error means that the command did not and will not run: one that matches
// [ErrReset] or [ErrRewound] that it would have run after a loss, see
// [Sandbox.OnLoss]. Called again, Start runs it.
func (s *Sandbox) Start(ctx workflow.Context, name string, args []string, o *RunOptions) (*Command, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	var opts RunOptions
	if o != nil {
		opts = *o
	}
	info := workflow.GetInfo(ctx)
	s.Commands++
	// What another history of this workflow has made of this call was decided at
	// another time.
	nonce := moment(ctx)
	if opts.Output == "" {
		opts.Output = fmt.Sprintf("%s/%s/%d-%s", info.WorkflowExecution.ID, s.Options.Name, s.Commands, nonce)
	}
	in := startInput{Sandbox: s.Options.Name, EnvFrom: s.Options.EnvFrom, Name: name, Args: args, Options: opts, Lease: s.Options.lease()}
	if opts.Key == "" {
		in.Nonce = nonce
	}
	for again := false; ; again = true {
		if err := s.awake(ctx); err != nil {
			return nil, err
		}
		if in.Nonce != "" {
			in.Options.Key = fmt.Sprintf("%s.%s.%d", info.FirstRunID, s.Epoch, s.Commands)
		}
		in.VM, in.Expires = s.VM, s.ExpiresAt
		got, err := s.start(ctx, in)
		if err != nil {
			return nil, err
		}
		if !got.ExpiresAt.IsZero() {
			s.ExpiresAt = got.ExpiresAt
		}
		key := in.Options.Key
		switch {
		case got.Rewound:
			s.rewound(ctx)
			if err := s.lost(ctx, ErrRewound); err != nil {
				return nil, err
			}
		case got.Refused && !again:
			s.ended() // before anything was sent
		case got.Refused, got.Lost:
			s.ended()
			return &Command{Key: key, Output: opts.Output}, nil
		default:
			return &Command{ID: got.ID, VM: s.VM, Key: key, Output: opts.Output, Handle: got.Handle, NoTail: opts.NoTail, MaxOutput: opts.MaxOutput}, nil
		}
	}
}

// start executes the activity. What is wrong with the command itself is its
// error; another refusal is outlasted.
func (s *Sandbox) start(ctx workflow.Context, in startInput) (got started, err error) {
	for again := true; again; {
		err = workflow.ExecuteActivity(of(s.brief(ctx), in.Options.Output), activityStart, in).Get(ctx, &got)
		if refusal(err) == errInvalid {
			break
		}
		if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
			in.Again = !app.HasDetails() // which say that no attempt has started it
		}
		again, err = s.Outlast(ctx, err)
	}
	return got, err
}

// Wait waits for the command's end, while its output goes to the store. When ctx
// is cancelled the command goes on; see [Sandbox.Kill].
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

// Follow begins to follow the command and returns the future of its end, for
// workflows that have other things to do meanwhile. Give it to [Sandbox.Result].
func (s *Sandbox) Follow(ctx workflow.Context, c *Command) workflow.Future {
	if err := cmp.Or(s.check(ctx), entry.Made(c != nil, "durable", "the Command")); err != nil || c.ID == "" {
		done, settable := workflow.NewFuture(ctx)
		settable.Set(Result{Outcome: Lost}, err)
		return done
	}
	return workflow.ExecuteActivity(of(s.long(ctx), c.Output), activityFollow, followInput{
		Command: *c, Sandbox: s.Options.Name, Lease: s.Options.lease(), Expires: s.ExpiresAt,
	})
}

// Result waits for a future of [Sandbox.Follow]. An error that matches [ErrRewound] says
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
		s.rewound(ctx)
		return nil, ErrRewound
	}
	if c.Signaled && res.Outcome == Exited {
		res.Outcome = Killed
	}
	switch {
	case s.VM != c.VM:
	case res.Outcome == Lost:
		s.ended()
	case !res.ExpiresAt.IsZero():
		s.ExpiresAt = res.ExpiresAt
	}
	return &res, nil
}

// Kill sends the command a signal, also when ctx was cancelled. A command that
// has ended is not an error.
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
	return workflow.ExecuteActivity(of(s.brief(ctx), c.Output), activityKill, *c, int(sig)).Get(ctx, nil)
}
