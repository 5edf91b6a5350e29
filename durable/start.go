package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/go-vercel/sandbox"
)

type startInput struct {
	Sandbox, VM, EnvFrom, Name string
	Args                       []string
	Options                    RunOptions
	// Key identifies this call in the workflow. Nonce distinguishes it from a call with the
	// same key in another history of the workflow, which a restored database has lost.
	Key, Nonce string
	// Again says that an earlier execution of the activity was refused, but may have sent
	// the command.
	Again bool `json:",omitempty"`
	// Lease is the length of the machine's lease. Expires is when the lease ends, as far as
	// the workflow knows.
	Lease   time.Duration
	Expires time.Time
}

// guardArgs returns the arguments of sh: the guard and the command that it guards.
func (in startInput) guardArgs() []string {
	return append([]string{"-c", guard, in.Sandbox + "/" + in.Key, in.Nonce, in.Name}, in.Args...)
}

// matches reports whether cmd is the command to start, rather than another one with its key.
func (in startInput) matches(cmd *sandbox.Command) bool {
	args, want := cmd.Args(), in.guardArgs()
	if in.Options.ArgFrom != "" && len(args) == len(want)+1 { // want lacks the text, which is not read yet
		args = args[:len(want)]
	}
	return slices.Equal(args, want)
}

type started struct {
	ID     string
	Handle json.RawMessage
	// Refused says that the machine had ended before anything was sent.
	Refused bool `json:",omitempty"`
	// Lost says that the machine has ended, and that an earlier attempt may have started
	// the command in it.
	Lost bool `json:",omitempty"`
	// Rewound says that a lost history of the workflow started another command with the
	// key.
	Rewound bool `json:",omitempty"`
	// ExpiresAt is the end of the machine's lease, unless the workflow knows it.
	ExpiresAt time.Time `json:",omitzero"`
}

// guard is the shell script that starts a command. Of all starts with the same key, it lets
// only one win, because only one process can create a directory. In the winner, the script
// writes the nonce into the directory and becomes the command. In all others, it ends with
// exit code 125 (exitStartLost). If the directory can't be created for another reason, such
// as a full disk, the command fails.
//
// Snapshots contain these directories, and another sandbox may begin from one. The path
// therefore contains the sandbox's name. Any user of the sandbox may run commands, so
// everybody can write the folder above.
//
// The guard is needed even if the service accepts the caller's command IDs: it is not known
// what the service does with an ID that is already in use.
const (
	guard = `d="/tmp/.durable/$0"; n=$1; shift; (umask 0; mkdir -p "${d%/*}" 2>/dev/null); ` +
		`mkdir "$d" 2>/dev/null || { [ ! -d "$d" ] || exit 125; mkdir "$d" || exit 126; }; ` +
		`echo "$n" 2>/dev/null >"$d/nonce"; exec "$@"`
	exitStartLost = 125
)

// nonceFile returns the file in which the winner of a path has written its nonce.
func nonceFile(path string) string { return "/tmp/.durable/" + path + "/nonce" }

// commandID returns the ID to request for the command of a key. It has a form that the
// service is known to accept, and is the same for each attempt.
func commandID(vm, key string) string {
	sum := sha256.Sum256([]byte(vm + "/" + key))
	return "d" + hex.EncodeToString(sum[:16])
}

// start starts the command of a key at most once. Every attempt but the first looks for the
// command before it sends anything. An earlier request may still arrive after that. Then
// only one of the two wins: the service refuses the second one with the same ID, or the
// guard ends it.
func (w *Worker) start(ctx context.Context, in startInput) (_ started, err error) {
	unsent := neverSent(ctx, in)
	defer func(ctx context.Context) { err = noteUnsent(ctx, unsent, err) }(ctx)
	ctx, stop := heartbeat(ctx)
	defer stop()
	first := unsent
	ended := func() (started, error) { return started{Refused: first, Lost: !first}, nil }
	var vm *sandbox.Session
	var cmd *sandbox.Command
	if first {
		// If the session has ended, the service says so when it refuses the start.
		vm, err = w.knownSession(in.Sandbox, in.VM, in.Expires)
	} else if vm, err = w.currentSession(ctx, in.Sandbox, in.VM); err == nil {
		cmd, err = findCommand(ctx, vm, in)
	}
	switch {
	case hasEnded(err):
		return ended()
	case err != nil:
		return started{}, classify(ctx, err)
	case cmd != nil:
		return resultOf(cmd, in, vm)
	}
	opts, err := w.prepare(ctx, &in)
	if err != nil {
		return started{}, classify(ctx, err)
	}
	if vm.TimeLeft() < in.Lease/2 {
		extend(ctx, vm, in.Lease) // nothing else renews the lease until the command is followed
	}
	cmd, err = w.send(ctx, vm, in, opts)
	unsent = unsent && notStarted(err)
	switch {
	case err == nil:
		return resultOf(cmd, in, vm)
	case errors.Is(err, sandbox.ErrOutcomeUnknown):
		// The next attempt looks for the command, and the guard prevents a second start.
		return started{}, classify(ctx, errors.New(err.Error()))
	case hasEnded(err):
		return ended()
	case errors.Is(err, sandbox.ErrRefused):
		switch _, lookErr := w.currentSession(ctx, in.Sandbox, in.VM); {
		case lookErr == nil:
			return started{}, invalidError(err) // the refusal is about this command
		case hasEnded(lookErr):
			return ended()
		default:
			return started{}, classify(ctx, lookErr) // the service refuses all requests
		}
	}
	return started{}, classify(ctx, err)
}

// notStarted reports whether an error means that nothing was started. A conflict does not
// mean that: a proxy may have delivered the request twice.
func notStarted(err error) bool {
	return !errors.Is(err, sandbox.ErrOutcomeUnknown) && slices.ContainsFunc([]error{
		sandbox.ErrUnauthorized, sandbox.ErrQuotaExceeded, sandbox.ErrRateLimited, sandbox.ErrRefused,
	}, func(refusal error) bool { return errors.Is(err, refusal) })
}

// neverSent reports whether no earlier attempt can have started the command.
func neverSent(ctx context.Context, in startInput) bool {
	if in.Again {
		return false
	}
	attempt := activity.GetInfo(ctx).Attempt
	var noted int32
	return attempt == 1 || activity.GetHeartbeatDetails(ctx, &noted) == nil && noted == attempt-1
}

// noteUnsent tells the next attempt, and a workflow that outlasts a refusal, that the
// command has not been started yet. They could not find out if the machine ended in the
// meantime.
func noteUnsent(ctx context.Context, unsent bool, err error) error {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok || !unsent {
		return err
	}
	activity.RecordHeartbeat(ctx, activity.GetInfo(ctx).Attempt)
	return temporal.NewApplicationErrorWithOptions(app.Message(), app.Type(), temporal.ApplicationErrorOptions{
		NonRetryable: app.NonRetryable(), NextRetryDelay: app.NextRetryDelay(), Details: []any{unsent},
	})
}

// send sends the start, with an ID if the service accepts one.
func (w *Worker) send(ctx context.Context, vm *sandbox.Session, in startInput, opts *sandbox.StartOptions) (*sandbox.Command, error) {
	args := in.guardArgs()
	if !w.idsRefused.Load() {
		opts.ID = commandID(in.VM, in.Key)
	}
	cmd, err := w.startStreaming(ctx, vm, args, *opts)
	if opts.ID != "" && errors.Is(err, sandbox.ErrCommandIDs) {
		w.idsRefused.Store(true)
		opts.ID = ""
		cmd, err = w.startStreaming(ctx, vm, args, *opts)
	}
	if opts.ID != "" && errors.Is(err, sandbox.ErrConflict) {
		// An earlier request of this start, or of another history, was faster.
		if earlier, lookErr := vm.GetCommand(ctx, opts.ID); lookErr == nil {
			cmd, err = earlier, nil
		}
	}
	return cmd, err
}

// resultOf returns the result for a command with the key. A lost history of the workflow may
// have started another command with the same key.
func resultOf(cmd *sandbox.Command, in startInput, vm *sandbox.Session) (started, error) {
	if in.matches(cmd) {
		return withHandle(cmd, in, vm)
	}
	return started{Rewound: true}, nil
}

// withHandle returns the command's handle, without its arguments, because the history contains
// the handle more than once.
func withHandle(cmd *sandbox.Command, in startInput, vm *sandbox.Session) (started, error) {
	data, err := json.Marshal(cmd)
	if err != nil {
		return started{}, err
	}
	var h struct {
		SandboxID string                     `json:"sandboxId"`
		Cmd       map[string]json.RawMessage `json:"cmd"`
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return started{}, err
	}
	delete(h.Cmd, "args")
	data, err = json.Marshal(h)
	got := started{ID: cmd.ID(), Handle: data}
	if ends := expiry(vm); !ends.Equal(in.Expires) {
		got.ExpiresAt = ends
	}
	return got, err
}

// prepare fetches what the history lacks: a stored argument and the environment.
func (w *Worker) prepare(ctx context.Context, in *startInput) (*sandbox.StartOptions, error) {
	opts := &sandbox.StartOptions{Cwd: in.Options.Cwd, Sudo: in.Options.Sudo, Timeout: in.Options.Timeout}
	var err error
	if in.Args, err = w.withText(ctx, in.Args, in.Options.ArgFrom); err != nil || in.EnvFrom == "" {
		return opts, err
	}
	if w.Env == nil {
		return nil, fmt.Errorf("%w: EnvFrom is %q, but the Worker has no Env", sandbox.ErrInvalid, in.EnvFrom)
	}
	opts.Env, err = w.Env(ctx, in.EnvFrom)
	return opts, err
}

// withText appends the stored argument.
func (w *Worker) withText(ctx context.Context, args []string, key string) ([]string, error) {
	if key == "" {
		return args, nil
	}
	if w.Output == nil {
		return nil, fmt.Errorf("%w: ArgFrom is %q, but the Worker has no Output", sandbox.ErrInvalid, key)
	}
	r, err := w.Output.Open(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the text of the command is no longer stored: %w", sandbox.ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return append(slices.Clip(args), string(text)), err
}

// findCommand looks for the command of a key in a session by its ID. If the service refused
// that ID, findCommand searches all commands.
func findCommand(ctx context.Context, vm *sandbox.Session, in startInput) (*sandbox.Command, error) {
	cmd, err := vm.GetCommand(ctx, commandID(vm.ID(), in.Key))
	if !errors.Is(err, sandbox.ErrNotFound) {
		return cmd, err
	}
	cmds, err := vm.ListCommands(ctx)
	if err != nil {
		return nil, err
	}
	return winnerOf(ctx, cmds, in.guardArgs()[2])
}

// pathOf returns the guard's path of a command. It is empty for a command without guard.
func pathOf(cmd *sandbox.Command) string {
	if args := cmd.Args(); len(args) > 4 && args[0] == "-c" && args[1] == guard {
		return args[2]
	}
	return ""
}

// winnerOf returns the one of cmds, the commands of a session, that has won the guard of a
// path or may still win it.
func winnerOf(ctx context.Context, cmds []*sandbox.Command, path string) (*sandbox.Command, error) {
	cmds = slices.DeleteFunc(slices.Clone(cmds), func(c *sandbox.Command) bool { return pathOf(c) != path })
	switch len(cmds) {
	case 0:
		return nil, nil
	case 1:
		return cmds[0], nil
	}
	// A loser ends at once, but only Wait shows that.
	for _, cmd := range cmds {
		wait, cancel := context.WithTimeout(ctx, loserTimeout)
		done, err := cmd.Wait(wait)
		cancel()
		switch {
		case err == nil && done.ExitCode != exitStartLost:
			return cmd, nil
		case err == nil:
		case ctx.Err() != nil || wait.Err() == nil:
			return nil, err
		default:
			return cmd, nil // it still runs, so the guard has let it win
		}
	}
	return nil, nil
}

// findWinner looks for the command that won the guard against the command id. It returns
// nil if this session has no such command: either the program of id itself has ended with
// exit code 125, or the winner ran in an earlier session. rewound says that the winner
// belongs to a lost history.
func findWinner(ctx context.Context, vm *sandbox.Session, id string) (cmd *sandbox.Command, rewound bool, err error) {
	cmds, err := vm.ListCommands(ctx)
	if err != nil {
		return nil, false, err
	}
	i := slices.IndexFunc(cmds, func(c *sandbox.Command) bool { return c.ID() == id })
	if i < 0 || pathOf(cmds[i]) == "" {
		return nil, false, nil
	}
	mine := cmds[i]
	if cmd, err = winnerOf(ctx, cmds, pathOf(mine)); err != nil {
		return nil, false, err
	}
	if cmd != nil && cmd.ID() != id {
		return cmd, !slices.Equal(cmd.Args(), mine.Args()), nil
	}
	// Either the winner ran in an earlier machine, and this one has its files, or there was
	// no winner.
	nonce, err := vm.FS().ReadFile(ctx, nonceFile(pathOf(mine)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	text := strings.TrimSpace(string(nonce))
	return nil, text != "" && text != mine.Args()[3], err
}

// loserTimeout is how long a command that lost against the guard may take to end.
const loserTimeout = 5 * time.Second
