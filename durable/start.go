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
	"regexp"
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
	// Nonce tells the call from any other with the same key, which another history of
	// the workflow can have made: that of which a database has lost the end. It is
	// empty where other calls may have the key.
	Nonce string `json:",omitempty"`
	// Again says that the activity was executed before, was refused in the end, and
	// may have sent the command.
	Again bool `json:",omitempty"`
	// Lease is the machine's, and Expires when it ends as the workflow knows it.
	Lease   time.Duration
	Expires time.Time
}

// shared says that other calls may have the same key.
func (in startInput) shared() bool { return in.Nonce == "" }

// guarded are the arguments of sh: the guard, and what it guards.
func (in startInput) guarded() []string {
	path, nonce := within(in.Sandbox, in.Options.Key), in.Nonce
	if in.shared() {
		path, nonce = within(in.VM, in.Options.Key), "-"
	}
	return append([]string{"-c", guard, path, nonce, in.Name}, in.Args...)
}

// started reports whether a command is the one that is to be started, and no other
// that has its key.
func (in startInput) started(cmd *sandbox.Command) bool {
	args, want := cmd.Args(), in.guarded()
	if in.Options.ArgFrom != "" && len(args) == len(want)+1 { // which is not read yet
		args = args[:len(want)]
	}
	return slices.Equal(args, want)
}

type started struct {
	ID     string
	Handle json.RawMessage
	// Refused: the machine had ended before anything was sent.
	Refused bool `json:",omitempty"`
	// Lost: the machine has ended, and an earlier attempt may have started the
	// command in it.
	Lost bool `json:",omitempty"`
	// Rewound: another command was started with the key, by a history of the workflow
	// that is lost.
	Rewound bool `json:",omitempty"`
	// ExpiresAt is when the machine's lease ends, if that is not as the workflow knew.
	ExpiresAt time.Time `json:",omitzero"`
}

// guard lets one start of a key win: directories are made by one alone. It ends with
// taken for all others, and becomes the command for the winner, whose nonce it leaves
// in the directory. A key that calls share has the machine in its path, since the
// directories are in snapshots too, and others the sandbox, since it may begin from one. Any user of the sandbox may run commands, so that
// the folder above is everybody's; a directory that can't be made for another reason,
// a full disk for example, is an error of the command.
//
// The guard is there whether or not the service gives commands the IDs that are
// asked for: what it does with one that is taken was never observed.
const (
	guard = `d="/tmp/.durable/$0"; n=$1; shift; (umask 0; mkdir -p "${d%/*}" 2>/dev/null); ` +
		`mkdir "$d" 2>/dev/null || { [ ! -d "$d" ] || exit 125; mkdir "$d" || exit 126; }; ` +
		`echo "$n" 2>/dev/null >"$d/nonce"; exec "$@"`
	taken = 125
)

// nonceFile is where the guard leaves the nonce of a path's winner.
func nonceFile(path string) string { return "/tmp/.durable/" + path + "/nonce" }

func within(what, key string) string { return what + "/" + key }

// commandID is the ID that the service is asked to give the command of a key: of
// the form that is known to be taken, and the same for each attempt.
func commandID(vm, key string) string {
	sum := sha256.Sum256([]byte(within(vm, key)))
	return "d" + hex.EncodeToString(sum[:16])
}

var validKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// start starts the command of a key at most once. An attempt after the first
// looks for it before it sends anything. Should an earlier request arrive after
// that, one of the two wins: the service refuses the second with the same ID, or
// the guard ends it.
func (w *Worker) start(ctx context.Context, in startInput) (_ started, err error) {
	unsent := neverSent(ctx, in)
	defer func(ctx context.Context) { err = noteUnsent(ctx, unsent, err) }(ctx)
	ctx, stop := alive(ctx)
	defer stop()
	key := in.Options.Key
	if !validKey.MatchString(key) || key == "." || key == ".." {
		return started{}, classify(ctx, fmt.Errorf("%w: the key %q has characters that no key may have", sandbox.ErrInvalid, key))
	}
	first := unsent
	ended := func() (started, error) { return started{Refused: first, Lost: !first}, nil }
	var vm *sandbox.Session
	if first && !in.shared() {
		// That it has ended is what the service says to the start as well.
		vm, err = w.known(ctx, in.Sandbox, in.VM, in.Expires)
	} else {
		vm, err = w.session(ctx, in.Sandbox, in.VM)
	}
	if gone(err) {
		return ended()
	}
	if err != nil {
		return started{}, classify(ctx, err)
	}
	if !first || in.shared() {
		cmd, err := find(ctx, vm, in)
		if gone(err) {
			return ended()
		}
		if err != nil {
			return started{}, classify(ctx, err)
		}
		if cmd != nil {
			return w.found(ctx, cmd, in, vm)
		}
	}
	opts, err := w.prepare(ctx, &in)
	if err != nil {
		return started{}, classify(ctx, err)
	}
	if vm.TimeLeft() < in.Lease/2 {
		extend(ctx, vm, in.Lease) // it is some time until somebody follows the command
	}
	cmd, err := w.send(ctx, vm, in, opts)
	unsent = unsent && notStarted(err)
	switch {
	case err == nil:
		return w.found(ctx, cmd, in, vm)
	case errors.Is(err, sandbox.ErrOutcomeUnknown):
		// The next attempt looks, and the guard holds.
		return started{}, classify(ctx, errors.New(err.Error()))
	case gone(err):
		return ended()
	case errors.Is(err, sandbox.ErrRefused):
		switch _, lookErr := w.session(ctx, in.Sandbox, in.VM); {
		case lookErr == nil:
			return started{}, invalid(err) // it is about this command
		case gone(lookErr):
			return ended()
		default:
			return started{}, classify(ctx, lookErr) // all requests are refused
		}
	}
	return started{}, classify(ctx, err)
}

// notStarted reports whether a failure of the start says that nothing was started.
// A conflict does not: something in between may have delivered the request twice.
func notStarted(err error) bool {
	return !errors.Is(err, sandbox.ErrOutcomeUnknown) && slices.ContainsFunc([]error{
		sandbox.ErrUnauthorized, sandbox.ErrQuotaExceeded, sandbox.ErrRateLimited, sandbox.ErrRefused,
	}, func(refusal error) bool { return errors.Is(err, refusal) })
}

// neverSent reports whether no attempt before this one may have started the
// command.
func neverSent(ctx context.Context, in startInput) bool {
	if in.Again {
		return false
	}
	attempt := activity.GetInfo(ctx).Attempt
	var noted int32
	return attempt == 1 || activity.GetHeartbeatDetails(ctx, &noted) == nil && noted == attempt-1
}

// noteUnsent tells the next attempt, and a workflow that outlasts a refusal, that
// the command has not been started by then: its machine may end meanwhile, and
// nobody could look.
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

// send sends the start, with an ID where the service takes that.
func (w *Worker) send(ctx context.Context, vm *sandbox.Session, in startInput, opts *sandbox.StartOptions) (*sandbox.Command, error) {
	args := in.guarded()
	if !w.idsRefused.Load() {
		opts.ID = commandID(in.VM, in.Options.Key)
	}
	cmd, err := w.startHanded(ctx, vm, args, *opts)
	if opts.ID != "" && errors.Is(err, sandbox.ErrCommandIDs) {
		w.idsRefused.Store(true)
		opts.ID = ""
		cmd, err = w.startHanded(ctx, vm, args, *opts)
	}
	if opts.ID != "" && errors.Is(err, sandbox.ErrConflict) {
		// An earlier request of this start was quicker, or one of another history.
		if earlier, lookErr := vm.GetCommand(ctx, opts.ID); lookErr == nil {
			cmd, err = earlier, nil
		}
	}
	return cmd, err
}

// found is a command that has the key: the one that is to be started, if it is the same.
func (w *Worker) found(ctx context.Context, cmd *sandbox.Command, in startInput, vm *sandbox.Session) (started, error) {
	switch {
	case in.started(cmd):
		return handle(cmd, in, vm)
	case in.shared():
		return started{}, classify(ctx, fmt.Errorf("%w: the key %q is that of another command in this machine", sandbox.ErrInvalid, in.Options.Key))
	}
	return started{Rewound: true}, nil
}

// handle is what a command is found again by. It is in the history more than once, so
// that it is without the arguments.
func handle(cmd *sandbox.Command, in startInput, vm *sandbox.Session) (started, error) {
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

// prepare fetches what is not in the history: a stored argument and variables.
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

// withText adds the argument that is in the store.
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

// find looks for the command of a key in a session: by its ID, and among all
// commands where the service, or the worker that sent it, did not use that.
func find(ctx context.Context, vm *sandbox.Session, in startInput) (*sandbox.Command, error) {
	cmd, err := vm.GetCommand(ctx, commandID(vm.ID(), in.Options.Key))
	if !errors.Is(err, sandbox.ErrNotFound) {
		return cmd, err
	}
	cmds, err := vm.ListCommands(ctx)
	if err != nil {
		return nil, err
	}
	return winner(ctx, cmds, in.guarded()[2])
}

// pathOf is the guard's path of a command, empty for one without the guard.
func pathOf(cmd *sandbox.Command) string {
	if args := cmd.Args(); len(args) > 4 && args[0] == "-c" && args[1] == guard {
		return args[2]
	}
	return ""
}

// winner looks among all commands of a session for those with the guard of a path,
// and returns the one that won, or may still win.
func winner(ctx context.Context, cmds []*sandbox.Command, path string) (*sandbox.Command, error) {
	cmds = slices.DeleteFunc(slices.Clone(cmds), func(c *sandbox.Command) bool { return pathOf(c) != path })
	switch len(cmds) {
	case 0:
		return nil, nil
	case 1:
		return cmds[0], nil
	}
	// A loser ends at once. Its end shows only when it is waited for.
	for _, cmd := range cmds {
		wait, cancel := context.WithTimeout(ctx, loserEnds)
		done, err := cmd.Wait(wait)
		cancel()
		switch {
		case err == nil && done.ExitCode != taken:
			return cmd, nil
		case err == nil:
		case ctx.Err() != nil || wait.Err() == nil:
			return nil, err
		default:
			return cmd, nil // it runs
		}
	}
	return nil, nil
}

// won looks for the command that has won against one that ended as losers do: nil if it
// ended so by itself. rewound says that it was one of a history that is lost.
func won(ctx context.Context, vm *sandbox.Session, id string) (cmd *sandbox.Command, rewound bool, err error) {
	cmds, err := vm.ListCommands(ctx)
	if err != nil {
		return nil, false, err
	}
	i := slices.IndexFunc(cmds, func(c *sandbox.Command) bool { return c.ID() == id })
	if i < 0 || pathOf(cmds[i]) == "" {
		return nil, false, nil
	}
	mine := cmds[i]
	if cmd, err = winner(ctx, cmds, pathOf(mine)); err != nil {
		return nil, false, err
	}
	if cmd != nil && cmd.ID() != id {
		return cmd, !slices.Equal(cmd.Args(), mine.Args()), nil
	}
	// In a machine before this one, whose files it has, or never.
	nonce, err := vm.FS().ReadFile(ctx, nonceFile(pathOf(mine)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	text := strings.TrimSpace(string(nonce))
	return nil, text != "" && text != mine.Args()[3], err
}

// loserEnds is within what time a command that lost has ended.
const loserEnds = 5 * time.Second
